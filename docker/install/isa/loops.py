"""SPIR-V as text: puts the LoopMerge of a loop of one block, which the translator writes twice and too early, before its branch."""

import re
import sys

held = ""
for line in sys.stdin:
    if re.match(r"\d+ LoopMerge ", line):
        held = line
        continue
    if held and re.match(r"\d+ Branch(Conditional)? ", line):
        sys.stdout.write(held)
        held = ""
    sys.stdout.write(line)
