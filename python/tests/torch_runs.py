"""Programs in PyTorch whose runs are recorded: for the tests here, and for conformance/vectors/runs.

    python python/tests/torch_runs.py conformance/vectors/runs     # with PyTorch 2.11, torchao 0.17 and the built library

On a GPU it records the training steps, elsewhere the others.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the usual name

# the code that runs in the recorded context, after its inputs are created
Program = Callable[[], None]

EDGES = [0.0, -0.0, 1.0, -1.0, 3e-39, -1e-45, 6e-8, 65504.0, 65520.0, 449.0, 464.0, 465.0, 1e5, 3.3e38, float("inf"), float("-inf"), float("nan")]


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Normal numbers of several magnitudes, and edges in the first places."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator) * torch.exp2(torch.randint(-8, 8, shape, generator=generator).float())
    flat = x.reshape(-1)
    flat[: len(EDGES)] = torch.tensor(EDGES)[: flat.numel()]
    return x.to(dtype)


def codes(rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Finite FP8 codes of moderate size."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator).mul(4).to(dtype)


def moves() -> Program:
    """Operators that move bytes."""
    x = torch.arange(24).reshape(2, 3, 4).to(torch.bfloat16)
    f = values(6, 8)
    leaf = values(4, 6).requires_grad_()
    return lambda: move(x, f, leaf)


def move(x: torch.Tensor, f: torch.Tensor, leaf: torch.Tensor) -> None:
    x.transpose(0, 2).contiguous().view(3, -1).t().clone()
    x.permute(2, 0, 1).clone()
    x[:, 1:, ::2].clone()
    x[1].clone()
    x[:, -1].unsqueeze(1).expand(-1, 5, -1).clone()
    torch.cat([x, x[:, :1]], dim=1)
    torch.stack([f, f], dim=-1)
    torch.stack(f.split(3)[::-1])
    f.split([1, 5])[1].clone()
    torch.cat(f.unbind(1))
    f.reshape(6, 1, 8).squeeze(1).squeeze()
    F.embedding(torch.tensor([[3, 0], [5, 5]]), f)
    f.index_select(1, torch.tensor([7, 0, 3]))
    torch.where(f > 0, f, -f)
    torch.tril(f, 1)
    torch.triu(f, -2)
    f.masked_fill(f < 0, float("-inf"))
    torch.zeros_like(f), torch.ones_like(x), torch.full_like(x, 0.3), torch.zeros(3, 2), x.new_zeros(4)
    g = f.clone()
    g[2:4] = f[:2]
    g.zero_(), g.fill_(0.1)
    f.flip(0), f.flip([0, -1])
    torch.full((2, 3), 0.3), torch.arange(2, 9), torch.arange(1, 9, 3), f.new_ones(2, 3), f.new_zeros(2)
    f.reshape(1, 6, 1, 8).squeeze((0, 2)), torch.ops.aten.alias(f), f.repeat(2, 1, 3), f[:0].repeat(3, 2)
    (leaf[1:3, ::2].clone().sum() + leaf[0].sum() + leaf.detach().sum()).backward()


WIDE = (torch.float32, torch.bfloat16, torch.float16)


def roundings() -> Program:
    """Operators with a single rounding, for which PyTorch gives the same bits on a CPU and on a GPU."""
    pairs = [(values(4, 16, dtype=dtype), values(4, 16, dtype=dtype, seed=1)) for dtype in WIDE]
    codes = [torch.arange(256).to(torch.uint8).view(dtype) for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)]
    x = values(4, 8)
    return lambda: round_once(pairs, codes, x)


def round_once(pairs: list[tuple[torch.Tensor, torch.Tensor]], codes: list[torch.Tensor], z: torch.Tensor) -> None:
    for x, y in pairs:
        # relu of -0 is -0 on a CPU
        x + y, x - y, x * y, x / y.flip(0), -x, x.abs(), (x + 0.0).relu(), x * 0.3, x + 1e-3
        x == y, x < y, x <= y, x >= y, x != 0, x**2, x**3
        x + y[:1], x * y[:, :1]
        for other in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            x.clone().mul_(y.to(other)), x.clone().sub_(y.to(other)), x * y.to(other)
        for other in (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
            x.to(other)
    # a CPU divides by a number, a GPU multiplies by its reciprocal
    x, y = (each.double() / torch.full((), 3.0, dtype=torch.float64) for each in pairs[0])
    x + y, x - y, x * y, x / y, x * 0.3, 1 / x, x.abs(), -x, x < y, x.clamp(-1, 0.3), x.float(), x.bfloat16(), x.floor(), x.round()
    for every in codes:
        every.float(), every.to(torch.bfloat16), every.to(torch.float16)
    torch.arange(-300, 300, 7).float(), torch.arange(-300, 300, 7).bfloat16(), (z > 0).float()
    z.add_(1).mul_(z)
    z.sqrt()


def operators() -> Program:
    """Every operator that the table of models computes."""
    halves = [
        (values(8, 256, dtype=dtype, seed=2).nan_to_num(0, 1, 1), values(256, 16, dtype=dtype, seed=3).nan_to_num(0, 1, 1))
        for dtype in WIDE[1:]
    ]
    pairs = [(values(4, 16, dtype=dtype), values(4, 16, dtype=dtype, seed=1)) for dtype in WIDE]
    leaf, grad = values(4, 8).requires_grad_(), values(4, 8, seed=5)
    e4m3 = torch.float8_e4m3fn
    scaled = (codes(16, 256, e4m3, 1), codes(128, 256, e4m3, 2))
    torch.manual_seed(6)
    scales = [torch.rand(shape) + 0.5 for shape in ((), (), (16, 1), (1, 128), (16, 2), (2, 1))]
    return lambda: compute(halves, pairs, (leaf, grad), scaled, scales)


Pair = tuple[torch.Tensor, torch.Tensor]


def compute(halves: list[Pair], pairs: list[Pair], leaf: Pair, scaled: Pair, scales: list[torch.Tensor]) -> None:
    for a, b in halves:
        a @ b, torch.mm(a, b, out_dtype=torch.float32)
        torch.addmm(b[0], a, b), torch.addmm(a[:, :16].contiguous(), a, b, beta=0.5, alpha=2.0)
        torch.bmm(a.view(2, 4, 256), b.expand(2, -1, -1))
    for x, y in pairs:
        x + y, x - y, x * y, x / y, -x, x.abs(), x.relu(), x * 0.3, x / 3.0, x + 1e-3, x**2, 1 / x
        x.exp(), x.log(), x.exp2(), x.log2(), x.sqrt(), x.rsqrt(), x.tanh(), x.erf(), x.sin(), x.cos()
        F.silu(x), x.sigmoid(), torch.where(x > 0, x, y), x > y
        for other in (*WIDE, torch.float8_e4m3fn, torch.float8_e5m2):
            x.to(other)
        x.clone().add_(y).mul_(y)
        for other in WIDE:
            x.clone().mul_(y.to(other)), x * y.to(other)
    leaf[0].relu().backward(leaf[1])
    (a, w), bf16 = scaled, torch.bfloat16
    one, two, rows, columns, blocks, squares = scales
    torch._scaled_mm(a, w.t(), scale_a=one, scale_b=two, out_dtype=bf16, use_fast_accum=True)
    torch._scaled_mm(a, w.t(), scale_a=one, scale_b=two, out_dtype=bf16)
    torch._scaled_mm(a, w.t(), scale_a=rows, scale_b=columns, out_dtype=bf16, use_fast_accum=True)
    torch._scaled_mm(a, w.t(), scale_a=blocks, scale_b=squares, out_dtype=bf16)


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class Block(nn.Module):
    """A block in the manner of Llama: RMSNorm, rotary attention, RMSNorm, SwiGLU."""

    def __init__(self, norm: Callable[[int], nn.Module] = RMSNorm, size: int = 32, heads: int = 2, hidden: int = 64) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = norm(size), norm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)
        self.gate, self.up = nn.Linear(size, hidden, bias=False), nn.Linear(size, hidden, bias=False)
        self.down = nn.Linear(hidden, size, bias=False)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        positions, frequencies = (torch.arange(n, device=x.device).float() for n in (x.shape[-2], half))
        angles = positions[:, None] / 10_000 ** (frequencies / half)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, size = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = (each.transpose(1, 2) for each in parts.unbind(2))
        scores = self.rotated(q) @ self.rotated(k).transpose(-1, -2) / (size // self.heads) ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(mask, float("-inf")).float().softmax(-1).to(x.dtype)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, size))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def block(device: str = "cpu") -> Program:
    """The forward and backward pass of a block in bf16, and a step of SGD."""
    torch.manual_seed(1)
    model = Block().to(torch.bfloat16).to(device)
    x = torch.randn(2, 8, 32).to(torch.bfloat16).to(device)
    return lambda: train(model, x)


def train(model: nn.Module, x: torch.Tensor) -> None:
    model(x).float().pow(2).mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad


def float8(recipe: str, device: str = "cpu") -> Program:
    """`block` with torchao's Float8Linear in place of each Linear, under one of its recipes: tensorwise, rowwise, rowwise_with_gw_hp."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    torch.manual_seed(3)
    model = Block().to(torch.bfloat16).to(device)
    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(recipe))
    x = torch.randn(2, 8, 32).to(torch.bfloat16).to(device)
    return lambda: train(model, x)


