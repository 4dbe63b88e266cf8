"""PyTorch's side of bench/cuda/attention.mjs: python3 torch_attention.py BATCH TOKENS HEADS WIDTH.

Prints the names of its cases as one JSON line. It then answers each line "NAME<TAB>CALLS" with the seconds per call; the GPU is
synchronized before the first and after the last call. A name is a case of bench/cuda/attention.mjs and a backend of PyTorch's
scaled_dot_product_attention: cuDNN, or FlashAttention-2.
"""

import json
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention-2": SDPBackend.FLASH_ATTENTION}


def all_cases(batch, tokens, heads, width):
    def values():
        # [B, H, S, D], stored as [B, S, H, D]
        return torch.randn(batch, tokens, heads, width, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

    inputs = [values().requires_grad_() for _ in range(3)]
    grad = values()
    for mask, causal in (("full", False), ("causal", True)):

        def forward(causal=causal):
            with torch.no_grad():
                scaled_dot_product_attention(*inputs, is_causal=causal)

        def both(causal=causal):
            out = scaled_dot_product_attention(*inputs, is_causal=causal)
            torch.autograd.grad(out, inputs, grad)

        for library in BACKENDS:
            yield f"{mask}, forward {library}", library, forward
            yield f"{mask}, forward and backward {library}", library, both


def main():
    cases = {}
    for name, library, run in all_cases(*(int(size) for size in sys.argv[1:5])):
        try:
            with sdpa_kernel(BACKENDS[library]):
                run()
            cases[name] = (library, run)
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
    torch.cuda.synchronize()
    print(json.dumps({"version": f"torch {torch.__version__}", "cases": list(cases)}), flush=True)
    for line in sys.stdin:
        name, calls = line.rstrip("\n").split("\t")
        library, run = cases[name]
        with sdpa_kernel(BACKENDS[library]):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(int(calls)):
                run()
            torch.cuda.synchronize()
        print(json.dumps((time.perf_counter() - start) / int(calls)), flush=True)


main()
