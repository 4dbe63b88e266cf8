"""Records gguf-py: MXFP4 in both directions; of NVFP4 the scale conversion and the dequantization, because it has no more."""

import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.quants import NVFP4, dequantize, quantize

import facts
import gguf_models as models
from recorder import ORDINARY, Book, Dialect


def mxfp4(x):
    stored = quantize(x.numpy(), GGMLQuantizationType.MXFP4)
    values = dequantize(stored, GGMLQuantizationType.MXFP4)
    blocks = stored.reshape(x.shape[0], -1, 17)
    return {"codes": torch.from_numpy(blocks[..., 1:].reshape(x.shape[0], -1).copy()), "scale": torch.from_numpy(blocks[..., 0].copy()), "values": torch.from_numpy(values.astype(np.float32))}


def stored_mxfp4(x):
    return {"values": torch.from_numpy(dequantize(x.numpy(), GGMLQuantizationType.MXFP4).astype(np.float32))}


def nvfp4(x):
    """The e4m3 scale of each block's amax / 6, by the only part of the quantizer that gguf-py has."""
    amax = x.reshape(x.shape[0], -1, 16).abs().amax(-1)
    return {"scale": torch.from_numpy(NVFP4.fp32_to_ue4m3((amax / 6).numpy()).astype(np.uint8))}


def stored_nvfp4(x):
    return {"values": torch.from_numpy(dequantize(x.numpy(), GGMLQuantizationType.NVFP4).astype(np.float32))}


def either(ask, stored):
    return lambda x: (stored if x.dtype == torch.uint8 else ask)(x)


def main():
    book = Book("gguf", "gguf", beside=("numpy",))
    book.add(Dialect(
        name="gguf-mxfp4", function="gguf.quants.quantize(x, MXFP4), dequantize", elements="e2m1", block=[1, 32], ask=either(mxfp4, stored_mxfp4),
        dtypes=("f32",), stored=(4096, 17 * 4), facts=facts.gguf("mxfp4"), model=models.mxfp4,
    ))
    book.add(Dialect(
        name="gguf-nvfp4", function="gguf.quants.NVFP4.fp32_to_ue4m3(amax / 6); dequantize(bytes, NVFP4)", elements="e2m1", block=[1, 16], ask=either(nvfp4, stored_nvfp4),
        dtypes=("f32",), stored=(4096, 36 * 2), facts=facts.gguf("nvfp4"), model=models.nvfp4, cases=["normal", "outliers", "wide", "zeros", "tiny", "huge", "zero"],
        sweeps=["amax", "steps", "window"],
    ))
    book.write()


if __name__ == "__main__":
    main()
