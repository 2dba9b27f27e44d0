"""The choices that a kernel's loops are made of: vectors, register tiles, strips, padding.  Imports no TVM.

Each is made here once: the schedules ask with the integers of one kernel, the cost model with arrays of many.
"""