def step(device: str = "cpu") -> Program:
    """A training step of a small language model in bf16: embedding, block, cross-entropy, clipping, AdamW."""
    torch.manual_seed(2)
    words = 64
    model = nn.Sequential(nn.Embedding(words, 32), Block(nn.RMSNorm), nn.RMSNorm(32), nn.Linear(32, words, bias=False))
    model = model.to(torch.bfloat16).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(0, words, (2, 17)).to(device)
    return lambda: update(model, optimizer, tokens)


def update(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> None:
    logits = model(tokens[:, :-1]).float()
    F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


if __name__ == "__main__":
    import lockstep.torch

    folder = Path(sys.argv[1])
    if torch.cuda.is_available():
        steps = {"block": block("cuda"), "step": step("cuda")}
        recipes = {f"float8-{recipe}": float8(recipe, "cuda") for recipe in ("tensorwise", "rowwise_with_gw_hp")}
        for name, program in {**steps, **recipes}.items():
            with lockstep.torch.record(folder / name):
                program()
    else:
        for name, program in {"moves": moves(), "roundings": roundings()}.items():
            with lockstep.torch.record(folder / name):
                program()
        program = operators()
        with lockstep.torch.reference("h200") as mode, lockstep.torch.record(folder / "operators"):
            program()
        print(mode)
