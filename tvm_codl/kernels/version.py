"""Versions of what is generated.  Records and cached libraries of another version are stale."""

#: Raise it when a kernel's code or its configuration changes, which tests/kernels/test_version.py notices, or the code
#: of a piece of an operator (relay/piece.py).  Users' measured times are stale then.
KERNELS = 23
#: Raise it when build/ or relay/ make another library of the same kernels, or its format changes.  Libraries are built anew
#: then; measured times stay.
LIBRARIES = 7
