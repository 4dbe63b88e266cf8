"""Writes a vector file of the signs of zero that cuBLASLt gives for sums of zero times signed scale factors.

On a machine with the GPU: nvcc -std=c++17 -O2 -o zero_sums scripts/witness/zero_sums.cc -lcublasLt && ./zero_sums > LINES
Then, anywhere: python scripts/witness/zero_sums.py LINES OUT.json

A case is one product by algorithm 66. Its result depends on the number of parts of K, but must be the same single word for every
reduction scheme, with scalars on the host or on the device, and with C in place of D or not. Omitted are alpha = 0, for which
cuBLASLt does not read the sums, and C in place with beta on the host, where it rounds twice (docs/datapath.md, section 2).
"""

import gzip
import json
import sys

FIELDS = ("type", "out", "sum", "alpha", "scaleA", "scaleB", "beta", "c")


def lines(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
        return [json.loads(line) for line in file]


def main():
    head, *rows = lines(sys.argv[1])
    products, found = 0, {}
    for row in rows:
        if row["id"] != 66 or row["sum"] == "ordinary" or float.fromhex(row["alpha"]) == 0:
            continue
        if row["inPlace"] and not row["device"]:
            continue
        (word,) = row["bits"]
        case = found.setdefault(tuple(row[field] for field in FIELDS), {})
        if case.setdefault(row["splitK"], word) != word:
            raise SystemExit(f"two answers: {row}")
        products += 1
    origin = dict(
        project=f"cuBLASLt on an {head['device']}",
        version=f"cuBLASLt {head['cublasLt'] // 10000}.{head['cublasLt'] // 100 % 100}.{head['cublasLt'] % 100}",
        function="cublasLtMatmul, algorithm 66",
        how="scripts/witness/zero_sums.cc, zero_sums.py",
        depth=head["K"],
        products=products,
        fields=[*FIELDS, "bits by splitK 1, 2, 3, 4"],
    )
    cases = [[*key, " ".join(bits[splits] for splits in sorted(bits))] for key, bits in found.items()]
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    with open(sys.argv[2], "w") as file:
        file.write('{"origin":' + json.dumps(origin) + ',"cases":[\n' + text + "\n]}\n")
    print(f"{products} products, {len(cases)} cases")


main()
