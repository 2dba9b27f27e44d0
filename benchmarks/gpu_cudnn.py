"""PyTorch's convolutions (cuDNN, cuBLAS) where torch with CUDA is installed: float32 without TF32, in a CUDA graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from gpu_rows import Convolution

#: As many runs make one graph as last this long, and one sample replays it until it lasts that long.
GRAPH_MS, SAMPLE_MS = 1.0, 20.0
MOST_RUNS, WARM_UPS = 200, 5


def torch_with_cuda() -> Any | None:
    """The module ``torch``, set to full float32; None where it is not installed or has no GPU."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    return torch


class CudnnConvolution:
    """A convolution in NCHW as a CUDA graph of many runs; :meth:`sample` times it."""

    def __init__(self, torch: Any, c: Convolution) -> None:
        self._torch = torch
        if c.dense:
            x, w = torch.randn(c.batch, c.channels_in), torch.randn(c.channels_out, c.channels_in)
        else:
            x = torch.randn(c.batch, c.channels_in, c.height, c.width)
            w = torch.randn(c.channels_out, c.channels_in // c.groups, *c.kernel)
        x, w = x.cuda(), w.cuda()
        top, left, bottom, right = c.pad
        functional = torch.nn.functional
        if c.dense:
            self._run = lambda: functional.linear(x, w)
        elif (top, left) == (bottom, right):
            self._run = lambda: functional.conv2d(x, w, None, c.stride, (top, left), c.dilation, c.groups)
        else:  # cuDNN pads both sides alike
            padded = functional.pad(x, (left, right, top, bottom))
            self._run = lambda: functional.conv2d(padded, w, None, c.stride, 0, c.dilation, c.groups)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self._run()
            side.synchronize()
            once = self._elapsed(self._run)
        torch.cuda.current_stream().wait_stream(side)
        self.runs = int(np.clip(GRAPH_MS / once, 1, MOST_RUNS))
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for _ in range(self.runs):
                self._run()
        self._graph.replay()
        torch.cuda.synchronize()
        self._replays = int(np.clip(SAMPLE_MS / self._elapsed(self._graph.replay), 1, 1000))

    def sample(self) -> float:
        """ms of one run between two events."""

        def replay() -> None:
            for _ in range(self._replays):
                self._graph.replay()

        return self._elapsed(replay) / (self._replays * self.runs)

    def _elapsed(self, work: Any) -> float:
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return max(float(start.elapsed_time(end)), 1e-4)
