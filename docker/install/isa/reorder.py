"""Orders the blocks of every function of an LLVM text (values named by instnamer) so that each comes after its dominators, as SPIR-V wants."""
import re, sys

def order(body):
    blocks, name = {}, None
    for line in body:
        m = re.match(r'^("?[-\w.$]+"?):', line)
        if m:
            name = m[1]
            blocks[name] = [line]
        elif name is not None:
            blocks[name].append(line)
        else:
            name = "<entry>"
            blocks[name] = [line]
    entry = next(iter(blocks))
    def successors(b):
        return [s for line in blocks[b] if re.match(r"^\s+(br|switch|i\d+ .*label|\])", line) for s in re.findall(r'label %("?[-\w.$]+"?)', line)]
    seen, post = set(), []
    def visit(b):
        stack = [(b, iter(successors(b)))]
        seen.add(b)
        while stack:
            at, it = stack[-1]
            for s in it:
                if s not in seen:
                    seen.add(s)
                    stack.append((s, iter(successors(s))))
                    break
            else:
                post.append(at)
                stack.pop()
    visit(entry)
    return [line for b in reversed(post) for line in blocks[b]]

out, body = [], None
for line in sys.stdin.read().split("\n"):
    # SPIR-V 1.2 has no freeze; of a value that is not poison it is the value.
    line = line.replace('!"llvm.loop.unroll.count", i32 1}', '!"llvm.loop.unroll.disable"}')
    line = re.sub(r"= freeze (\S+) (\S+)", r"= bitcast \1 \2 to \1", line)
    if body is None:
        out.append(line)
        if line.startswith("define "):
            body = []
    elif line == "}":
        out += order([b for b in body if b.strip()]) + [line]
        body = None
    else:
        body.append(line)
print("\n".join(out))
