"""Loads checkpoints that `lockstep convert` wrote with the libraries of their formats, and records the values that these read.

The script draws a small Llama (`draw`; conformance/tests/checkpoints/convert/write/library-values.test.ts draws the same
weights). It converts the model to every form, and some forms to others. conformance/vectors/checkpoints/loaded.json gets the
versions, and for each weight the SHA-256 of the library's values in bf16. `differing` counts the values that differ from
`lockstep convert --to bf16`. The arguments select the conversions, as TARGET or SOURCE:TARGET; default: all. The script needs a
build, and the packages of ../dialects/record_all.sh.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "conformance" / "vectors" / "checkpoints" / "loaded.json"
HIDDEN, WIDE, VOCABULARY = 128, 256, 8
LAYER = "model.layers.0."
SHAPES = {
    "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
    **{f"{LAYER}self_attn.{name}_proj.weight": (HIDDEN, HIDDEN) for name in "qkvo"},
    f"{LAYER}mlp.gate_proj.weight": (WIDE, HIDDEN),
    f"{LAYER}mlp.up_proj.weight": (WIDE, HIDDEN),
    f"{LAYER}mlp.down_proj.weight": (HIDDEN, WIDE),
    f"{LAYER}input_layernorm.weight": (HIDDEN,),
    f"{LAYER}post_attention_layernorm.weight": (HIDDEN,),
    "model.norm.weight": (HIDDEN,),
    "lm_head.weight": (VOCABULARY, HIDDEN),
}
LINEAR = [name for name in SHAPES if "_proj." in name]
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
    "intermediate_size": WIDE, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 128,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "dtype": "bfloat16",
}
MODES = ("floor", "rceil", "ceil", "even")
TARGETS = [
    "ct-fp8-tensor", "ct-fp8-channel", "ct-int8-channel", "ct-fp8-block", "ct-mxfp8", "ct-mxfp6", "ct-mxfp4", "ct-nvfp4",
    "modelopt-fp8", "modelopt-fp8-block", "modelopt-int8-row", "modelopt-mxfp8", "modelopt-mxfp4", "modelopt-nvfp4",
    "deepseek-fp8-block", "deepseek-ue8m0", "transformers-fp8-block", *(f"torchao-mxfp8-{mode}" for mode in MODES),
    *(f"torchao-mxfp4-{mode}" for mode in MODES), "torchao-nvfp4", "torchao-nvfp4-two-level", "torchao-fp8-tensor", "torchao-fp8-row", "fbgemm-fp8",
    "gguf-mxfp4", "gguf-nvfp4",
]
PAIRS = [
    "modelopt-nvfp4:ct-nvfp4", "ct-nvfp4:modelopt-nvfp4", "torchao-nvfp4-two-level:ct-nvfp4", "ct-mxfp4:torchao-mxfp4-rceil",
    "torchao-mxfp8-floor:ct-mxfp8", "ct-mxfp4:ct-nvfp4", "modelopt-fp8:ct-fp8-tensor", "ct-fp8-tensor:deepseek-fp8-block",
    "modelopt-nvfp4:ct-fp8-block", "deepseek-fp8-block:torchao-nvfp4-two-level", "ct-mxfp4:gguf-mxfp4", "modelopt-nvfp4:gguf-nvfp4",
    "ct-nvfp4:gguf-nvfp4", "ct-mxfp4:gguf-nvfp4", "modelopt-fp8:ct-fp8-channel", "torchao-fp8-row:fbgemm-fp8", "fbgemm-fp8:torchao-fp8-row",
    "ct-int8-channel:modelopt-int8-row",
]


def draw(index, shape):
    """The elements of tensor `index` in bf16: hashes of their positions, with different magnitudes."""
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    i = numpy.arange(shape[0] * shape[1], dtype=numpy.uint64)
    mask = numpy.uint64(0xFFFFFFFF)
    h = (i * numpy.uint64(2654435761) + numpy.uint64((index + 1) * 2654419969)) & mask
    h = ((h ^ (h >> numpy.uint64(15))) * numpy.uint64(2246822519)) & mask
    h ^= h >> numpy.uint64(13)
    values = (h.astype(numpy.float64) / 2**32 - 0.5) * 2.0 ** ((i % numpy.uint64(5)).astype(numpy.float64) - 4)
    return torch.from_numpy(values.astype(numpy.float32)).to(torch.bfloat16).reshape(shape)


def original(folder):
    folder.mkdir()
    save_file({name: draw(at, shape) for at, (name, shape) in enumerate(SHAPES.items())}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))


def convert(source, target, to):
    subprocess.run(["node", ROOT / "dist/src/cli/bin.js", "convert", source, "-o", target, "--to", to, "--quiet"], check=True)


def by_transformers(folder, **settings):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **settings)
    weights = {name: model.get_submodule(name.removesuffix(".weight")).weight for name in LINEAR}
    return {name: (each.dequantize() if type(each) is not torch.nn.Parameter else each).detach() for name, each in weights.items()}


def compressed(folder):
    from transformers import CompressedTensorsConfig

    return by_transformers(folder, quantization_config=CompressedTensorsConfig(dequantize=True))


def fine_grained(folder):
    from transformers import FineGrainedFP8Config

    return by_transformers(folder, quantization_config=FineGrainedFP8Config(dequantize=True))


def modelopt(folder):
    """Dequantizes with ModelOpt's tensor classes, because no loader of its checkpoints runs on a CPU."""
    from modelopt.torch.quantization.qtensor import FP8QTensor, INT8QTensor, MXFP4QTensor, MXFP8QTensor, NVFP4QTensor

    tensors, values = load_file(folder / "model.safetensors"), {}
    for name in LINEAR:
        codes, scale, scale2 = tensors[name], tensors[f"{name}_scale"], tensors.get(f"{name}_scale_2")
        size = torch.Size(SHAPES[name])
        if scale2 is not None:
            values[name] = NVFP4QTensor(size, torch.bfloat16, codes).dequantize(
                scale=scale, double_scale=scale2, block_sizes={-1: 16}, dtype=torch.bfloat16)
        elif codes.dtype == torch.uint8:
            values[name] = MXFP4QTensor(size, torch.bfloat16, codes).dequantize(scale=scale.reshape(-1, 1), block_sizes={-1: 32}, dtype=torch.bfloat16)
        elif codes.dtype == torch.int8:
            values[name] = INT8QTensor(size, torch.bfloat16, codes).dequantize(scale=scale.reshape(-1, 1), dtype=torch.bfloat16)
        elif scale.dim() == 4:
            values[name] = FP8QTensor(size, torch.bfloat16, codes).dequantize(
                scale=scale.reshape(scale.shape[0], -1), block_sizes={-1: 128, -2: 128}, dtype=torch.bfloat16)
        elif scale.dtype == torch.uint8:
            values[name] = MXFP8QTensor(size, torch.bfloat16, codes).dequantize(scale=scale, dtype=torch.bfloat16)
        else:
            values[name] = FP8QTensor(size, torch.bfloat16, codes).dequantize(scale=scale, block_sizes={}, dtype=torch.bfloat16)
    return values


