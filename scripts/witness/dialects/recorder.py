"""Runs a package on the cases of draws.py and writes its results to NAME.json and NAME.bin in conformance/vectors/dialects.

The JSON file holds the type, shape and SHA-256 of every result. The binary file holds CRC-32s of groups of rows, all bytes of the
scales, and the bytes of every n-th row of codes and values. Its arrays are deflated after their bytes were grouped by
significance.
"""

import hashlib
import json
import traceback
import zlib
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Callable

import numpy as np
import torch

import draws

VECTORS = Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "dialects"
RUNS = 64
SAMPLED = {"codes": 2048, "values": 512}
TYPES = {
    torch.float32: ("f32", np.uint32), torch.bfloat16: ("bf16", np.uint16), torch.uint8: ("u8", np.uint8),
    torch.int8: ("i8", np.uint8), torch.int32: ("i32", np.uint32), torch.float8_e4m3fn: ("e4m3", np.uint8),
    torch.float8_e5m2: ("e5m2", np.uint8), torch.float8_e8m0fnu: ("e8m0", np.uint8),
}
ORDINARY = ["normal", "outliers", "wide", "zeros", "tiny", "huge", "nan", "infinity", "zero", "ragged"]
SHAPE = (128, 512)


@dataclass
class Dialect:
    """One way to quantize. `ask` takes a tensor and returns results by name: codes, values, and scales."""

    name: str
    function: str
    elements: str
    block: object
    ask: Callable
    facts: dict
    cases: list = field(default_factory=lambda: list(ORDINARY))
    sweeps: list = field(default_factory=lambda: ["amax", "steps"])
    columns: int = 32
    tensor_per_row: bool = False
    ask_sweep: Callable = None
    options: dict = field(default_factory=dict)
    sweep_options: dict = field(default_factory=dict)
    dtypes: tuple = ("f32", "bf16")
    model: Callable = None
    stored: tuple = None


def bits(tensor):
    """The name of the type, and the bits as unsigned integers. Every NaN becomes the canonical NaN of its type."""
    tensor = tensor.detach().contiguous()
    name, storage = TYPES[tensor.dtype]
    signed = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return name, canonical(name, tensor.view(signed).numpy().view(storage))


def canonical(name, array):
    storage = array.dtype
    if name == "f32":
        array = np.where((array & 0x7FFFFFFF) > 0x7F800000, 0x7FC00000, array).astype(storage)
    if name == "bf16":
        array = np.where((array & 0x7FFF) > 0x7F80, 0x7FC0, array).astype(storage)
    if name == "e4m3":
        array = np.where((array & 0x7F) == 0x7F, 0x7F, array).astype(storage)
    if name == "e5m2":
        array = np.where((array & 0x7F) > 0x7C, 0x7F, array).astype(storage)
    return array


