"""Writes gguf-written-*.gguf with gguf-py's writer: the files that `lockstep convert --to gguf-...` must produce from `original`.

The package quantizes MXFP4, but not NVFP4. NVFP4 tensors have the codes and scales that ModelOpt wrote for the same weights
(conformance/vectors/checkpoints/modelopt-nvfp4), in the block layout of llama.cpp's convert_hf_to_gguf.py; the tensor scale is
`X.scale`. The packages are gguf==0.19.0 and numpy.
"""

import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, LlamaFileType, quantize
from gguf.constants import GGML_QUANT_VERSION

ROOT = Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "checkpoints"


def tensors_of(path):
    """The name, type, shape and bytes of each tensor of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, entry["dtype"], entry["shape"], np.frombuffer(data, np.uint8, end - begin, 8 + size + begin)


def wide(raw, shape):
    """bf16 as f32."""
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)


def linear(name, shape):
    return len(shape) == 2 and "_proj." in name


def nvfp4_blocks(codes, scales):
    """36 bytes for 64 elements: four scales, then 8 bytes of codes for each scale. Byte j of the 8 holds elements j and j + 8."""
    rows = codes.shape[0]
    elements = np.stack([codes & 15, codes >> 4], axis=-1).reshape(rows, -1, 16)
    halves = elements[..., :8] | (elements[..., 8:] << 4)
    return np.concatenate([scales.reshape(rows, -1, 4), halves.reshape(rows, -1, 32)], axis=-1).reshape(rows, -1)


def write(name, file_type, put):
    made = GGUFWriter(ROOT.parent / "gguf" / f"gguf-written-{name}.gguf", json.loads((ROOT / "original" / "config.json").read_text())["model_type"])
    made.add_file_type(file_type)
    made.add_quantization_version(GGML_QUANT_VERSION)
    for tensor, _, shape, raw in tensors_of(ROOT / "original" / "model.safetensors"):
        if not put(made, tensor, shape, raw):
            made.add_tensor(tensor, raw.reshape(*shape[:-1], -1), raw_dtype=Type.BF16)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def mxfp4(made, name, shape, raw):
    if not linear(name, shape):
        return False
    made.add_tensor(name, quantize(wide(raw, shape), Type.MXFP4), raw_dtype=Type.MXFP4)
    return True


def nvfp4(made, name, shape, raw):
    if not linear(name, shape) or shape[1] % 64:
        return False
    stored = {each: (size, data) for each, _, size, data in tensors_of(ROOT / "modelopt-nvfp4" / "model.safetensors")}
    codes, scales = (data.reshape(size) for size, data in (stored[name], stored[f"{name}_scale"]))
    made.add_tensor(name, nvfp4_blocks(codes, scales), raw_dtype=Type.NVFP4)
    made.add_tensor(name.replace(".weight", ".scale"), stored[f"{name}_scale_2"][1].view(np.float32))
    return True


def main():
    write("mxfp4", LlamaFileType.MOSTLY_MXFP4_MOE, mxfp4)
    write("nvfp4", LlamaFileType.MOSTLY_NVFP4, nvfp4)


if __name__ == "__main__":
    main()
