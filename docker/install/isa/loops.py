"""Puts the LoopMerge of a loop of one block, which the translator writes twice and too early, before its branch (SPIR-V as text)."""
import re, sys

held = None
for line in sys.stdin:
    if re.match(r"\d+ LoopMerge ", line):
        held = line
        continue
    if held and re.match(r"\d+ Branch(Conditional)? ", line):
        sys.stdout.write(held)
        held = None
    sys.stdout.write(line)
