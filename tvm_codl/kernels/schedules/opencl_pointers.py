"""OpenCL loops that advance pointers, for phones' GPUs.

TVM computes the whole index of each load anew.  Phones' compilers find little in common in these: where a loop's body has
12 loads and 128 multiply-adds, half of its instructions are integer ones for addresses.  Here each innermost loop gets a
pointer for all loads whose indices differ by constants; it moves on at the end of the body.

Adreno's compiler has an address in two registers for each load of a body at once, and as many loads under way as it may.
Where these crowd out waves, a number of bytes moves on from load to load there, and branches always taken part the body.
"""

from __future__ import annotations

import ast
import re

_PARAMETER = re.compile(r"__global (?:const )?(\w+)\* restrict (\w+)")
_LOOP = re.compile(r"^( *)for \(int (\w+) = 0; \2 < \d+; \+\+\2\) \{$")
_SHORT = re.compile(r"< (\d\d?); ")
#: 0, as no grid has 2^31 groups.
_NOTHING = "(convert_int(get_num_groups(0)) >> 31)"
_NOTHINGS = tuple(_NOTHING.replace("0", str(axis), 1) for axis in range(3))
#: More loads than this with their addresses leave Adreno fewer waves.
_LOADS = 10
#: So many are under way at once in a parted body.
_UNDER_WAY = 8
_LOADED = re.compile(r"^ *(\w+\[\d+\]) = [^;]*\b\w+_at\d+[^;]*;$")
_MOVED = re.compile(r"\b(\w+_at\d+)( \+ |\[)(-?\d+)\]?")
_UNKNOWN = re.compile(r"\b(\w+)\[(?!\d+\])")
_BYTES = {"float": 4, "half": 2, "float4": 16, "half4": 8}
_ANY_LOOP = re.compile(r"^ *(for|while) \(")
#: The start of a load of one element, or of a vector of them.
_LOAD = re.compile(r"\b(\w+)\[|\b(?:codl_load\d+\(|vload\d+\(0, )(\w+) \+ ")
#: A group's number is no Python: a name takes its place while an index is taken apart.
_GROUP, _NAME = re.compile(r"\(codl_index\)get_group_id\((\d)\)"), re.compile(r"\bcodl_group_(\d)\b")
_ALLOWED = (
    *(ast.Expression, ast.BinOp, ast.Name, ast.Constant, ast.Call, ast.Load),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.BitAnd, ast.LShift, ast.RShift),
)


def advancing(source: str, sparing: bool = False) -> str:
    """``source``, the kernels of :func:`.opencl_source.direct_vectors`, with pointers in its innermost loops.

    ``sparing``: with fewer registers and more instructions where loads are many.
    """
    types = {name: kind for kind, name in _PARAMETER.findall(source)}
    lines, result, at, pointers = source.split("\n"), [], 0, 0
    while at < len(lines):
        loop = _LOOP.match(lines[at])
        end = lines.index(f"{loop[1]}}}", at) if loop else at
        if loop is None or any(map(_ANY_LOOP.match, lines[at + 1 : end])):
            result.append(lines[at])
            at += 1
            continue
        rewritten = _Loop(loop[1], loop[2], types, pointers, sparing)
        result += rewritten.of(lines[at], lines[at + 1 : end])
        pointers += len(rewritten.pointers)
        at = end + 1
    return "\n".join(result)


