"""The reference phone: a server of this machine."""
