"""Records the block FP8 converter of transformers, which writes weight_scale_inv, and its reader of gpt-oss's MXFP4."""

import warnings
from types import SimpleNamespace

from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import deepseek_models as models
import facts
from recorder import ORDINARY, Book, Dialect


def transformers(scale_fmt, size):
    quantizer = SimpleNamespace(quantization_config=SimpleNamespace(weight_block_size=size, scale_fmt=scale_fmt))
    writer, reader = Fp8Quantize(quantizer), Fp8Dequantize(quantizer)

    def ask(x):
        written = writer.convert({"a.weight": x})
        if "a.weight_scale_inv" not in written:
            return {"codes": written["a.weight"]}
        codes, scale = written["a.weight"], written["a.weight_scale_inv"]
        values = reader._dequantize_one(codes, scale, output_dtype=x.dtype)
        return {"codes": codes, "weight_scale_inv": scale, "values": values}

    return ask


def gptoss(x):
    """Each 17 bytes are a scale and a block; all rows belong to one expert. The result is transposed: [K, N]."""
    blocks = x.reshape(1, x.shape[0], -1, 17)
    values = convert_moe_packed_tensors(blocks[..., 1:].contiguous(), blocks[..., 0].contiguous())
    return {"values": values[0].t()}


def main():
    warnings.filterwarnings("ignore")
    book = Book("transformers", "transformers")
    for scale_fmt in ("float", "ue8m0"):
        book.add(Dialect(
            name="transformers-ue8m0" if scale_fmt == "ue8m0" else "transformers-fp8-block",
            function=f"Fp8Quantize(weight_block_size=(128, 128), scale_fmt='{scale_fmt}').convert, Fp8Dequantize._dequantize_one", elements="e4m3", block=[128, 128],
            ask=transformers(scale_fmt, (128, 128)), ask_sweep=transformers(scale_fmt, (1, 32)), sweep_options={"weight_block_size": [1, 32]},
            cases=[case for case in ORDINARY if case not in ("zero", "ragged")], facts=facts.deepseek("transformers", scale_fmt == "ue8m0"), model=models.transformers(scale_fmt),
        ))
    book.add(Dialect(
        name="gptoss-mxfp4", function="integrations.mxfp4.convert_moe_packed_tensors(blocks, scales)", elements="e2m1", block=[1, 32], ask=gptoss,
        dtypes=(), stored=(4096, 17 * 4), facts=facts.gptoss(), model=models.gptoss,
    ))
    book.write()


if __name__ == "__main__":
    main()
