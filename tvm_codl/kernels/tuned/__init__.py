"""Tuning records that ship with the package: AutoTVM JSON-lines for the reference phone's two processors."""
