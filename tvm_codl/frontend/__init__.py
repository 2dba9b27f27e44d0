"""ONNX → Relay in NHWC, and the networks that ship with the package."""
