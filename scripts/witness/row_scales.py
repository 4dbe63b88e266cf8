"""Records torch._scaled_mm with a scale for each row of x and of w: the results of cuBLASLt's scale vectors on an H100 or H200.

python3 scripts/witness/row_scales.py > conformance/vectors/h100-row-scales.json

Inputs follow from the seed by integer arithmetic; conformance/tests/gemm/gemm/row-scales.test.ts computes the same inputs.
"""

import base64
import json

import torch

CASES = [
    {"seed": seed, "m": m, "n": n, "k": k, "fast": fast, "out": out}
    for seed, (m, n, k) in enumerate([(48, 80, 256), (16, 64, 1040), (128, 32, 64)])
    for fast in (False, True)
    for out in ("f32", "bf16", "f16")
]
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def words(seed: int, count: int) -> list[int]:
    return [((i + 1) * 2654435761 ^ (seed * 40503 + 977) * 2246822519) % 2**32 for i in range(count)]


def codes(seed: int, rows: int, columns: int) -> torch.Tensor:
    values = [(word >> 11) & 0xFF for word in words(seed, rows * columns)]
    finite = [0x38 if value & 0x7F == 0x7F else value for value in values]
    return torch.tensor(finite, dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn).reshape(rows, columns)


def scales(seed: int, count: int) -> torch.Tensor:
    bits = [(((word >> 29) + 118) << 23) | (word >> 5) & 0x7FFFFF for word in words(seed, count)]
    return torch.tensor(bits, dtype=torch.int32, device="cuda").view(torch.float32)


def run(case: dict) -> dict:
    seed, m, n, k = (case[key] for key in ("seed", "m", "n", "k"))
    x, w = codes(4 * seed, m, k), codes(4 * seed + 1, n, k)
    row, column = scales(4 * seed + 2, m).reshape(m, 1), scales(4 * seed + 3, n).reshape(1, n)
    out = torch._scaled_mm(
        x, w.t(), scale_a=row, scale_b=column, out_dtype=TYPES[case["out"]], use_fast_accum=case["fast"]
    )
    raw = out.contiguous().cpu().view(torch.uint8).numpy().tobytes()
    return {**case, "data": base64.b64encode(raw).decode()}


print(
    json.dumps(
        {
            "origin": {
                "project": "PyTorch's torch._scaled_mm with scales of rows",
                "version": f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}",
            },
            "cases": [run(case) for case in CASES],
        },
        indent=1,
    )
)
