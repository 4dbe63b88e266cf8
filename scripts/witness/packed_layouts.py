"""Records the values that ggml and gguf-py dequantize from packed blocks: conformance/vectors/packed-layouts.json.

Each layout gets blocks of random bytes, and blocks in which one byte takes all values while the others stay.
conformance/tests/dialects/packed.test.ts repeats `draw`. The libraries are libggml-python (the functions dequantize_row_* of
ggml's shared library) and gguf. ggml has no dequantize_row_q8_1.
"""

import ctypes
import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import libggml
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

OUT = Path(__file__).resolve().parents[2] / "conformance" / "vectors" / "packed-layouts.json"
BLOCKS = 4096
LAYOUTS = {
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34), "q8_1": (32, 36), "q2_k": (256, 84),
    "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210), "q8_k": (256, 292), "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74), "iq3_xxs": (256, 98), "iq1_s": (256, 50), "iq4_nl": (32, 18), "iq3_s": (256, 110), "iq2_s": (256, 82),
    "iq4_xs": (256, 136), "iq1_m": (256, 56), "tq1_0": (256, 54), "tq2_0": (256, 66), "mxfp4": (32, 17), "nvfp4": (64, 36),
    "q1_0": (128, 18), "q2_0": (64, 18),
}


def words(count, seed):
    """Hashes of positions, as u32."""
    h = (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(seed * 2654419969)) & np.uint64(0xFFFFFFFF)
    h = ((h ^ (h >> np.uint64(15))) * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
    return (h ^ (h >> np.uint64(13))).astype(np.uint32)


def draw(index, size):
    """Blocks of random bytes; then for each byte of a block, 256 blocks in which it takes every value."""
    free = (words(BLOCKS * size, index + 1) >> 11).astype(np.uint8).reshape(BLOCKS, size)
    swept = np.repeat(free[:size], 256, axis=0).copy()
    each = np.arange(size * 256)
    swept[each, each >> 8] = each & 255
    return np.concatenate([free, swept])


def by_ggml(library, name, raw, elements):
    function = getattr(library, "dequantize_row_" + name.replace("_k", "_K"), None)
    if function is None:
        return None
    count = raw.shape[0] * elements
    values = np.empty(count, dtype=np.float32)
    function.restype = None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    aligned = np.ascontiguousarray(raw)
    function(aligned.ctypes.data, values.ctypes.data, count)
    return values


def by_gguf(name, raw):
    kind = getattr(GGMLQuantizationType, name.upper(), None)
    if kind is None or kind not in GGML_QUANT_SIZES:
        return None
    try:
        with np.errstate(all="ignore"):
            return dequantize(raw, kind).astype(np.float32).reshape(-1)
    except NotImplementedError:
        return None


def digest(values):
    """The digest of the bits, with every NaN replaced by the canonical one."""
    bits = values.view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FC00000
    return hashlib.sha256(bits.tobytes()).hexdigest()


def main():
    library = ctypes.CDLL(str(Path(libggml.__file__).parent / "lib64" / "libggml-base.so"))
    rows = []
    for index, (name, (elements, size)) in enumerate(LAYOUTS.items()):
        raw = draw(index, size)
        given = {"ggml": by_ggml(library, name, raw, elements), "gguf": by_gguf(name, raw)}
        known = {each: values for each, values in given.items() if values is not None}
        if len({digest(values) for values in known.values()}) > 1:
            a, b = (values.view(np.uint32) for values in known.values())
            print(f"{name}: the libraries differ in {int(((a != b) & ~np.isnan(known['ggml'])).sum())} elements")
        rows.append({
            "layout": name, "elements": elements, "bytes": size, "blocks": raw.shape[0], "inputs": hashlib.sha256(raw.tobytes()).hexdigest(),
            "values": {each: digest(values) for each, values in known.items()},
        })
        print(name, *known)
    versions = f"libggml-python {version('libggml-python')}, gguf {version('gguf')}, numpy {np.__version__}"
    origin = {"project": "ggml, gguf-py", "version": versions}
    lines = ",\n".join(json.dumps(row) for row in rows)
    OUT.write_text(f'{{"origin": {json.dumps(origin)},\n"layouts": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
