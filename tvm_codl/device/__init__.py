"""What a phone is, how to reach one, and the reference phone."""
