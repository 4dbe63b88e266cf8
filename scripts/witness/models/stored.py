"""Writes weights of a folder in the quantized form of the published models."""

import json

import torch
from safetensors.torch import load_file, save_file

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
BLOCK = 32


def rewrite(path, tensors, quantization):
    save_file({name: each.contiguous() for name, each in tensors.items()}, path / "model.safetensors", {"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = quantization
    (path / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def mxfp4_experts(path):
    """gpt-oss: experts [E, in, out] as blocks [E, out, in / 32, 16] of E2M1 codes, the even column in the low bits, and E8M0 scales."""
    tensors = load_file(path / "model.safetensors")
    for name in [each for each in tensors if each.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        weight = tensors.pop(name).float().transpose(1, 2).contiguous()
        blocks = weight.view(*weight.shape[:-1], -1, BLOCK)
        exponent = torch.floor(torch.log2(blocks.abs().amax(-1, keepdim=True))) - 2
        scaled = blocks / torch.exp2(exponent)
        codes = (scaled.abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (scaled < 0)
        tensors[f"{name}_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
        tensors[f"{name}_scales"] = (exponent[..., 0] + 127).to(torch.uint8)
    rewrite(path, tensors, {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
    })


def fp8_blocks(path):
    """DeepSeek: linear weights except lm_head and the router as E4M3 codes with an f32 scale for each tile of 32 x 32 (published:
    128 x 128).
    """
    tensors = load_file(path / "model.safetensors")
    for name in [each for each in tensors if each.endswith("_proj.weight") or "_with_mqa.weight" in each]:
        weight = tensors[name].float()
        rows, columns = weight.shape
        padded = torch.zeros(-(-rows // BLOCK) * BLOCK, -(-columns // BLOCK) * BLOCK)
        padded[:rows, :columns] = weight
        tiles = padded.view(padded.shape[0] // BLOCK, BLOCK, -1, BLOCK).transpose(1, 2)
        scale = tiles.abs().amax((2, 3)) / 448
        codes = (tiles / scale[..., None, None]).to(torch.float8_e4m3fn)
        tensors[name] = codes.transpose(1, 2).reshape(padded.shape)[:rows, :columns]
        tensors[f"{name}_scale_inv"] = scale
    rewrite(path, tensors, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]})


def exact_fp8_blocks(made, path):
    """Sets the weights of a model to the values of `fp8_blocks` in f32. transformers rounded them to bf16; they are first
    compared in bf16.
    """
    tensors = load_file(path / "model.safetensors")
    weights = {}
    for name in [each for each in tensors if f"{each}_scale_inv" in tensors]:
        rows, columns = tensors[name].shape
        scale = tensors[f"{name}_scale_inv"].repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :columns]
        weights[name] = tensors[name].float() * scale
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name in weights:
                exact = weights[name]
            elif ".experts." in name:
                prefix, part = name.rsplit(".", 1)
                names = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}[part]
                exact = torch.stack([
                    torch.cat([weights[f"{prefix}.{expert}.{each}.weight"] for each in names]) for expert in range(parameter.shape[0])
                ])
            else:
                continue
            assert torch.equal(exact.bfloat16(), parameter.bfloat16()), name
            parameter.data = exact.to(made.lm_head.weight.dtype)
