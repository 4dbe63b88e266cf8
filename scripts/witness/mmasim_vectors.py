"""Records dot products of the tensor-core simulator mmasim (pip install mmasim==2.1.1) as test vectors.

python3 scripts/witness/mmasim_vectors.py, which writes conformance/vectors/mmasim.json
"""

import json
from importlib.metadata import version
from pathlib import Path

import torch
from mmasim.nv_ptx.sim import MMA, TCGen05MMA, TCGen05MMABlockScale, WGMMA

OUT = Path(__file__).resolve().parents[2] / "conformance" / "vectors" / "mmasim.json"
LINES = 4
STEPS = 2
TORCH = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
}
BITS = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4, "bf16": 16, "f16": 16}
LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B, "bf16": 0x7F7F, "f16": 0x7BFF}


def draw(fmt, shape, flavour, generator):
    """Random finite codes of one of four kinds: any codes; two in five zero; the smallest magnitudes; a few
    binades in the middle.
    """
    bits = BITS[fmt]
    sign = 1 << (bits - 1)
    code = torch.randint(0, 2 * sign, shape, generator=generator)
    magnitude = code % sign
    if flavour == "sparse":
        magnitude[torch.rand(shape, generator=generator) < 0.4] = 0
    if flavour == "tiny":
        magnitude = magnitude % max(2, sign >> 4)
    if flavour == "middle":
        magnitude = sign // 2 + magnitude % max(2, sign >> 5)
    if fmt in LARGEST:
        magnitude = magnitude.clamp(max=LARGEST[fmt])
    return magnitude | (code & sign)


def operand(fmt, codes, packed):
    if fmt in ("bf16", "f16"):
        return codes.to(torch.int32).to(torch.int16).view(TORCH[fmt])
    if fmt in TORCH:
        return codes.to(torch.uint8).view(TORCH[fmt])
    if packed:
        pairs = codes.view(*codes.shape[:-1], -1, 2)
        return (pairs[..., 0] << 4 | pairs[..., 1]).to(torch.uint8)
    return (codes << (2 if fmt == "e2m1" else 0)).to(torch.uint8)


def scales(kind, shape, flavour, generator):
    if kind == "ue4m3":
        return torch.randint(0, 127, shape, generator=generator)
    if flavour == "uniform":
        return torch.randint(0, 255, shape, generator=generator)
    return torch.randint(117, 138, shape, generator=generator)


def record(name, op, k, fx, fw, datapath, staging, flavour, generator, scale=None, block=0):
    depth = k * STEPS
    x = draw(fx, (LINES, depth), flavour, generator)
    w = draw(fw, (LINES, depth), flavour, generator)
    packed = block != 0 and k == 64
    a = operand(fx, x, packed)[:, None, :].expand(-1, LINES, -1)
    b = operand(fw, w, packed)[None, :, :].expand(LINES, -1, -1)
    c = torch.zeros(LINES, LINES)
    case = {"name": name, "datapath": datapath, "staging": staging, "depth": depth}
    case |= {"x": {"format": fx, "lines": x.tolist()}, "w": {"format": fw, "lines": w.tolist()}}
    sx = sw = None
    if scale:
        torch_scale = torch.float8_e8m0fnu if scale == "ue8m0" else torch.float8_e4m3fn
        label = "e8m0" if scale == "ue8m0" else "ue4m3"
        raw = [scales(scale, (LINES, depth // block), flavour, generator) for _ in range(2)]
        for side, codes in zip(("x", "w"), raw):
            case[side]["scales"] = {"format": label, "block": block, "rowShift": 0, "codes": codes.tolist()}
        sx = raw[0].to(torch.uint8).view(torch_scale)[:, None, :].expand(-1, LINES, -1)
        sw = raw[1].to(torch.uint8).view(torch_scale)[None, :, :].expand(LINES, -1, -1)
    for i in range(STEPS):
        width = k // 2 if packed else k
        part = slice(i * width, (i + 1) * width)
        if scale:
            blocks = slice(i * k // block, (i + 1) * k // block)
            c = op.dpa(a[..., part], b[..., part], c, sx[..., blocks], sw[..., blocks])
        else:
            c = op.dpa(a[..., part], b[..., part], c)
    case["d"] = [f"{v & 0xFFFFFFFF:08x}" for v in c.contiguous().view(torch.int32).flatten().tolist()]
    return case


def main():
    plain = []
    for x, w in (("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e5m2", "e5m2")):
        plain.append((MMA("Ada Lovelace", f"m16n8k32.f32.{x}.{w}.f32"), 32, x, w, "ada-fp8"))
        plain.append((WGMMA("Hopper", f"m64n8k32.f32.{x}.{w}"), 32, x, w, "hopper-fp8"))
    for x, w in (("e4m3", "e5m2"), ("e3m2", "e2m3"), ("e2m1", "e5m2"), ("e2m1", "e2m1")):
        plain.append((TCGen05MMA("Blackwell", f"m64n8k32.kind::f8f6f4.f32.{x}.{w}"), 32, x, w, "blackwell-narrow"))
    for t in ("bf16", "f16"):
        plain.append((MMA("Ada Lovelace", f"m16n8k16.f32.{t}.{t}.f32"), 16, t, t, "ada-half"))
        plain.append((TCGen05MMA("Blackwell", f"m64n8k16.kind::f16.f32.{t}.{t}"), 16, t, t, "blackwell-half"))
    scaled = []
    for x, w in (("e4m3", "e4m3"), ("e5m2", "e3m2"), ("e2m3", "e2m1")):
        kind = f"m128n8k32.kind::mxf8f6f4.block32.f32.{x}.{w}.ue8m0"
        scaled.append((kind, 32, x, w, "blackwell-narrow", "scaled", "ue8m0", 32))
    for block, scale in ((32, "ue8m0"), (16, "ue4m3")):
        kind = f"m128n8k64.kind::mxf4nvf4.block{block}.f32.e2m1.e2m1.{scale}"
        scaled.append((kind, 64, "e2m1", "e2m1", "blackwell-fp4", "grouped", scale, block))

    generator = torch.Generator().manual_seed(20250107)
    cases = []
    for flavour in ("uniform", "sparse", "tiny", "middle"):
        for op, k, x, w, datapath in plain:
            name = f"{op.arch} {op.shape_and_type} {flavour}"
            cases.append(record(name, op, k, x, w, datapath, "plain", flavour, generator))
        for kind, k, x, w, datapath, staging, scale, block in scaled:
            op = TCGen05MMABlockScale("Blackwell", kind)
            name = f"Blackwell {kind} {flavour}"
            cases.append(record(name, op, k, x, w, datapath, staging, flavour, generator, scale, block))
    how = "scripts/witness/mmasim_vectors.py: chained dot products from zero"
    origin = {"project": "mmasim", "version": version("mmasim"), "how": how}
    with OUT.open("w") as file:
        json.dump({"origin": origin, "cases": cases}, file, separators=(",", ":"))


main()
