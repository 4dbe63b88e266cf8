"""Cases of bench/cuda/layers.mjs: a training step of TransformerLayer as in Llama.

A layer uses the attention that TransformerEngine chooses. Where it finds no fused one, the layer uses PyTorch's
scaled_dot_product_attention on cuDNN instead, and NOTES says so. NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 prints why.
"""

import importlib

import torch
import transformer_engine.pytorch as te
from te_common import BF16, RECIPES, report, stepper, values
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

NOTES = []


class CudnnAttention(torch.nn.Module):
    """Causal attention of [B, S, H, D], in the place of `core_attention`."""

    name = None
    output_quantizer_role = None
    grad_input_quantizer_role = None

    def __init__(self, grouped):
        super().__init__()
        self.grouped = grouped

    def forward(self, query, key, value, **_):
        if not self.grouped:
            key, value = (x.repeat_interleave(query.shape[2] // x.shape[2], dim=2) for x in (key, value))
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        return out.transpose(1, 2).flatten(2)


class Layer(torch.nn.Module):
    def __init__(self, tokens, hidden, ffn, heads, groups):
        super().__init__()
        self.layer = te.TransformerLayer(
            *(hidden, ffn, heads),
            num_gqa_groups=groups,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            normalization="RMSNorm",
            activation="swiglu",
            bias=False,
            fuse_qkv_params=True,
            attn_input_format="bshd",
            self_attn_mask_type="causal",
            params_dtype=BF16,
            device="cuda",
        )
        self.angles = te.RotaryPositionEmbedding(hidden // heads)(tokens)

    def forward(self, x, is_first_microbatch=None):
        return self.layer(x, rotary_pos_emb=self.angles, is_first_microbatch=is_first_microbatch)


def chosen_attention():
    """The attention that the last call of TransformerEngine used."""
    module = importlib.import_module("transformer_engine.pytorch.attention.dot_product_attention.dot_product_attention")
    chosen = module._attention_backends
    if chosen["use_flash_attention"]:
        return f"FlashAttention {chosen['flash_attention_backend']}"
    if chosen["use_fused_attention"]:
        return f"FusedAttention {chosen['fused_attention_backend']}"
    return None


def best_attention(make, x, dy):
    """A function that replaces the attention of a layer by the best one that runs, or changes nothing."""
    try:
        stepper(make(), x, dy, None, False)
        chosen = chosen_attention()
        if chosen:
            NOTES.append(chosen)
            return lambda model: model
        report("attention", RuntimeError("TransformerEngine chose its unfused attention"))
    except Exception as error:  # any failure means that this attention cannot be measured
        report("attention", error)
    torch.cuda.empty_cache()
    for grouped in (True, False):

        def replace(model, grouped=grouped):
            model.layer.self_attention.core_attention = CudnnAttention(grouped)
            return model

        try:
            stepper(replace(make()), x, dy, None, False)
        except Exception as error:  # the next way is tried
            report(f"cuDNN attention, grouped: {grouped}", error)
            continue
        NOTES.append(f"attention of PyTorch on cuDNN {torch.backends.cudnn.version()}{'' if grouped else ', repeated keys'}")
        return replace
    raise RuntimeError("no attention runs")


def cases(batch, tokens, hidden, ffn, heads, groups, graphs):
    x, dy = (values(batch * tokens, hidden, seed).view(batch, tokens, hidden) for seed in (1, 2))
    x.requires_grad_()

    def make():
        return Layer(tokens, hidden, ffn, heads, groups)

    replace = best_attention(make, x, dy)
    torch.cuda.empty_cache()
    # a failed capture could disturb later calls, so that the steps without graphs are made first
    for suffix, graphed in (("", False), (" graphed", True))[: 1 + graphs]:
        for name, recipe in RECIPES.items():
            try:
                step = stepper(replace(make()), x, dy, recipe, graphed)
            except Exception as error:  # the other cases are measured
                report(f"layer {name}{suffix}", error)
                continue
            yield f"layer {name}{suffix}", lambda i, step=step: step()
