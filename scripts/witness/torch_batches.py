"""Finds which operators of PyTorch give a row of a batch the same bits in every batch, on a GPU.

    python3 scripts/witness/torch_batches.py FILE

writes a list for each case: groups of numbers of rows with which the first row of the result has the same bits. A case with one
group is batch-invariant.
"""

import json
import sys
from collections.abc import Callable

import torch
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.nn.attention import SDPBackend, sdpa_kernel

SIZES = [
    1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 128, 129, 160, 192, 255, 256, 257, 384, 512, 513, 768, 1000,
    1024, 2048,
]  # fmt: skip
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
cases: dict[str, list[list[int]]] = {}


def random(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def case(name: str, operator: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, dim: int = 0) -> None:
    """Runs an operator on the first rows of `x`, and groups their numbers by the bits of the first row of the result."""
    groups: dict[bytes, list[int]] = {}
    for rows in SIZES:
        if rows <= x.shape[dim]:
            first = operator(x.narrow(dim, 0, rows)).narrow(dim, 0, 1).contiguous().cpu()
            groups.setdefault(first.view(torch.uint8).numpy().tobytes(), []).append(rows)
    cases[name] = list(groups.values())


def products() -> None:
    for k, n in ((4096, 4096), (4096, 14336), (14336, 4096), (2048, 2048), (768, 50257), (4096, 1024)):
        w, bias, size = random(n, k), random(n), f"K {k} N {n}"
        case(f"mm bf16 {size}", lambda x, w=w: x @ w.t(), random(2048, k))
        case(f"linear+bias bf16 {size}", lambda x, w=w, bias=bias: F.linear(x, w, bias), random(2048, k))
        if n <= 4096:
            case(f"mm f32 {size}", lambda x, w=w: x @ w.float().t(), random(1024, k, dtype=torch.float32))
        codes = w[: n // 16 * 16].to(E4M3)
        one, scales = torch.ones((), device="cuda"), torch.rand(1, len(codes), device="cuda")
        options = {"out_dtype": BF16, "use_fast_accum": True}
        case(f"_scaled_mm tensor {size}", lambda x, w=codes, one=one: torch._scaled_mm(x, w.t(), one, one, **options), random(2048, k, dtype=E4M3))
        case(
            f"_scaled_mm rows {size}",
            lambda x, w=codes, scales=scales: torch._scaled_mm(x, w.t(), torch.ones(len(x), 1, device="cuda"), scales, **options),
            random(2048, k, dtype=E4M3),
        )


def rows() -> None:
    for dtype in (BF16, torch.float32):
        for n in (1000, 1024, 2048, 4096, 8192, 50257):
            w = random(n, dtype=dtype)
            operators = {
                "rms_norm": lambda x, n=n, w=w: F.rms_norm(x, (n,), w),
                "layer_norm": lambda x, n=n, w=w: F.layer_norm(x, (n,), w, w),
                "softmax": lambda x: x.softmax(-1),
                "log_softmax": lambda x: x.log_softmax(-1),
                "sum": lambda x: x.sum(-1),
                "mean": lambda x: x.mean(-1),
                "logsumexp": lambda x: x.logsumexp(-1),
                "norm": lambda x: x.norm(dim=-1),
                "cumsum": lambda x: x.cumsum(-1),
                "mean f32": lambda x: x.float().pow(2).mean(-1),
            }
            for name, operator in operators.items():
                case(f"{name} {str(dtype).removeprefix('torch.')} {n}", operator, random(2048, n, dtype=dtype))


def attention() -> None:
    for heads, size, length in ((h, d, t) for h, d in ((8, 64), (8, 128)) for t in (128, 512, 1000)):
        q, k, v = (random(128, heads, length, size) for _ in range(3))
        for backend in BACKENDS:
            if backend != SDPBackend.MATH or length <= 512:
                with sdpa_kernel(backend):
                    causal = lambda x, k=k, v=v: F.scaled_dot_product_attention(x, k[: len(x)], v[: len(x)], is_causal=True)  # noqa: E731
                    case(f"sdpa {backend.name} heads {heads}x{size} T {length} by sequences", causal, q)
    for size in (64, 128):
        k, v = random(1, 8, 2048, size), random(1, 8, 2048, size)
        for backend in BACKENDS:
            with sdpa_kernel(backend):
                full = lambda x, k=k, v=v: F.scaled_dot_product_attention(x, k, v)  # noqa: E731
                case(f"sdpa {backend.name} 2048 keys of {size} by queries", full, random(1, 8, 1024, size), 2)


if __name__ == "__main__":
    torch.manual_seed(0)
    for part in (products, rows, attention):
        part()
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(cases, file)
    print(sum(len(groups) == 1 for groups in cases.values()), "of", len(cases), "are batch-invariant")
