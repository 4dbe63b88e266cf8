"""Writes small checkpoints with the libraries' writers to conformance/vectors/checkpoints/NAME/, and witness.json to their parent
folder.

All checkpoints hold the same small Llama in bf16 (the folder `original`), quantized and saved by one library. witness.json holds
the versions, and for each weight its shape, its type and the SHA-256 of the values that the library dequantizes from its file.
The arguments select the checkpoints; default: all. The libraries have no writer for gpt-oss and FBGEMM on a CPU. Their codes come
from the libraries' quantizers or from random draws, and are saved with the names of the published models.
"""

import hashlib
import json
import shutil
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "checkpoints"
SEED = 20250
FUSED = (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj"))
RECORDERS = {}


def model():
    """A Llama with one layer, whose weights have a normal distribution with a few outliers."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=4, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=32, tie_word_embeddings=False, max_position_embeddings=64, architectures=["LlamaForCausalLM"],
    )
    made = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() == 2:
                weight.normal_(0, 0.04)
                weight.view(-1)[::211] *= 6
    return made


def linears(made):
    """The linear layers that are quantized, by name: all but lm_head."""
    return {name: each for name, each in made.named_modules() if isinstance(each, torch.nn.Linear) and name != "lm_head"}


def original():
    return {name: tensor.clone().contiguous() for name, tensor in model().state_dict().items()}


def digest(tensor):
    """The shape, type and SHA-256 of the bytes of a tensor."""
    bits = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "sha256": hashlib.sha256(bits).hexdigest()}


def folder(name):
    path = ROOT / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def clean(path):
    """Removes all files except those that describe tensors."""
    for each in path.iterdir():
        if each.suffix not in (".safetensors", ".json") or each.name in ("generation_config.json", "recipe.yaml"):
            each.unlink()


def config_of(**quantization):
    config = json.loads(model().config.to_json_string())
    return {**config, "quantization_config": quantization}


def save(name, tensors, config, metadata=None):
    path = folder(name)
    save_file({key: each.detach().contiguous() for key, each in tensors.items()}, path / "model.safetensors", metadata or {"format": "pt"})
    (path / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def recorder(package):
    def mark(function):
        RECORDERS[function.__name__.replace("_", "-")] = (package, function)
        return function

    return mark


def compressed(name, format, **arguments):
    """compressed-tensors: scales from its observers; tensors and configuration from ModelCompressor."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dialects"))
    from compressed_dialects import ends

    made = model()
    args = QuantizationArgs(symmetric=True, **arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=format)
    config = QuantizationConfig(config_groups={"group_0": scheme}, format=format, ignore=["lm_head"], quantization_status="frozen")
    apply_quantization_config(made, config)
    layers = linears(made)
    strategy = getattr(args.strategy, "value", args.strategy)
    globals_ = {}
    if strategy == "tensor_group":
        for each, layer in layers.items():
            group = next((g for g in FUSED if each.endswith(g)), (each,))
            prefix = each.removesuffix(next((g for g in group if each.endswith(g)), each))
            whole = torch.cat([layers[prefix + g].weight.flatten() for g in group]) if len(group) > 1 else layer.weight
            globals_[each] = generate_gparam(*torch.aminmax(whole))
    with torch.no_grad():
        for each, layer in layers.items():
            x = layer.weight
            low, high = ends(x, strategy, args.group_size, tuple(args.block_structure) if args.block_structure else None)
            scale, zero = calculate_qparams(low, high, args, global_scale=globals_.get(each))
            layer.weight_scale.data = scale
            if hasattr(layer, "weight_zero_point"):
                layer.weight_zero_point.data = zero
            if each in globals_:
                layer.weight_global_scale.data = globals_[each].reshape(1)
    compressor = ModelCompressor.from_pretrained_model(made)
    compressor.compress_model(made)
    path = folder(name)
    save_file({k: v.contiguous() for k, v in made.state_dict().items()}, path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps(json.loads(model().config.to_json_string())))
    compressor.update_config(path)
    compressor.decompress_model(made)
    return {f"{each}.weight": layer.weight for each, layer in linears(made).items()}


