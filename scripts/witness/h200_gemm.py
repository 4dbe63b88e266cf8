"""Records matrix products of an H200, by PyTorch's cuBLASLt, as witnesses for the `hopper` datapath.

Run on a machine with the GPU: python scripts/witness/h200_gemm.py OUT.json
Inputs are drawn by xorshift32 from a seed, so the file has only seeds and results.
"""

import json
import subprocess
import sys

import numpy as np
import torch


def words(seed, count):
    """The states of xorshift32 after `seed`, as u32."""
    out = np.empty(count, dtype=np.uint32)
    state = seed
    for i in range(count):
        state ^= (state << 13) & 0xFFFFFFFF
        state ^= state >> 17
        state ^= (state << 5) & 0xFFFFFFFF
        out[i] = state
    return out


def codes8(seed, count, nan_from):
    """Random finite 8-bit codes: the top byte of each word, with 0x38 in place of NaN and infinity."""
    code = (words(seed, count) >> 24).astype(np.uint8)
    return np.where((code & 0x7F) >= nan_from, np.uint8(0x38), code)


def codes16(seed, count, dtype):
    """Random signs and significands in sixteen binades around 1."""
    word = words(seed, count)
    if dtype == "bf16":
        exponent, rest = ((word >> 8) & 15) + 119, (word >> 16) & 0x7F
        return (((word >> 31) << 15) | (exponent << 7) | rest).astype(np.uint16)
    exponent, rest = ((word >> 8) & 15) + 7, (word >> 16) & 0x3FF
    return (((word >> 31) << 15) | (exponent << 10) | rest).astype(np.uint16)


def operand(dtype, seed, shape):
    count = shape[0] * shape[1]
    if dtype in ("e4m3", "e5m2"):
        raw = codes8(seed, count, 0x7F if dtype == "e4m3" else 0x7C)
        kind = torch.float8_e4m3fn if dtype == "e4m3" else torch.float8_e5m2
    else:
        raw = codes16(seed, count, dtype)
        kind = torch.bfloat16 if dtype == "bf16" else torch.float16
    return torch.from_numpy(raw.copy()).cuda().view(kind).view(*shape)


def product(case):
    x = operand(case["x"], case["seed"], (case["m"], case["k"]))
    w = operand(case["w"], case["seed"] + 1, (case["n"], case["k"]))
    if case["x"] in ("e4m3", "e5m2"):
        one = torch.ones((), device="cuda")
        fast = not case["splitAccumulator"]
        return torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=fast)
    return torch.mm(x, w.t(), out_dtype=torch.float32)


def main():
    cases = []
    seed = 1
    for m, n, k in [(16, 16, 32), (32, 48, 96), (64, 32, 512), (48, 64, 1008), (128, 64, 2048)]:
        for x, w in [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2")]:
            for split in (False, True):
                cases.append(dict(m=m, n=n, k=k, x=x, w=w, splitAccumulator=split, seed=seed))
                seed += 2
        for dtype in ("bf16", "f16"):
            cases.append(dict(m=m, n=n, k=k, x=dtype, w=dtype, splitAccumulator=False, seed=seed))
            seed += 2
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    for case in cases:
        out = product(case).float().cpu().contiguous().numpy().view(np.uint32)
        case["bits"] = "".join(f"{bits:08x}" for bits in out.reshape(-1)[:512])
        weights = (np.arange(out.size, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(2**32) | np.uint64(1)
        case["sum"] = int(np.sum(out.reshape(-1).astype(np.uint64) * weights % np.uint64(2**32)) % np.uint64(2**32))
    driver = subprocess.check_output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], text=True)
    origin = dict(
        project=f"PyTorch over cuBLASLt on an {torch.cuda.get_device_name()}",
        version=f"torch {torch.__version__}, driver {driver.strip()}",
        function="torch._scaled_mm, torch.mm",
        how="python scripts/witness/h200_gemm.py OUT.json, on a machine with the GPU",
    )
    lines = ",\n".join(json.dumps(case) for case in cases)
    with open(sys.argv[1], "w") as file:
        file.write('{"origin":' + json.dumps(origin) + ',"cases":[\n' + lines + "\n]}\n")


main()
