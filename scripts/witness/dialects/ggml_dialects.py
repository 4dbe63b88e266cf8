"""Records ggml's NVFP4 with the C functions of the shared library of libggml-python. gguf-py cannot quantize to NVFP4."""

import ctypes
from pathlib import Path

import libggml
import numpy as np
import torch

import facts
import gguf_models as models
from recorder import Book, Dialect

LIBRARY = ctypes.CDLL(str(Path(libggml.__file__).parent / "lib64" / "libggml-base.so"))


def call(name, source, target, count):
    function = getattr(LIBRARY, name)
    function.restype = None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function(source.ctypes.data, target.ctypes.data, count)
    return target


def nvfp4(x):
    values = np.ascontiguousarray(x.numpy())
    rows, blocks = values.shape[0], values.size // 64
    stored = call("quantize_row_nvfp4_ref", values, np.empty((blocks, 36), dtype=np.uint8), values.size)
    read = call("dequantize_row_nvfp4", stored, np.empty(values.shape, dtype=np.float32), values.size)
    codes, scale = stored[:, 4:].reshape(rows, -1), stored[:, :4].reshape(rows, -1)
    return {"codes": torch.from_numpy(codes.copy()), "scale": torch.from_numpy(scale.copy()), "values": torch.from_numpy(read)}


def main():
    book = Book("ggml", "libggml-python", beside=("numpy",))
    book.add(Dialect(
        name="ggml-nvfp4", function="quantize_row_nvfp4_ref, dequantize_row_nvfp4", elements="e2m1", block=[1, 16], ask=nvfp4, dtypes=("f32",), columns=64,
        facts=facts.gguf("ggml-nvfp4"), model=models.written_nvfp4, cases=["normal", "outliers", "wide", "zeros", "tiny", "huge", "zero"], sweeps=["amax", "steps", "window"],
    ))
    book.write()


if __name__ == "__main__":
    main()
