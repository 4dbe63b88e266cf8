"""Writes recorded models of conformance/vectors/models as GGUF files, with the names of gguf's own tables.

conformance/vectors/models/NAME.gguf has the weights of the folder NAME: matrices in bf16, norms and biases in f32. As in
the files of llama.cpp, the rows of queries and keys of Llama lie in the order of neighbouring pairs, and the rule llama3 of the rotary
embedding is the tensor rope_freqs.weight.

    pip install gguf==0.19.0 numpy==2.4.6 safetensors==0.8.0 ml_dtypes==0.6.0
    python scripts/witness/models/gguf_files.py
"""

import json
import math
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "models"


def paired(weight, heads):
    """Rows of each head, first half and second half, as rows that alternate between the halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def rope_factors(config):
    """The divisor of each frequency under the rule llama3."""
    rule, width = config["rope_scaling"], config["head_dim"]
    low, high, original = rule["low_freq_factor"], rule["high_freq_factor"], rule["original_max_position_embeddings"]
    factors = []
    for pair in range(width // 2):
        turns = original * config["rope_theta"] ** (-2 * pair / width) / (2 * math.pi)
        kept = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1 / ((1 - kept) / rule["factor"] + kept))
    return np.array(factors, dtype=np.float32)


def write(name, architecture):
    path = ROOT / name
    config = json.loads((path / "config.json").read_text())
    layers, heads, groups = (config[f"num_{each}"] for each in ("hidden_layers", "attention_heads", "key_value_heads"))
    writer = gguf.GGUFWriter(path.parent / f"{name}.gguf", gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_block_count(layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config.get("rope_parameters", config)["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    names = gguf.get_tensor_name_map(architecture, layers)
    rule = config.get("rope_scaling") or {}
    if rule.get("rope_type") == "llama3":
        writer.add_tensor(gguf.TENSOR_NAMES[gguf.MODEL_TENSOR.ROPE_FREQS] + ".weight", rope_factors(config))
    for tensor, weight in sorted(load_file(path / "model.safetensors").items()):
        if architecture == gguf.MODEL_ARCH.LLAMA and tensor.endswith(("q_proj.weight", "k_proj.weight")):
            weight = paired(weight, heads if "q_proj" in tensor else groups)
        target = names.get_name(tensor, try_suffixes=(".weight", ".bias"))
        if weight.ndim == 1:
            writer.add_tensor(target, weight.astype(np.float32))
        else:
            codes = np.ascontiguousarray(weight.astype(ml_dtypes.bfloat16)).view(np.uint8)
            writer.add_tensor(target, codes, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


write("llama", gguf.MODEL_ARCH.LLAMA)
write("qwen2", gguf.MODEL_ARCH.QWEN2)
write("qwen3", gguf.MODEL_ARCH.QWEN3)
