"""Tuning kernels with AutoTVM: building and timing many configurations at once, and what to try next."""