def ct(name, format, **arguments):
    RECORDERS[name] = ("compressed-tensors", lambda: compressed(name, format, **arguments))


ct("ct-fp8-tensor", "float-quantized", num_bits=8, type="float", strategy="tensor")
ct("ct-fp8-channel", "float-quantized", num_bits=8, type="float", strategy="channel")
ct("ct-fp8-block", "float-quantized", num_bits=8, type="float", strategy="block", block_structure=[16, 32])
ct("ct-nvfp4", "nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype=torch.float8_e4m3fn)
ct("ct-mxfp4", "mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8)
ct("ct-mxfp6", "mxfp6-pack-quantized", num_bits=6, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8)
ct("ct-mxfp8", "mxfp8-quantized", num_bits=8, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8)
ct("ct-int8-channel", "int-quantized", num_bits=8, type="int", strategy="channel")
ct("ct-int4-group", "pack-quantized", num_bits=4, type="int", strategy="group", group_size=32)


def modelopt(name, config):
    """ModelOpt: quantize and export_hf_checkpoint."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    made = model()
    tokens = torch.arange(16).reshape(1, 16) % 4
    made = mtq.quantize(made, config(mtq), lambda m: m(tokens))
    path = folder(name)
    export_hf_checkpoint(made, export_dir=path)
    clean(path)
    return {}


@recorder("nvidia-modelopt")
def modelopt_fp8():
    return modelopt("modelopt-fp8", lambda mtq: mtq.FP8_DEFAULT_CFG)


@recorder("nvidia-modelopt")
def modelopt_nvfp4():
    return modelopt("modelopt-nvfp4", lambda mtq: mtq.NVFP4_DEFAULT_CFG)


@recorder("nvidia-modelopt")
def modelopt_fp8_row():
    return modelopt("modelopt-fp8-row", lambda mtq: mtq.FP8_PER_CHANNEL_PER_TOKEN_CFG)


@recorder("nvidia-modelopt")
def modelopt_int8():
    return modelopt("modelopt-int8", lambda mtq: mtq.INT8_WEIGHT_ONLY_CFG)


@recorder("nvidia-modelopt")
def modelopt_mxfp4():
    return modelopt("modelopt-mxfp4", lambda mtq: mtq.MXFP4_DEFAULT_CFG)


def block_fp8(name, scale_fmt, size):
    """The converter of transformers for fine-grained FP8, applied to each tensor."""
    from types import SimpleNamespace

    from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

    quantizer = SimpleNamespace(quantization_config=SimpleNamespace(weight_block_size=size, scale_fmt=scale_fmt))
    tensors, values = {}, {}
    names = [f"{each}.weight" for each in linears(model())]
    for key, tensor in original().items():
        if key not in names:
            tensors[key] = tensor
            continue
        written = Fp8Quantize(quantizer).convert({key: tensor})
        tensors.update(written)
        values[key] = Fp8Dequantize(quantizer)._dequantize_one(written[key], written[f"{key}_scale_inv"], output_dtype=torch.float32)
    extra = {"scale_fmt": "ue8m0"} if scale_fmt == "ue8m0" else {}
    save(name, tensors, config_of(quant_method="fp8", activation_scheme="dynamic", weight_block_size=list(size), modules_to_not_convert=["lm_head"], **extra))
    return values


@recorder("transformers")
def transformers_fp8():
    return block_fp8("transformers-fp8", "float", (16, 32))


@recorder("transformers")
def transformers_ue8m0():
    return block_fp8("transformers-ue8m0", "ue8m0", (16, 32))


@recorder("transformers")
def gpt_oss():
    """Experts of gpt-oss: random blocks and scales; transformers computes the values, transposed."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    torch.manual_seed(SEED)
    tensors, values = {}, {}
    for key, rows in (("gate_up_proj", 48), ("down_proj", 32)):
        name = f"model.layers.0.mlp.experts.{key}"
        blocks = torch.randint(0, 256, (2, rows, 1, 16), dtype=torch.uint8)
        scales = torch.randint(118, 124, (2, rows, 1), dtype=torch.uint8)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales, f"{name}_bias": torch.zeros(2, rows, dtype=torch.bfloat16)}
        values[name] = convert_moe_packed_tensors(blocks, scales).transpose(1, 2)
    tensors["model.layers.0.self_attn.q_proj.weight"] = original()["model.layers.0.self_attn.q_proj.weight"]
    save("gpt-oss", tensors, {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]},
    })
    return values


