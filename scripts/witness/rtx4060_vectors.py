"""Writes a vector file of FP8 products of an RTX 4060, which mmaemu's tests have recorded.

mmaemu 0.1.0 (Apache-2.0, https://github.com/astding/mmaemu) ships recordings of torch._scaled_mm on the GPU in the folder
tests/data/hw_mini of its source distribution: pip download --no-deps --no-binary :all: mmaemu==0.1.0, unpack, and then
    python scripts/witness/rtx4060_vectors.py mmaemu-0.1.0/tests OUT.json

Only results in f32 without split-K are recorded, whose scale factors and elements have no NaN: at most 2 rows and 4 columns of
each case, and only a few cases with K above 128.
"""

import json
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
from hwmini import HwMini  # noqa: E402

DEEP = 16  # the number of cases with K above 128
ROWS, COLUMNS = 2, 4


def cases(recordings):
    seen, deep = set(), 0
    for case in recordings.cases:
        if case["kind"] != "gemm" or "outputs" not in case:
            continue
        for output in case["outputs"]:
            params = {**case["params"], **output["params"]}
            wanted = params["out_dtype"] == "float32" and params["splitk"]["S"] == 1 and params["api"] == "scaled_mm"
            if not wanted or "bits" not in output["expect"] or params["scale_result_bits"] is not None:
                continue
            a, b = (recordings.array(case["inputs"][name]) for name in ("a", "b"))
            out = recordings.expected(output | {"id": case["id"]})
            if out.shape != (a.shape[0], b.shape[0]) or a.shape[1] != b.shape[1] or not out.size or a.shape[1] > 2048:
                continue
            rows, columns = (1, 2) if a.shape[1] > 128 else (ROWS, COLUMNS)
            a, b, out = a[:rows], b[:columns], out[:rows, :columns]
            key = (a.tobytes(), b.tobytes(), params["fast"], params["scale_a_bits"], params["scale_b_bits"])
            if key in seen:
                continue
            seen.add(key)
            if a.shape[1] > 128:
                deep += 1
                if deep > DEEP:
                    continue
            yield dict(
                m=a.shape[0],
                n=b.shape[0],
                k=a.shape[1],
                x=params["fmt_a"],
                w=params["fmt_b"],
                splitAccumulator=not params["fast"],
                scaleX=f"{params['scale_a_bits']:08x}",
                scaleW=f"{params['scale_b_bits']:08x}",
                a=a.astype(np.uint8).tobytes().hex(),
                b=b.astype(np.uint8).tobytes().hex(),
                bits="".join(f"{word:08x}" for word in out.astype(np.uint32).reshape(-1)),
            )


found = list(cases(HwMini()))
origin = dict(
    project="torch._scaled_mm on a GeForce RTX 4060, recorded by mmaemu",
    version="mmaemu 0.1.0, cuBLASLt 12.8.3.14",
    function="torch._scaled_mm",
    how="scripts/witness/rtx4060_vectors.py",
    licence="Apache-2.0",
)
with open(sys.argv[2], "w") as file:
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in found)
    file.write('{"origin":' + json.dumps(origin) + ',"cases":[\n' + lines + "\n]}\n")
print(len(found), "cases")
