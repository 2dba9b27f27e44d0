"""Phones: their facts, sessions on them, and the reference phone."""