def fbgemm(folder):
    """The weights in the layers of transformers, loaded without its check for a GPU, and dequantized in f32."""
    from transformers import AutoModelForCausalLM
    from transformers.quantizers.quantizer_fbgemm_fp8 import FbgemmFp8HfQuantizer

    FbgemmFp8HfQuantizer.validate_environment = lambda *_, **__: None
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    layers = {name: model.get_submodule(name.removesuffix(".weight")) for name in LINEAR}
    return {name: (each.weight.to(torch.float32) * each.weight_scale).detach() for name, each in layers.items()}


def gguf(folder):
    """The values of gguf-py, multiplied by the tensor scale if there is one. llama.cpp multiplies products by this scale."""
    from gguf import GGUFReader, dequantize

    tensors = {each.name: torch.from_numpy(dequantize(each.data, each.tensor_type).copy()) for each in GGUFReader(folder / "model.gguf").tensors}
    return {name: tensors[name] * tensors.get(name.replace(".weight", ".scale"), torch.ones(1)) for name in LINEAR}


LOADERS = {
    "ct": (compressed, ("transformers", "compressed-tensors")),
    "deepseek": (fine_grained, ("transformers",)),
    "transformers": (fine_grained, ("transformers",)),
    "torchao": (by_transformers, ("transformers", "torchao")),
    "modelopt": (modelopt, ("nvidia-modelopt",)),
    "fbgemm": (fbgemm, ("transformers",)),
    "gguf": (gguf, ("gguf",)),
}


def digest(tensor):
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def record(work, chain):
    path = work / "original"
    for to in chain.split(":"):
        path, source = work / f"{path.name}-{to}", path
        if not path.exists():
            convert(source, path, to)
    load, packages = LOADERS[to.split("-")[0]]
    values = {name: each.to(torch.bfloat16) for name, each in load(path).items()}
    wide = work / f"{path.name}-bf16"
    convert(path, wide, "bf16")
    ours = load_file(wide / "model.safetensors")
    differing = sum(int((each != ours[name]).sum()) for name, each in values.items())
    return {
        "packages": list(packages), "differing": differing,
        "sha256": {name: digest(each) for name, each in values.items()},
    }


def main():
    warnings.filterwarnings("ignore")
    before = json.loads(RECORD.read_text()) if RECORD.exists() else {"versions": {}, "loaded": {}}
    known, used = before["loaded"], {"torch", "safetensors"}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        original(work / "original")
        for chain in sys.argv[1:] or [*TARGETS, *PAIRS]:
            try:
                known[chain] = record(work, chain)
                used.update(known[chain]["packages"])
            except Exception as error:
                failed += 1
                print(f"witness: {chain}: {error!r}", file=sys.stderr)
                continue
            print(f"{chain}: {known[chain]['differing']} differing", file=sys.stderr)
    lines = ",\n".join(f"{json.dumps(chain)}: {json.dumps(known[chain])}" for chain in sorted(known))
    versions = dict(sorted({**before["versions"], **{package: version(package) for package in used}}.items()))
    RECORD.write_text(f'{{"versions": {json.dumps(versions)},\n"loaded": {{\n{lines}\n}}}}\n')
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
