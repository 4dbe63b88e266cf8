"""Records the results of CUDA's own conversion headers, computed by the compiled cuda_conversions.cc.

    cuda_vectors.py PROGRAM VERSION             writes the vector files
    cuda_vectors.py PROGRAM VERSION --digests   writes digests of all 2^32 inputs: 28 conversions, about 12 s each
"""

import json
import subprocess
import sys

import numpy as np

import record

FILES = {
    "cuda-fp8.json": ["e4m3", "e5m2"],
    "cuda-fp6-fp4.json": ["e2m3", "e3m2", "e2m1"],
    "cuda-e8m0.json": ["e8m0"],
    "cuda-ue5m3.json": ["ue5m3"],
    "cuda-half.json": ["bf16", "f16"],
}
INTRINSICS = {
    "e4m3": "__nv_cvt_float_to_fp8",
    "e5m2": "__nv_cvt_float_to_fp8",
    "e2m3": "__nv_cvt_float_to_fp6",
    "e3m2": "__nv_cvt_float_to_fp6",
    "e2m1": "__nv_cvt_float_to_fp4",
    "e8m0": "__nv_cvt_float_to_e8m0 of |x|",
    "ue5m3": "__nv_cvt_float_to_ue5m3",
    "bf16": "__float2bfloat16",
    "f16": "__float2half",
}
SUFFIX = {"tiesToEven": "_rn", "towardZero": "_rz", "towardPositive": "_ru", "towardNegative": "_rd"}
DECODERS = {
    "e4m3": "__nv_cvt_fp8_to_halfraw, __half2float",
    "e5m2": "__nv_cvt_fp8_to_halfraw, __half2float",
    "e2m3": "__nv_cvt_fp6_to_halfraw, __half2float",
    "e3m2": "__nv_cvt_fp6_to_halfraw, __half2float",
    "e2m1": "__nv_cvt_fp4_to_halfraw, __half2float",
    "e8m0": "__nv_cvt_e8m0_to_bf16raw, __bfloat162float",
    "ue5m3": "__nv_cvt_ue5m3_to_bf16raw, __bfloat162float",
    "bf16": "__bfloat162float",
    "f16": "__half2float",
}


def origin(version):
    return {
        "project": "CUDA conversion headers (cuda_fp8.h, cuda_fp6.h, cuda_fp4.h, cuda_bf16.h, cuda_fp16.h)",
        "version": version,
        "how": "scripts/witness/cuda_conversions.cc, compiled by g++ for the host, driven by scripts/witness/cuda_vectors.py",
    }


def ask(program, arguments, words):
    answer = subprocess.run([program, *arguments], input=words.astype("<u4").tobytes(), capture_output=True, check=True)
    return np.frombuffer(answer.stdout, dtype="<u4")


def conversions(program):
    listing = subprocess.run([program, "list"], capture_output=True, check=True, text=True).stdout
    return [tuple(line.split()) for line in listing.splitlines()]


def record_table(program, name, layout):
    inputs = record.edge_inputs(layout, random=512 if layout.bits <= 8 else 256)
    codes = record.decode_codes(layout)
    wide = layout.bits == 16
    encode = [
        record.encoding(
            layout,
            INTRINSICS[name] + (SUFFIX[rounding] if wide else ""),
            rounding,
            overflow,
            ask(program, ["encode", name, rounding, overflow], inputs),
            nan="exact",
        )
        for format, rounding, overflow in conversions(program)
        if format == name
    ]
    decode = record.decoding(layout, DECODERS[name], codes, ask(program, ["decode", name], codes))
    return record.table(layout, inputs, encode, decode, name=name)


def record_digests(program, version):
    """Writes two files: one for rounding to nearest and for rounding up to e8m0, which quantizers use; one for the other
    directions.
    """
    runs = {"cuda-digests.json": [], "cuda-digests-directed.json": []}
    for format, rounding, overflow in conversions(program):
        command = ["nice", program, "digest", format, rounding, overflow]
        lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
        chunks = [[int(word) for word in line.split()] for line in lines]
        run = {"format": format, "rounding": rounding, "overflow": overflow, "chunks": chunks}
        used = rounding == "tiesToEven" or (format, rounding, overflow) == ("e8m0", "towardPositive", "saturate")
        runs["cuda-digests.json" if used else "cuda-digests-directed.json"].append(run)
        print(f"digest {format} {rounding} {overflow}: {len(chunks)} chunks", flush=True)
    for file, found in runs.items():
        body = ",\n".join(json.dumps(run, separators=(",", ":")) for run in found)
        head = json.dumps(origin(version), indent=0)
        (record.VECTORS / file).write_text(f'{{"origin": {head},\n"runs": [\n{body}\n]}}\n')


def main():
    program, version, *options = sys.argv[1:]
    if "--digests" in options:
        return record_digests(program, version)
    formats = record.scalar_formats()
    for file, names in FILES.items():
        record.write(file, origin(version), [record_table(program, name, formats[name]) for name in names])


if __name__ == "__main__":
    main()
