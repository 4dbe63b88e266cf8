"""Frames of tensors over standard input and output (docs/protocol.md). Needs numpy only."""

import json
import struct
import sys

import numpy as np

DTYPES = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "I32": np.int32, "F16": np.float16, "F32": np.float32}


def read_frame(stream):
    """The message and the tensors of the next frame, or None at the end. bf16 tensors are returned as their bits, uint16."""
    prefix = stream.read(8)
    if len(prefix) < 8:
        return None
    payload = stream.read(*struct.unpack("<Q", prefix))
    (size,) = struct.unpack("<Q", payload[:8])
    header = json.loads(payload[8 : 8 + size])
    message = json.loads(header.pop("__metadata__")["lockstep"])
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        dtype = DTYPES.get(entry["dtype"], np.uint16)
        tensors[name] = np.frombuffer(payload[begin:end], dtype).reshape(entry["shape"])
    return message, tensors


def write_frame(stream, message, tensors):
    """Writes one frame. Tensors are unsigned integers, float16 or float32."""
    names = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    header, data = {"__metadata__": {"lockstep": json.dumps(message)}}, b""
    for name, tensor in tensors.items():
        part = np.ascontiguousarray(tensor).tobytes()
        span = [len(data), len(data) + len(part)]
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": span}
        data += part
    text = json.dumps(header).encode()
    payload = struct.pack("<Q", len(text)) + text + data
    stream.write(struct.pack("<Q", len(payload)) + payload)
    stream.flush()


def answer_cases(name, operations):
    """Answers until the input ends. `operations` maps each operation to a function and its supported inputs.

    The function gets the fields of the input, its tensors, and the types and shapes that its results must have.
    """
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while frame := read_frame(stdin):
        message, tensors = frame
        if message["type"] == "hello":
            supported = {operation: fields for operation, (_, fields) in operations.items()}
            write_frame(stdout, {"protocol": 1, "name": name, "operations": supported}, {})
        else:
            kernel, _ = operations[message["operation"]]
            write_frame(stdout, {"id": message["id"]}, kernel(message["input"], tensors, message["outputs"]))