def to_torch(pattern):
    if pattern.dtype == np.uint8:
        return torch.from_numpy(pattern)
    if pattern.dtype == np.uint16:
        return torch.from_numpy(pattern.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(pattern.view(np.float32).copy())


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def document(origin, rows):
    """JSON with one line for each case."""
    line = lambda value: json.dumps(value, ensure_ascii=False)
    dialects = []
    for row in rows:
        head = {key: value for key, value in row.items() if key != "cases"}
        cases = ",\n".join(line(case) for case in row["cases"])
        dialects.append(f'{line(head)[:-1]}, "cases": [\n{cases}\n]}}')
    body = ",\n".join(dialects)
    return f'{{"origin": {line(origin)},\n"dialects": [\n{body}\n]}}\n'


class Book:
    """The dialects of one package, and its two files."""

    def __init__(self, file, package, package_version=None, beside=("torch",)):
        self.file, self.bytes, self.rows = file, bytearray(), []
        self.origin = {
            "package": package,
            "version": package_version or version(package),
            "beside": {name: version(name) for name in beside},
            "machine": f"CPU, PyTorch's {torch.backends.cpu.get_cpu_capability()} kernels",
        }

    def store(self, array):
        raw = np.ascontiguousarray(array)
        planes = raw.reshape(-1).view(np.uint8).reshape(-1, raw.itemsize).T
        packed = zlib.compress(np.ascontiguousarray(planes).tobytes(), 9)[2:-4]
        at = len(self.bytes)
        self.bytes += packed
        return [at, len(packed)]

    def result(self, name, tensor):
        kind, array = bits(tensor)
        lines = array.reshape(array.shape[0], -1) if array.ndim else array.reshape(1, 1)
        height = -(-len(lines) // RUNS)
        runs = [zlib.crc32(np.ascontiguousarray(lines[at : at + height]).tobytes()) for at in range(0, len(lines), height)]
        every = 1 if name not in SAMPLED else max(1, -(-lines.size // SAMPLED[name]))
        every = every + 1 - every % 2
        return {
            "type": kind,
            "shape": list(tensor.shape),
            "sha256": sha256(array),
            "rowsPerRun": height,
            "runs": self.store(np.array(runs, dtype=np.uint32)),
            "everyRow": every,
            "rows": self.store(lines[::every]),
        }

    def ask(self, dialect, case, dtype, shape, tensor_per_row=False):
        pattern = draws.draw(case, dtype, shape)
        row = {"case": case, "dtype": dtype, "shape": list(shape), "tensors": "rows" if tensor_per_row else "one", "inputs": sha256(pattern)}
        sweep = case in draws.SWEEPS
        options = dialect.sweep_options if sweep else dialect.options
        if options:
            row["options"] = options
        ask = dialect.ask_sweep if sweep and dialect.ask_sweep else dialect.ask
        x = to_torch(pattern)
        answers = None
        try:
            if tensor_per_row:
                answers = [ask(x[i : i + 1].clone()) for i in range(len(x))]
                answers = {k: torch.cat([a[k].reshape(1, -1) for a in answers]) for k in answers[0]}
            else:
                answers = ask(x.clone())
        except Exception as error:  # an exception of the package is recorded as its result
            if Path(traceback.extract_tb(error.__traceback__)[-1].filename).parent == Path(__file__).parent:
                raise
            text = str(error).strip().split("\n")
            row["raises"] = f"{type(error).__name__}: {text[0]}"[:200]
        if answers is not None:
            if dialect.model:
                self.compare(dialect, row, pattern, answers, sweep)
            row["results"] = {name: self.result(name, tensor) for name, tensor in answers.items()}
        return row

    def compare(self, dialect, row, pattern, answers, sweep):
        """Compares the model with the package, bit by bit, and prints the differences."""
        expected = dialect.model(pattern, row["tensors"] == "rows", sweep)
        differing = {}
        for name, tensor in answers.items():
            _, array = bits(tensor)
            model = canonical(TYPES[tensor.dtype][0], np.asarray(expected[name]).astype(array.dtype).reshape(array.shape))
            wrong = model != array
            if wrong.any():
                differing[name] = int(wrong.sum())
                at = np.argwhere(wrong)[0]
                print(f"  MODEL {dialect.name} {row['case']} {row['dtype']} {name}: {wrong.sum()} of {wrong.size} differ, first {at.tolist()}: package {array[tuple(at)]:#x}, model {model[tuple(at)]:#x}")
        row["model"] = "exact" if not differing else {"differing": differing}

    def add(self, dialect):
        cases = []
        if dialect.stored:
            cases.append(self.ask(dialect, "bytes", "u8", dialect.stored))
        for dtype in dialect.dtypes:
            for case in dialect.sweeps:
                if case == "steps" and dtype == "bf16":
                    continue
                cases.append(self.ask(dialect, case, dtype, (draws.rows(case), dialect.columns), dialect.tensor_per_row))
            for case in dialect.cases:
                shape = (3, 200) if case == "ragged" else (2, 256) if case == "zero" else SHAPE
                cases.append(self.ask(dialect, case, dtype, shape))
        self.rows.append({
            "dialect": dialect.name, "function": dialect.function, "elements": dialect.elements, "block": dialect.block,
            "facts": dialect.facts, "cases": cases,
        })
        counted = sum(int(np.prod(case["shape"])) for case in cases)
        raised = sorted({case["case"] for case in cases if "raises" in case})
        modelled = "modelled exactly" if all(case.get("model", "exact" if "raises" in case else None) == "exact" for case in cases) else "not modelled" if not dialect.model else "MODEL DIFFERS"
        print(f"{dialect.name}: {len(cases)} cases, {counted} elements, {modelled}, raises {raised}, {len(self.bytes) // 1024} KiB so far", flush=True)

    def write(self):
        VECTORS.mkdir(parents=True, exist_ok=True)
        (VECTORS / f"{self.file}.bin").write_bytes(self.bytes)
        text = document(self.origin, self.rows)
        (VECTORS / f"{self.file}.json").write_text(text)
        print(f"{self.file}: {len(self.rows)} dialects, {len(text) // 1024} + {len(self.bytes) // 1024} KiB")
