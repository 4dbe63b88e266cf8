"""Records dot products of an H200's tensor cores, as cuBLASLt runs them under torch, as test vectors.

python3 scripts/witness/h200_vectors.py OUT.json, on a machine with an H200 and torch.

Each case is a corner of a product large enough that cuBLASLt chooses its nvjet kernels. The last cases find which exponent
a zero product counts with: t1 = 2^-149 - 2^-g and t2 = 2^-g sum to the smallest f32 only if the alignment of the terms keeps
bits of weight 2^-g.
"""

import json
import sys

import torch

SIZE = 256
DEPTH = 96
LINES = 10
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
LARGEST = {"bf16": 0x7F7F, "f16": 0x7BFF, "e4m3": 0x7E, "e5m2": 0x7B}
PAIRS = [("bf16", "bf16"), ("f16", "f16"), ("e4m3", "e4m3"), ("e5m2", "e4m3")]
FLAVOURS = ("uniform", "sparse", "tiny")
FACTORS = {155: (7, 9), 156: (1, 127), 157: (15, 17), 158: (7, 73), 159: (31, 33), 160: (23, 89), 161: (63, 65)}


def draw(fmt, flavour, generator):
    """Random finite codes of one of three kinds: any codes; half of them zero; mostly zero, with products in
    the range of f32's subnormals.
    """
    sign = 1 << (15 if fmt in ("bf16", "f16") else 7)
    code = torch.randint(0, 2 * sign, (SIZE, DEPTH), generator=generator)
    magnitude = code % sign
    if flavour == "tiny":
        magnitude = 0x1C00 + magnitude % 0x700 if fmt == "bf16" else magnitude % (sign >> 3)
    if flavour != "uniform":
        magnitude[torch.rand((SIZE, DEPTH), generator=generator) < (0.5 if flavour == "sparse" else 0.7)] = 0
    return magnitude.clamp(max=LARGEST[fmt]) | (code & sign)


def typed(fmt, codes):
    raw = codes.to(torch.int32).to(torch.int16) if fmt in ("bf16", "f16") else codes.to(torch.uint8)
    return raw.view(TYPES[fmt]).cuda()


def multiply(x, w):
    if x.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(x, w.t(), out_dtype=torch.float32)
    one = torch.ones((), device="cuda")
    return torch._scaled_mm(x, w.t(), one, one, out_dtype=torch.float32, use_fast_accum=True)


def case(name, fx, fw, x, w, lines):
    d = multiply(typed(fx, x), typed(fw, w)).cpu()[:lines, :lines].contiguous().view(torch.int32)
    sides = {side: {"format": f, "lines": c[:lines].tolist()} for side, f, c in (("x", fx, x), ("w", fw, w))}
    row = "hopper-half" if fx in ("bf16", "f16") else "hopper-fp8"
    bits = [f"{v & 0xFFFFFFFF:08x}" for v in d.flatten().tolist()]
    return {"name": name, "datapath": row, "staging": "plain", "depth": x.shape[1], **sides, "d": bits}


def probe(g, p, q):
    """Codes of one row each, whose products are p * q * 2^-g, 2^-g and otherwise zeros."""
    x, w = torch.zeros(64, dtype=torch.float64), torch.zeros(64, dtype=torch.float64)
    x[:2] = torch.tensor([p, 1]) * 2.0**-80
    w[:2] = torch.tensor([q, 1]) * 2.0 ** (80 - g)
    return [v.bfloat16().view(torch.int16).long().bitwise_and(0xFFFF)[None].repeat(SIZE, 1) for v in (x, w)]


def main():
    generator = torch.Generator().manual_seed(20250108)
    cases = []
    for fx, fw in PAIRS:
        for flavour in FLAVOURS:
            x, w = draw(fx, flavour, generator), draw(fw, flavour, generator)
            cases.append(case(f"{fx} x {fw} {flavour}", fx, fw, x, w, LINES))
    for g, (p, q) in FACTORS.items():
        cases.append(case(f"bits of 2^-{g} below c = 0", "bf16", "bf16", *probe(g, p, q), 1))
    for side in ("x", "w"):
        x, w = torch.zeros(2, SIZE, 64, dtype=torch.long)
        (x if side == "x" else w)[:, 0] = 0x7180  # 2^100, times zero
        x[:, 1], w[:, 1] = 0x3080, 0x30C0  # 2^-30 and 1.5 * 2^-30
        cases.append(case(f"a zero times 2^100 in {side}", "bf16", "bf16", x, w, 1))
    how = "scripts/witness/h200_vectors.py: torch.mm and torch._scaled_mm, cuBLASLt's nvjet kernels"
    project = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    origin = {"project": project, "version": torch.version.cuda, "how": how}
    with open(sys.argv[1], "w") as file:
        json.dump({"origin": origin, "cases": cases}, file, separators=(",", ":"))


main()
