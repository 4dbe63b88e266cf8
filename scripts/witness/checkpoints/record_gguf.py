"""Writes GGUF files with gguf-py's writer, and gguf.json with the version and the dequantized values of each tensor.

`gguf-model.gguf` is a small model with weights quantized by the package. The package cannot quantize NVFP4, so NVFP4 tensors have
random codes. `gguf-codes.gguf` has every scale byte with every code in both halves of a byte. `gguf-packed.gguf` has every other
packed type. The package is gguf==0.19.0.
"""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFWriter, dequantize, quantize
from gguf.quants import NVFP4

ROOT = Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "gguf"
SEED = 20250


def writer(path, alignment=None):
    made = GGUFWriter(path, "llama")
    if alignment is not None:
        made.add_custom_alignment(alignment)
    return made


def finish(made):
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def metadata(made):
    """A metadata value of every type, and arrays."""
    made.add_name("small")
    for key, add, value in (
        ("u8", made.add_uint8, 255), ("i8", made.add_int8, -128), ("u16", made.add_uint16, 65535), ("i16", made.add_int16, -32768),
        ("u32", made.add_uint32, 2**32 - 1), ("i32", made.add_int32, -(2**31)), ("f32", made.add_float32, 0.5), ("u64", made.add_uint64, 2**64 - 1),
        ("i64", made.add_int64, -(2**40)), ("f64", made.add_float64, 0.1), ("bool", made.add_bool, True), ("text", made.add_string, "größer"),
        ("numbers", made.add_array, [1, 2, 3]), ("texts", made.add_array, ["a", "bc", ""]),
    ):
        add(f"test.{key}", value)


def nvfp4(random, rows, columns):
    """Blocks with random codes, whose scales are amax / 6 in the package's conversion."""
    scales = NVFP4.fp32_to_ue4m3((random.uniform(0.002, 0.02, (rows, columns // 64, 4))).astype(np.float32))
    codes = random.integers(0, 256, (rows, columns // 64, 32), dtype=np.uint8)
    return np.concatenate([scales, codes], axis=-1).reshape(rows, -1)


def model(path):
    random = np.random.default_rng(SEED)
    normal = lambda *shape: (random.standard_normal(shape) * 0.04).astype(np.float32)
    made = writer(path, alignment=64)
    metadata(made)
    made.add_tensor("token_embd.weight", normal(4, 64).astype(np.float16))
    made.add_tensor("output_norm.weight", normal(64))
    made.add_tensor("output.weight", quantize(normal(4, 64), Type.BF16), raw_dtype=Type.BF16)
    for name, shape in (("blk.0.attn_q.weight", (32, 64)), ("blk.0.ffn_up_exps.weight", (2, 8, 96))):
        made.add_tensor(name, quantize(normal(*shape), Type.MXFP4), raw_dtype=Type.MXFP4)
    for name in ("blk.0.ffn_up.weight", "blk.0.ffn_down.weight"):
        made.add_tensor(name, nvfp4(random, 16, 128), raw_dtype=Type.NVFP4)
    made.add_tensor("blk.0.ffn_down.scale", np.array([0.3], dtype=np.float32))
    made.add_tensor("blk.0.ffn_down.input_scale", np.array([1.7], dtype=np.float32))
    finish(made)


def codes(path):
    """For each scale byte, all codes in both halves: byte j of sixteen is j + 16 * ((j + scale) mod 16)."""
    scale = np.arange(256, dtype=np.uint8)
    j = np.arange(16, dtype=np.uint8)
    body = j | ((j + scale[:, None]) & 15) << 4
    made = writer(path)
    made.add_tensor("mxfp4", np.concatenate([scale[:, None], body], axis=1).astype(np.uint8).reshape(16, -1), raw_dtype=Type.MXFP4)
    blocks = np.concatenate([scale.repeat(2).reshape(128, 4), body.reshape(128, 32)], axis=1)
    made.add_tensor("nvfp4", blocks.astype(np.uint8).reshape(2, 8, -1), raw_dtype=Type.NVFP4)
    made.add_tensor("row", np.concatenate([[127], body[3]]).astype(np.uint8), raw_dtype=Type.MXFP4)
    finish(made)


PACKED = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S",
    "IQ1_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0",
)


def drawn(random, kind, rows):
    """Blocks of random bytes with finite values."""
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = np.empty((rows * 256 // elements, size), dtype=np.uint8)
    for block in blocks:
        while True:
            block[:] = random.integers(0, 256, size, dtype=np.uint8)
            with np.errstate(all="ignore"):
                if np.isfinite(dequantize(block, kind)).all():
                    break
    return blocks.reshape(rows, -1)


def packed(path):
    """A tensor of each other type that the package dequantizes. The package quantizes it if it can; otherwise its bytes are
    random.
    """
    random = np.random.default_rng(SEED)
    made = writer(path)
    for name in PACKED:
        kind = Type[name]
        try:
            data = quantize((random.standard_normal((3, 256)) * 0.04).astype(np.float32), kind)
        except NotImplementedError:
            data = drawn(random, kind, 3)
        made.add_tensor(f"blk.0.{name.lower()}.weight", data, raw_dtype=kind)
    made.add_tensor("output_norm.weight", np.ones(256, dtype=np.float32))
    finish(made)


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def read(path):
    """The shape and type of each tensor in the package, and its values as f32 and, rounded by the package, as bf16."""
    told = {}
    for each in GGUFReader(path).tensors:
        with np.errstate(all="ignore"):
            values = dequantize(each.data, each.tensor_type).astype(np.float32)
            told[each.name] = {
                "type": each.tensor_type.name, "shape": list(values.shape), "f32": digest(values),
                "bf16": digest(quantize(values, Type.BF16)), "bytes": digest(each.data),
            }
    return told


def main():
    files = {}
    for name, make in (("gguf-model", model), ("gguf-codes", codes), ("gguf-packed", packed)):
        path = ROOT / f"{name}.gguf"
        make(path)
        files[name] = read(path)
    told = {"package": "gguf", "version": version("gguf"), "numpy": np.__version__, "files": files}
    (ROOT / "gguf.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
