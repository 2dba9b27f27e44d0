"""ONNX, or a Relay module → Relay in NHWC, and the networks that ship with the package."""