@recorder("fbgemm-gpu-genai")
def fbgemm_fp8():
    """Llama's row-wise FP8, and experts of Llama 4. Their two projections have scales on different axes."""
    from fbgemm_gpu.experimental.gemm.triton_gemm import fp8_gemm

    tensors = original()
    for name in linears(model()):
        codes, scale = fp8_gemm.quantize_fp8_row(tensors[f"{name}.weight"])
        tensors |= {f"{name}.weight": codes, f"{name}.weight_scale": scale.reshape(-1, 1)}
    torch.manual_seed(SEED)
    for key, columns in (("gate_up_proj", 48), ("down_proj", 32)):
        weight = (torch.randn(2, columns, 24 if key == "down_proj" else 32) * 0.04).to(torch.bfloat16)
        pairs = [fp8_gemm.quantize_fp8_row(expert) for expert in weight]
        codes, scale = torch.stack([c.t() for c, _ in pairs]), torch.stack([s for _, s in pairs])
        name = f"model.layers.0.feed_forward.experts.{key}"
        tensors[name] = codes
        tensors[f"{name}_scale"] = scale.reshape(2, 1, columns) if key == "gate_up_proj" else scale.reshape(2, columns, 1)
    save("fbgemm-fp8", tensors, config_of(quant_method="fbgemm_fp8", activation_scale_ub=1200.0, modules_to_not_convert=["lm_head"]))
    return {}


def torchao(name, configuration):
    """torchao: quantize_, and flatten_tensor_state_dict for the file."""
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import quantize_

    made = model()
    quantize_(made, configuration(), filter_fn=lambda module, fqn: isinstance(module, torch.nn.Linear) and fqn != "lm_head")
    state = made.state_dict()
    data, metadata = flatten_tensor_state_dict(state)
    path = folder(name)
    save_file({key: each.detach().contiguous() for key, each in data.items()}, path / "model.safetensors", metadata)
    return {f"{each}.weight": state[f"{each}.weight"].dequantize() for each in linears(made)}


@recorder("torchao")
def torchao_fp8():
    from torchao.quantization import Float8WeightOnlyConfig

    return torchao("torchao-fp8", lambda: Float8WeightOnlyConfig(version=2))


@recorder("torchao")
def torchao_mxfp8():
    from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig
    from torchao.quantization.quantize_.common import KernelPreference

    return torchao("torchao-mxfp8", lambda: MXDynamicActivationMXWeightConfig(kernel_preference=KernelPreference.EMULATED))


@recorder("torchao")
def torchao_nvfp4():
    from torchao.prototype.mx_formats import NVFP4WeightOnlyConfig

    return torchao("torchao-nvfp4", lambda: NVFP4WeightOnlyConfig())


def main():
    warnings.filterwarnings("ignore")
    ROOT.mkdir(parents=True, exist_ok=True)
    save_path = folder("original")
    save_file(original(), save_path / "model.safetensors", {"format": "pt"})
    (save_path / "config.json").write_text(json.dumps(json.loads(model().config.to_json_string()), indent=1, sort_keys=True) + "\n")
    record = ROOT / "witness.json"
    known = json.loads(record.read_text()) if record.exists() else {}
    failed = []
    for name in sys.argv[1:] or RECORDERS:
        package, write = RECORDERS[name]
        try:
            values = write()
        except Exception as error:
            failed.append(f"{name}: {error!r}")
            continue
        known[name] = {"package": package, "version": version(package), "torch": torch.__version__, "values": {key: digest(each) for key, each in values.items()}}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known))
    record.write_text(f"{{\n{lines}\n}}\n")
    for line in failed:
        print(f"witness: {line}", file=sys.stderr)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
