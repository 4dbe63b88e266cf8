"""Low-precision arithmetic to the bit: quantizers, casts and GEMMs whose results are defined, and tests of kernels.

    import numpy as np, lockstep
    q = lockstep.quantize(np.random.randn(32, 64).astype(np.float32), "mxfp8")
    q.rowwise.data, q.rowwise.scale_inv   # float8_e4m3fn [32, 64] and float8_e8m0fnu [32, 2]
    q.dequantize()

Everything is computed by the reference of Lockstep (https://www.npmjs.com/package/lockstep), which runs in a Node process that
this module starts when it is first needed. docs/python.md has more.
"""

from ._arrays import to_torch
from ._errors import LockstepError
from .answers import Difference, Explanation, Identification, diff, explain, explain_gemm, identify
from .kernels import Agreement, KernelMismatch, assert_kernel
from .models import ComparedModel, Generation, Perplexity, generate, perplexity
from .operations import (
    Comparison,
    Copy,
    Product,
    QuantizedTensor,
    compare,
    decode,
    dequantize,
    encode,
    gemm,
    info,
    quantize,
)

__all__ = [
    "Agreement",
    "ComparedModel",
    "Comparison",
    "Copy",
    "Difference",
    "Explanation",
    "Generation",
    "Identification",
    "KernelMismatch",
    "LockstepError",
    "Perplexity",
    "Product",
    "QuantizedTensor",
    "assert_kernel",
    "compare",
    "decode",
    "dequantize",
    "diff",
    "encode",
    "explain",
    "explain_gemm",
    "gemm",
    "generate",
    "identify",
    "info",
    "perplexity",
    "quantize",
    "to_torch",
]
