"""Orders the blocks of each function of an LLVM text so that each comes after its dominators, as SPIR-V wants.

Values have names (``instnamer``).  What SPIR-V 1.2 or its translator lacks is written otherwise.
"""

import re
import sys

BRANCH = re.compile(r"^\s+(br|switch|i\d+ .*label|\])")
LABEL = re.compile(r'label %("?[-\w.$]+"?)')
SELECT = re.compile(r"(\s+)(%\S+) = select i1 (\S+), (<(\d+) x .*)")
NAME = re.compile(r'^("?[-\w.$]+"?):')


def spirv(line: str) -> str:
    """Of a value that is not poison, freeze is the value.  A loop to be written out once is one not to be written out.  One
    condition does not choose between vectors."""
    if match := SELECT.match(line):
        indent, name, condition, vectors, lanes = match.groups()
        kind, one, all = f"<{lanes} x i1>", f"{name}.one", f"{name}.all"
        return (
            f"{indent}{one} = insertelement {kind} undef, i1 {condition}, i32 0\n"
            f"{indent}{all} = shufflevector {kind} {one}, {kind} undef, <{lanes} x i32> zeroinitializer\n"
            f"{indent}{name} = select {kind} {all}, {vectors}"
        )
    line = line.replace('!"llvm.loop.unroll.count", i32 1}', '!"llvm.loop.unroll.disable"}')
    return re.sub(r"= freeze (\S+) (\S+)", r"= bitcast \1 \2 to \1", line)


def ordered(body: list[str]) -> list[str]:
    """The lines of a function, its blocks in reverse post-order."""
    blocks: dict[str, list[str]] = {"": []}
    name = ""
    for line in body:
        if match := NAME.match(line):
            name = match[1]
            blocks[name] = []
        blocks[name].append(line)
    if not blocks[""]:
        del blocks[""]

    def successors(block: str) -> list[str]:
        return [at for line in blocks[block] if BRANCH.match(line) for at in LABEL.findall(line)]

    entry = next(iter(blocks))
    seen, done, stack = {entry}, [], [(entry, iter(successors(entry)))]
    while stack:
        at, rest = stack[-1]
        following = next((block for block in rest if block not in seen), None)
        if following is None:
            done.append(at)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(successors(following))))
    return [line for block in reversed(done) for line in blocks[block]]


def main() -> None:
    body: list[str] | None = None
    for line in map(spirv, sys.stdin.read().split("\n")):
        if body is None:
            print(line)
            body = [] if line.startswith("define ") else None
        elif line == "}":
            print(*ordered([part for part in body if part.strip()]), line, sep="\n")
            body = None
        else:
            body.append(line)


main()
