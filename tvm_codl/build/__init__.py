"""Compiles a partitioned network into one library, and checks it."""