class _Loop:
    """One innermost loop over ``variable``; ``first`` numbers its first pointer."""

    def __init__(self, indent: str, variable: str, types: dict[str, str], first: int, sparing: bool) -> None:
        self.indent, self.variable, self.types, self.first, self.sparing = indent, variable, types, first, sparing
        #: By parameter, start and step.
        self.pointers: dict[tuple[str, str, int], str] = {}

    def of(self, head: str, body: list[str]) -> list[str]:
        moved = [self._line(line) for line in body]
        loads = [line for line in moved if _MOVED.search(line)]
        known = all(self.types[name] in _BYTES for name, _, _ in self.pointers)
        if self.sparing and known and len(loads) > _LOADS and all(map(_LOADED.match, loads)):
            return self._one_by_one(head, moved)
        starts = [
            f"{self.indent}const __global {self.types[name]}* {pointer} = {name} + ({start});"
            for (name, start, _), pointer in self.pointers.items()
        ]
        steps = [f"{self.indent}  {pointer} += {step};" for (_, _, step), pointer in self.pointers.items()]
        # Written out, a short loop loads all it needs at once, and registers spill.  Compilers that do not know the pragma
        # (Mesa's) must not know the number of turns.
        if starts:
            starts.append(f"{self.indent}#pragma unroll 1")
            head = _SHORT.sub(rf"< \1 + {_NOTHING}; ", head)
        return [*starts, head, *moved, *steps, f"{self.indent}}}"]

    def _one_by_one(self, head: str, body: list[str]) -> list[str]:
        """The loop, each of whose lines has one load at most, with offsets in bytes that move on from load to load.

        What is added to a step keeps compilers from computing all addresses at once.
        """
        inside, nothing = f"{self.indent}  ", f"nothing{self.first}"
        lines, at, part, parts = [], dict.fromkeys(self.pointers.values(), 0), set[str](), 0
        names = {pointer: name for (name, _, _), pointer in self.pointers.items()}
        size = {pointer: _BYTES[self.types[name]] for pointer, name in names.items()}
        for line in _late(body):
            load, into = _MOVED.search(line), _LOADED.match(line)
            if load is None or into is None:
                lines.append(line)
                continue
            if into[1] in part or len(part) == _UNDER_WAY:
                closed = "} " if parts else ""
                parts += 1
                lines.append(f"{inside}{closed}if ({_NOTHINGS[parts % 3]} == 0) {{")
                part = set()
            part.add(into[1])
            pointer, place = load[1], int(load[3]) * size[load[1]]
            if place != at[pointer]:
                lines.append(f"{inside}{pointer} += {place - at[pointer]} + {nothing};")
                at[pointer] = place
            kind, name = self.types[names[pointer]], names[pointer]
            address = f"(const __global {kind}*)((const __global char*){name} + {pointer})"
            read = f"(*({address}))" if load[2] == "[" else address
            done = line[: load.start()] + read + line[load.end() :]
            lines.append(done)
        steps = {pointer: step * size[pointer] for (_, _, step), pointer in self.pointers.items()}
        return [
            *(f"{self.indent}uint {p} = {size[p]} * ({start});" for (_, start, _), p in self.pointers.items()),
            f"{self.indent}const int {nothing} = {_NOTHING};",
            f"{self.indent}#pragma unroll 1",
            _SHORT.sub(rf"< \1 + {_NOTHING}; ", head),
            *lines,
            *([f"{inside}}}"] if parts else []),
            *(f"{inside}{p} += {step - at[p]} + {nothing};" for p, step in steps.items()),
            f"{self.indent}}}",
        ]

    def _line(self, line: str) -> str:
        done, at = "", 0
        # What is before the sign is where the result goes.
        begin = line.index(" = ") if " = " in line else 0
        for load in _LOAD.finditer(line, begin):
            name, end = load[1] or load[2], _end(line, load.end())
            split = _split(line[load.end() : end], self.variable) if name in self.types and load.start() >= at else None
            if split is None:
                continue
            start, step, constant = split
            key = (name, start, step)
            pointer = self.pointers.setdefault(key, f"{name}_at{self.first + len(self.pointers)}")
            opening = line[load.start() : load.end()].replace(name, pointer, 1)
            done += f"{line[at : load.start()]}{opening}{constant}"
            at = end
        return done + line[at:]


def _late(body: list[str]) -> list[str]:
    """``body`` with each load of a vector right before the first line that may use it."""
    waiting: dict[str, str] = {}
    lines: list[str] = []
    for line in body:
        if load := _LOADED.match(line):
            waiting[load[1]] = line
            continue
        unknown = set(_UNKNOWN.findall(line))
        lines += [waiting.pop(n) for n in list(waiting) if n in line or n.partition("[")[0] in unknown]
        lines.append(line)
    return [*lines, *waiting.values()]


def _end(text: str, at: int) -> int:
    """Where the parenthesis or bracket closes that is open at ``at``."""
    depth = 1
    while depth:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[at], 0)
        at += 1
    return at - 1


def _split(index: str, variable: str) -> tuple[str, int, int] | None:
    """``index`` as (start, step, constant): start + step × ``variable`` + constant; None where it has no such form."""
    try:
        tree = ast.parse(_GROUP.sub(r"codl_group_\1", index.strip()), mode="eval")
    except SyntaxError:
        return None
    if not all(isinstance(node, _ALLOWED) for node in ast.walk(tree)):
        return None
    kept: list[str] = []
    step = constant = 0
    for sign, term in _terms(tree.body, 1):
        if isinstance(term, ast.Constant):
            constant += sign * int(str(term.value))
        elif (times := _multiple(term, variable)) is not None:
            step += sign * times
        elif any(isinstance(node, ast.Name) and node.id == variable for node in ast.walk(term)):
            return None
        else:
            text = f"({ast.unparse(term)})"
            kept.append(f"{'+' if sign > 0 else '-'} {text}" if kept or sign < 0 else text)
    start = _NAME.sub(r"((codl_index)get_group_id(\1))", " ".join(kept) or "0")
    return (start, step, constant) if step else None


def _terms(node: ast.expr, sign: int) -> list[tuple[int, ast.expr]]:
    """The summands of an expression with their signs."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = sign if isinstance(node.op, ast.Add) else -sign
        return [*_terms(node.left, sign), *_terms(node.right, right)]
    return [(sign, node)]


def _multiple(node: ast.expr, variable: str) -> int | None:
    """By what ``variable`` is multiplied in a summand that is no more than that."""
    if isinstance(node, ast.Name):
        return 1 if node.id == variable else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant):
        inner = _multiple(node.left, variable)
        return None if inner is None else inner * int(str(node.right.value))
    return None
