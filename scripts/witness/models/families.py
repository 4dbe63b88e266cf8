"""The small models that `record.py` creates: for each family its class, its configuration, and its published storage."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from transformers import (
    DeepseekV3Config, DeepseekV3ForCausalLM, FineGrainedFP8Config, Gemma3ForCausalLM, Gemma3TextConfig, GptOssConfig, GptOssForCausalLM, LlamaConfig,
    LlamaForCausalLM, MistralConfig, MistralForCausalLM, Mxfp4Config, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

import stored

NORMS = {"norm": (1, 0.3)}
SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "max_position_embeddings": 256, "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}


@dataclass
class Family:
    """A family: the class of its model, its configuration, means and standard deviations of weights by parts of their names."""

    model: Callable
    settings: object
    scales: dict = field(default_factory=lambda: NORMS)
    config: Callable = lambda config: config
    store: Callable | None = None
    loading: Callable = dict
    loaded: Callable | None = None


def rope_scaling(config):
    """Writes the parameters of rotary angles as in configurations from before transformers 5."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    if rope.get("rope_type", "default") != "default":
        config["rope_scaling"] = rope
    return config


def gemma(config):
    """Writes layers and angles as in the published configurations of Gemma 3."""
    rope = config.pop("rope_parameters")
    del config["layer_types"]
    full = rope["full_attention"]
    config |= {
        "rope_theta": full.pop("rope_theta"), "rope_local_base_freq": rope["sliding_attention"]["rope_theta"], "rope_scaling": full,
        "sliding_window_pattern": 2,
    }
    return config


def deepseek(config):
    config = rope_scaling(config)
    config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")
    for name in ("head_dim", "qk_head_dim", "rope_interleave"):
        config.pop(name, None)
    return config | {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1}


FAMILIES = {
    "llama": Family(
        LlamaForCausalLM,
        LlamaConfig(**SMALL, rope_parameters={
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }),
        config=rope_scaling,
    ),
    "mistral": Family(MistralForCausalLM, MistralConfig(**SMALL | {"head_dim": 8}, sliding_window=7), config=rope_scaling),
    "qwen2": Family(
        Qwen2ForCausalLM,
        Qwen2Config(**{k: v for k, v in SMALL.items() if k != "head_dim"} | {"tie_word_embeddings": True}),
        config=rope_scaling,
    ),
    "qwen3": Family(Qwen3ForCausalLM, Qwen3Config(**SMALL)),
    "qwen3-moe": Family(
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig(
            **SMALL | {"num_hidden_layers": 3}, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True, mlp_only_layers=[1],
            decoder_sparse_step=1,
        ),
        config=rope_scaling,
    ),
    "gemma3": Family(
        Gemma3ForCausalLM,
        Gemma3TextConfig(
            **SMALL | {"hidden_size": 40, "tie_word_embeddings": True, "num_hidden_layers": 4}, sliding_window=6, query_pre_attn_scalar=24, final_logit_softcapping=30.0,
            layer_types=["sliding_attention", "full_attention"] * 2,
            rope_parameters={
                "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 100000.0},
            },
        ),
        scales={"norm": (0, 0.3)},
        config=gemma,
    ),
    "gpt-oss": Family(
        GptOssForCausalLM,
        GptOssConfig(
            **SMALL | {"hidden_size": 64, "intermediate_size": 32}, num_local_experts=5, num_experts_per_tok=2, sliding_window=6,
            layer_types=["sliding_attention", "full_attention"], rope_parameters={
                "rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "beta_fast": 8.0, "beta_slow": 0.5, "truncate": False,
                "original_max_position_embeddings": 64,
            },
        ),
        scales={**NORMS, "sinks": (1, 1)},
        config=rope_scaling,
        store=stored.mxfp4_experts,
        loading=lambda: {"quantization_config": Mxfp4Config(dequantize=True)},
    ),
    "deepseek-v3": Family(
        DeepseekV3ForCausalLM,
        DeepseekV3Config(
            **{k: v for k, v in SMALL.items() if k != "head_dim"} | {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_key_value_heads": 4},
            moe_intermediate_size=32, n_shared_experts=1, n_routed_experts=12, n_group=4, topk_group=2, num_experts_per_tok=4,
            first_k_dense_replace=1, kv_lora_rank=32, q_lora_rank=32, qk_rope_head_dim=32, qk_nope_head_dim=16, v_head_dim=24,
            routed_scaling_factor=2.5, norm_topk_prob=True, num_mtp_layers=0, rope_parameters={
                "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 8.0, "beta_slow": 0.5, "mscale": 1.0, "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 64,
            },
        ),
        scales={**NORMS, "e_score_correction_bias": (0, 0.2)},
        config=deepseek,
        store=stored.fp8_blocks,
        loading=lambda: {"quantization_config": FineGrainedFP8Config(dequantize=True, weight_block_size=(32, 32))},
        loaded=stored.exact_fp8_blocks,
    ),
}
