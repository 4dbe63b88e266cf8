"""Records FBGEMM's FP8 quantizers: the Python functions that it uses on a CPU. It has no dequantization on a CPU."""

import warnings

import torch
from fbgemm_gpu.experimental.gemm.triton_gemm import fp8_gemm

import facts
import fbgemm_models as models
from recorder import ORDINARY, Book, Dialect


def row(upper):
    def ask(x):
        codes, scale = fp8_gemm.quantize_fp8_row(x, scale_ub=None if upper is None else torch.tensor(upper))
        return {"codes": codes, "scale": scale}

    return ask


def block(rows, columns):
    def ask(x):
        codes, scale = fp8_gemm.quantize_fp8_block(x, rows, columns)
        return {"codes": codes, "scale": scale}

    return ask


def main():
    warnings.filterwarnings("ignore")
    book = Book("fbgemm", "fbgemm-gpu-genai")
    for name, upper in (("fbgemm-fp8", None), ("fbgemm-fp8-ub1200", 1200.0)):
        book.add(Dialect(
            name=name, function=f"quantize_fp8_row(x, scale_ub={upper})", elements="e4m3", block="row", ask=row(upper),
            facts=facts.fbgemm("row"), model=models.row(upper), cases=ORDINARY,
        ))
    book.add(Dialect(
        name="fbgemm-fp8-block", function="quantize_fp8_block(x, 128, 128)", elements="e4m3", block=[128, 128], ask=block(128, 128),
        ask_sweep=block(1, 32), sweep_options={"block": [1, 32]}, cases=ORDINARY, facts=facts.fbgemm("block"), model=models.block,
    ))
    book.write()


if __name__ == "__main__":
    main()
