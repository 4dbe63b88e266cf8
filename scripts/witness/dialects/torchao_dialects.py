"""Records torchao's MX, NVFP4 and float8 quantizers."""

import warnings

import numpy as np
import torch
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import MXTensor, to_mx, to_dtype
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale
from torchao.quantization.granularity import PerRow, PerTensor
from torchao.quantization.quantize_.workflows.float8.float8_tensor import Float8Tensor

import facts
import torchao_models as models
from recorder import Book, Dialect

ELEMENTS = {
    "e4m3": ("mxfp8", torch.float8_e4m3fn), "e5m2": ("mxfp8-e5m2", torch.float8_e5m2), "e2m3": ("mxfp6-e2m3", "fp6_e2m3"),
    "e3m2": ("mxfp6-e3m2", "fp6_e3m2"), "e2m1": ("mxfp4", torch.float4_e2m1fn_x2),
}


def mx(elements, mode):
    family, dtype = ELEMENTS[elements]

    def ask(x):
        scale, codes = to_mx(x, dtype, 32, scaling_mode=mode)
        values = to_dtype(codes, scale.reshape(-1), dtype, 32, x.dtype)
        return {"codes": codes.reshape(x.shape[0], -1), "scale": scale, "values": values}

    rule = mode.value
    return Dialect(
        name=f"torchao-{family}-{rule}",
        function=f"torchao.prototype.mx_formats.mx_tensor.to_mx(x, {dtype}, 32, ScaleCalculationMode.{mode.name}), to_dtype",
        elements=elements, block=[1, 32], ask=ask, facts=facts.torchao_mx(elements, rule), model=models.mx_model(elements, rule),
    )


def nvfp4(two_level):
    def ask(x):
        scale = per_tensor_amax_to_scale(torch.max(torch.abs(x))) if two_level else None
        q = NVFP4Tensor.to_nvfp4(x, per_tensor_scale=scale)
        out = {"codes": q.qdata, "scale": q.scale}
        if two_level:
            out["per_tensor_scale"] = scale.reshape(1)
        return {**out, "values": q.dequantize(x.dtype)}

    return Dialect(
        name="torchao-nvfp4-two-level" if two_level else "torchao-nvfp4",
        function="NVFP4Tensor.to_nvfp4(x" + (", per_tensor_scale=per_tensor_amax_to_scale(max(abs(x))))" if two_level else ")") + ", .dequantize(x.dtype)",
        elements="e2m1", block=[1, 16], ask=ask, tensor_per_row=two_level, facts=facts.torchao_nvfp4(two_level),
        sweeps=["amax", "steps", "window"], model=models.nvfp4_model(two_level),
    )


def fp8(granularity, dtype):
    rows = isinstance(granularity, PerRow)

    def ask(x):
        q = Float8Tensor.from_hp(x, dtype, granularity=granularity)
        return {"codes": q.qdata, "scale": q.scale, "values": q.dequantize()}

    elements = "e4m3" if dtype == torch.float8_e4m3fn else "e5m2"
    name = "torchao-fp8-" + ("row" if rows else "tensor")
    return Dialect(
        name=name, function=f"Float8Tensor.from_hp(x, {dtype}, {'PerRow' if rows else 'PerTensor'}()), .dequantize()", elements=elements,
        block="row" if rows else "tensor", ask=ask, tensor_per_row=not rows, facts=facts.torchao_fp8(rows), model=models.fp8_model(rows),
    )


def main():
    warnings.filterwarnings("ignore")
    book = Book("torchao", "torchao")
    for elements in ELEMENTS:
        for mode in (ScaleCalculationMode.FLOOR, ScaleCalculationMode.RCEIL, ScaleCalculationMode.CEIL, ScaleCalculationMode.EVEN):
            book.add(mx(elements, mode))
    for two_level in (False, True):
        book.add(nvfp4(two_level))
    for granularity in (PerTensor(), PerRow()):
        book.add(fp8(granularity, torch.float8_e4m3fn))
    book.write()


if __name__ == "__main__":
    main()
