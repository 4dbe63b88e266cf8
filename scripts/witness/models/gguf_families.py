"""Writes the recorded models of Gemma 3, gpt-oss and DeepSeek-V3 as GGUF files, with the names and the writer of the package gguf.

conformance/vectors/models/NAME.gguf has the weights of the folder NAME as convert_hf_to_gguf.py of llama.cpp converts them: norms of Gemma 3 plus 1;
experts of gpt-oss with gate and up apart, in blocks of MXFP4; the up-projection of keys and values of DeepSeek-V3 as two tensors, its FP8 weights
in bf16.

    pip install gguf==0.19.0 numpy==2.4.6 safetensors==0.8.0 ml_dtypes==0.6.0
    python scripts/witness/models/gguf_families.py
"""

import json
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "models"
BLOCK = 32

# safetensors needs this attribute for the type of FP8 codes
np.float8_e4m3fn = ml_dtypes.float8_e4m3fn


def open_writer(name, architecture, config):
    """A writer with the keys of all architectures."""
    writer = gguf.GGUFWriter(ROOT / f"{name}.gguf", gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rule = config.get("rope_scaling") or {}
    kind = rule.get("rope_type") or rule.get("type")
    if kind:
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rule["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rule["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rule["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rule["beta_slow"])
    return writer


def add_heads(writer, config):
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_sliding_window(config["sliding_window"])


def add(writer, name, weight):
    if weight.ndim == 1:
        writer.add_tensor(name, weight.astype(np.float32))
    else:
        codes = np.ascontiguousarray(weight.astype(ml_dtypes.bfloat16)).view(np.uint8)
        writer.add_tensor(name, codes, raw_dtype=gguf.GGMLQuantizationType.BF16)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def names_of(architecture, config):
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    return lambda tensor: names.get_name(tensor, try_suffixes=(".weight", ".bias"))


def read(name):
    path = ROOT / name
    return json.loads((path / "config.json").read_text()), sorted(load_file(path / "model.safetensors").items())


def gemma3():
    config, tensors = read("gemma3")
    name_of = names_of(gguf.MODEL_ARCH.GEMMA3, config)
    writer = open_writer("gemma3", gguf.MODEL_ARCH.GEMMA3, config)
    add_heads(writer, config)
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    # llama.cpp assumes 6 and 10000 if the file lacks them
    writer.add_sliding_window_pattern(config["sliding_window_pattern"])
    writer.add_float32(gguf.Keys.Rope.FREQ_BASE_SWA.format(arch="gemma3"), config["rope_local_base_freq"])
    for tensor, weight in tensors:
        shift = 1 if tensor.endswith("norm.weight") else 0
        add(writer, name_of(tensor), weight.astype(np.float32) + np.float32(shift))
    close(writer)


def halves(blocks):
    """Blocks whose byte i has elements 2i and 2i + 1 as blocks whose byte i has elements i and i + 16."""
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], BLOCK)
    return codes[..., :16] | codes[..., 16:] << 4


def gpt_oss():
    config, tensors = read("gpt-oss")
    name_of = names_of(gguf.MODEL_ARCH.GPT_OSS, config)
    writer = open_writer("gpt-oss", gguf.MODEL_ARCH.GPT_OSS, config)
    add_heads(writer, config)
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    tensors = dict(tensors)
    for tensor, weight in tensors.items():
        parts = {"": slice(None)} if "gate_up_proj" not in tensor else {"gate": slice(0, None, 2), "up": slice(1, None, 2)}
        for part, rows in parts.items():
            target = tensor.replace("gate_up_proj", f"{part}_proj")
            if tensor.endswith("_blocks"):
                scales = tensors[tensor.replace("_blocks", "_scales")][:, rows, :, None]
                data = np.concatenate([scales, halves(weight[:, rows])], axis=-1)
                data = data.reshape(*data.shape[:2], -1)
                writer.add_tensor(name_of(target.replace("_blocks", ".weight")), data, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
            elif tensor.endswith("_proj_bias"):
                writer.add_tensor(name_of(target.replace("_bias", ".bias")), weight[:, rows].astype(np.float32))
            elif tensor.endswith("sinks"):
                writer.add_tensor(name_of(f"{tensor}.weight"), weight.astype(np.float32))
            elif not tensor.endswith("_scales"):
                add(writer, name_of(tensor), weight)
    close(writer)


def dequantized(tensors):
    """Weights of FP8 with a scale for each tile of 32 x 32, in f32."""
    tensors = dict(tensors)
    for tensor, weight in tensors.items():
        scale = tensors.get(f"{tensor}_scale_inv")
        if scale is not None:
            rows, columns = weight.shape
            weight = weight.astype(np.float32) * scale.repeat(BLOCK, 0)[:rows].repeat(BLOCK, 1)[:, :columns]
        if not tensor.endswith("_scale_inv"):
            yield tensor, weight


def deepseek_v3():
    config, tensors = read("deepseek-v3")
    architecture = gguf.MODEL_ARCH.DEEPSEEK2
    name_of = names_of(architecture, config)
    writer = open_writer("deepseek-v3", architecture, config)
    rank, rotated, plain, value = (config[each] for each in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    writer.add_head_count_kv(1)
    writer.add_key_length(rank + rotated)
    writer.add_value_length(rank)
    writer.add_key_length_mla(plain + rotated)
    writer.add_value_length_mla(value)
    writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_rope_dimension_count(rotated)
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_rope_scaling_yarn_log_mul(0.1 * config["rope_scaling"]["mscale_all_dim"])
    experts = {}
    for tensor, weight in dequantized(tensors):
        if ".mlp.experts." in tensor:
            before, _, after = tensor.partition(".experts.")
            index, _, projection = after.partition(".")
            experts.setdefault(f"{before}.experts.{projection}", {})[int(index)] = weight
        elif tensor.endswith("kv_b_proj.weight"):
            heads = weight.reshape(config["num_attention_heads"], plain + value, rank)
            add(writer, name_of(tensor.replace("kv_b_proj", "k_b_proj")), heads[:, :plain].swapaxes(1, 2))
            add(writer, name_of(tensor.replace("kv_b_proj", "v_b_proj")), heads[:, plain:])
        else:
            add(writer, name_of(tensor.replace("e_score_correction_bias", "e_score_correction.bias")), weight)
    for tensor, matrices in experts.items():
        add(writer, name_of(tensor), np.stack([matrices[index] for index in sorted(matrices)]))
    close(writer)


gemma3()
gpt_oss()
deepseek_v3()
