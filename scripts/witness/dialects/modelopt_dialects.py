"""Records nvidia-modelopt: its quantized tensors (qtensor) on the CPU, called like its exporter calls them."""

import warnings

import torch
from modelopt.torch.export.quant_utils import QUANTIZATION_FP8, QUANTIZATION_INT4_AWQ, QUANTIZATION_INT8_WO, to_quantized_weight
from modelopt.torch.quantization.qtensor import INT8QTensor, MXFP4QTensor, MXFP8QTensor, NVFP4QTensor
from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor
from modelopt.torch.quantization.utils import reduce_amax

import facts
import modelopt_models as models
from recorder import ORDINARY, Book, Dialect


def fp8(x):
    """As in the exporter: the scale is the calibrator's amax over 448, and to_quantized_weight returns the codes."""
    scale = reduce_amax(x).float() / 448.0
    codes = to_quantized_weight(x, scale, QUANTIZATION_FP8)
    values = FP8QTensor(x.shape, x.dtype, codes).dequantize(scale=scale)
    return {"codes": codes, "weight_scale": scale.reshape(1), "values": values}


def fp8_qtensor(x):
    q, scale = FP8QTensor.quantize(x)
    return {"codes": q._quantized_data, "scale": scale.reshape(1), "values": q.dequantize(scale=scale)}


def fp8_block(size):
    def ask(x):
        blocks = {-1: size[1], -2: size[0]}
        q, scale = FP8QTensor.quantize(x, block_sizes=blocks)
        return {"codes": q._quantized_data, "scale": scale, "values": q.dequantize(scale=scale, block_sizes=blocks)}

    return ask


def nvfp4(x):
    q, scale, second = NVFP4QTensor.quantize(x, 16)
    values = q.dequantize(scale=scale, double_scale=second, block_sizes={-1: 16})
    return {"codes": q._quantized_data, "weight_scale": scale, "weight_scale_2": second.reshape(1), "values": values}


def mxfp8(x):
    q, scale = MXFP8QTensor.quantize(x)
    return {"codes": q._quantized_data, "weight_scale": scale, "values": q.dequantize(scale=scale)}


def mxfp4(x):
    q, scale = MXFP4QTensor.quantize(x, 32)
    values = q.dequantize(scale=scale, block_sizes={-1: 32})
    return {"codes": q._quantized_data, "weight_scale": scale.reshape(x.shape[0], -1), "values": values}


def int8_row(x):
    q, scale = INT8QTensor.quantize(x, axis=0)
    return {"codes": q._quantized_data, "scale": scale, "values": q.dequantize(scale=scale)}


def int4_block(block):
    """As in the exporter, with scales of amax / 7. It packs rows in pairs, so an odd number of rows gets a row of zeros."""

    def ask(x):
        x = torch.nn.functional.pad(x, (0, 0, 0, x.shape[0] % 2))
        scale = reduce_amax(x.unflatten(-1, (-1, block)), -1).squeeze(-1).float() / 7
        return {"codes": to_quantized_weight(x, scale, QUANTIZATION_INT4_AWQ, block_size=block), "weight_scale": scale}

    return ask


ROWS = [
    ("modelopt-fp8", "reduce_amax(x).float() / 448; to_quantized_weight(x, scale, 'fp8'); FP8QTensor.dequantize", "e4m3", "tensor", fp8, None),
    ("modelopt-fp8-qtensor", "FP8QTensor.quantize(x), .dequantize", "e4m3", "tensor", fp8_qtensor, None),
    ("modelopt-fp8-block", "FP8QTensor.quantize(x, block_sizes={-1: 128, -2: 128}), .dequantize", "e4m3", [128, 128], fp8_block((128, 128)), fp8_block((1, 32))),
    ("modelopt-nvfp4", "NVFP4QTensor.quantize(x, 16), .dequantize", "e2m1", [1, 16], nvfp4, None),
    ("modelopt-mxfp8", "MXFP8QTensor.quantize(x), .dequantize", "e4m3", [1, 32], mxfp8, None),
    ("modelopt-mxfp4", "MXFP4QTensor.quantize(x, 32), .dequantize", "e2m1", [1, 32], mxfp4, None),
    ("modelopt-int8-row", "INT8QTensor.quantize(x, axis=0), .dequantize", "int8", "row", int8_row, None),
    ("modelopt-int4-block", "reduce_amax(x.unflatten(-1, (-1, 128)), -1).float() / 7; to_quantized_weight(x, scale, 'int4_awq', block_size=128)", "int4", [1, 128], int4_block(128), int4_block(32)),
]


def main():
    warnings.filterwarnings("ignore")
    book = Book("modelopt", "nvidia-modelopt")
    for name, function, elements, block, ask, sweep in ROWS:
        two_level = name == "modelopt-nvfp4"
        book.add(Dialect(
            name=name, function=function, elements=elements, block=block, ask=ask, ask_sweep=sweep,
            tensor_per_row=block == "tensor" or two_level, facts=facts.modelopt(name), model=models.model(name),
            sweep_options={"block": [1, 32]} if sweep else {},
            sweeps=["amax", "steps", "window"] if two_level else ["amax", "steps"],
            cases=ORDINARY,
        ))
    book.write()


if __name__ == "__main__":
    main()
