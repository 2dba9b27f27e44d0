"""Versions of what is generated.  Records and cached libraries of another version are stale."""

#: Raise it when a kernel's code or its configuration changes: tests/kernels/test_version.py says so.  Times that
#: users measured are then measured anew.
KERNELS = 1
#: Raise it when the same kernels make another library: what build/ and relay/ put into it, or its format.  Libraries are
#: then built anew; measured times stay.
LIBRARIES = 1
