"""Tests of the kernels' code, which need TVM."""
