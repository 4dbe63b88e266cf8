"""Times the products of bench/cuda/gemm.mjs in PyTorch.

python3 torch_gemm.py [--only NAME] MxNxK ... prints a JSON object with a list of {name, seconds}.
"""

import argparse
import json
import random
import sys
import time

import torch

# The same numbers as in bench/cuda/gemm.mjs.
ROUNDS = 33
UNCOUNTED = 5
REPEAT = 16
BLOCK = 128
E4M3_MAX = 448.0


def values(rows, columns, seed):
    """Random bf16 values of both signs in eight binades, with the distribution of bench/cuda/device.mjs."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    draw = torch.randint(0, 1 << 16, (rows, columns), generator=generator, device="cuda", dtype=torch.int32)
    bits = (draw & 0x807F) | ((123 + ((draw >> 8) & 7)) << 7)
    return bits.to(torch.int16).view(torch.bfloat16)


def per_tensor(x):
    scale = E4M3_MAX / x.abs().max().float()
    return (x.float() * scale).to(torch.float8_e4m3fn), (1 / scale).reshape(())


def per_block(x, lines):
    """Returns the codes, and the scales of shape [rows / lines, columns / 128]."""
    rows, columns = x.shape
    blocks = x.float().view(rows // lines, lines, columns // BLOCK, BLOCK)
    scale = E4M3_MAX / blocks.abs().amax((1, 3), keepdim=True)
    codes = (blocks * scale).view(rows, columns).to(torch.float8_e4m3fn)
    return codes, (1 / scale).view(rows // lines, columns // BLOCK)


def scaled(x, w, x_scale, w_scale, fast):
    def run():
        return torch._scaled_mm(
            x, w.t(), scale_a=x_scale, scale_b=w_scale, out_dtype=torch.bfloat16, use_fast_accum=fast
        )

    return run


def cases(m, n, k):
    """The products to time, by the names that bench/cuda/gemm.mjs gives them."""
    x, w = values(m, k, 1), values(n, k, 2)
    yield "bf16", lambda: torch.matmul(x, w.t())
    (x8, x_scale), (w8, w_scale) = per_tensor(x), per_tensor(w)
    yield "fp8 fast", scaled(x8, w8, x_scale, w_scale, True)
    yield "fp8 split accumulator", scaled(x8, w8, x_scale, w_scale, False)
    (xb, xb_scale), (wb, wb_scale) = per_block(x, 1), per_block(w, BLOCK)
    # cuBLASLt reads scales of 1x128 blocks in the transposed layout [blocks, rows].
    yield "fp8-block 1x128, 128x128", scaled(xb, wb, xb_scale.t().contiguous().t(), wb_scale.t(), False)


def batch(run):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(REPEAT):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / REPEAT


def measure(m, n, k, only):
    runs = {}
    for name, run in cases(m, n, k):
        if only not in (None, name):
            continue
        try:
            batch(run)
            runs[name] = run
        except (RuntimeError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
    times = {name: [] for name in runs}
    for counted in [False] * UNCOUNTED + [True] * ROUNDS:
        for name in random.sample(list(runs), len(runs)):
            seconds = batch(runs[name])
            if counted:
                times[name].append(seconds)
    return [{"name": f"{name} {m}x{n}x{k}", "seconds": sorted(each)[ROUNDS // 2]} for name, each in times.items()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    parser.add_argument("shapes", nargs="+")
    options = parser.parse_args()
    rows = []
    for shape in options.shapes:
        rows += measure(*(int(size) for size in shape.split("x")), options.only)
        torch.cuda.empty_cache()
    json.dump({"version": torch.__version__, "rows": rows}, sys.stdout)


main()
