"""Computes models of transformers in f64 throughout, including the parts that their modules compute in f32 for every dtype."""

import contextlib
import sys

import torch


class Double:
    """The module torch with f64 in place of f32."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def doubles():
    """Replaces f32 by f64 in the modules of transformers."""
    double, own = Double(), torch.Tensor.float
    named = [m for n, m in sys.modules.items() if n.startswith("transformers.") and getattr(m, "torch", None) is torch]
    for module in named:
        module.torch = double
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.Tensor.float = own
        for module in named:
            module.torch = torch
