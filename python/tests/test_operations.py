"""Casts, quantizers and products from Python: the results of the command line, in arrays."""

import json
import os
import struct
import subprocess

import ml_dtypes
import numpy as np
import pytest

import lockstep
from lockstep._frames import read_frame, write_frame
from lockstep._process import Server, node, program


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_quantize_gives_what_the_command_line_writes(tmp_path):
    x = random(32, 64)
    with open(tmp_path / "in", "wb") as file:
        write_frame(file, None, {"x": x})
    payload = (tmp_path / "in").read_bytes()[8:]
    (tmp_path / "in").write_bytes(payload)
    words = ["quantize", "in", "-o", "out", "--quantizer", "nvfp4", "--usage", "rowwise,columnwise"]
    subprocess.run([node(), str(program()), *words], cwd=tmp_path, check=True)
    written = (tmp_path / "out").read_bytes()
    (size,) = struct.unpack("<Q", written[:8])
    header = json.loads(written[8 : 8 + size])
    q = lockstep.quantize(x, "nvfp4", usage=("rowwise", "columnwise"))
    for direction in ("rowwise", "columnwise"):
        copy = getattr(q, direction)
        for name, array in (("data", copy.data), ("scale_inv", copy.scale_inv), ("amax", copy.amax)):
            entry = header[f"x.{direction}.{name}"]
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            assert array.tobytes() == written[begin:end]
            assert list(array.shape) == entry["shape"]


@pytest.mark.parametrize("quantizer", ["fp8-current", "fp8-delayed", "fp8-block", "mxfp8", "mxfp6", "mxfp4", "nvfp4"])
def test_a_quantized_tensor_goes_back_in(quantizer):
    x = random(32, 64)
    q = lockstep.quantize(x, quantizer)
    assert q.shape == (32, 64) and q.settings["quantizer"] == quantizer
    back = q.dequantize()
    assert back.dtype == np.float32 and np.abs(back - x).max() < 1
    assert q.dequantize("bfloat16").dtype == ml_dtypes.bfloat16
    product = lockstep.gemm(q, q, datapath="exact")
    assert np.abs(product.d - back @ back.T).max() < 1e-3
    again = lockstep.gemm(q, q, plan=product.plan)
    assert lockstep.compare(again.d, product.d)


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, np.float32(0), np.int64(0), np.array(0.0)])
def test_an_option_whose_value_is_zero_is_passed_on(zero):
    x = random(2, 32)
    assert not lockstep.gemm(x, x, datapath="exact", alpha=zero).d.any()


@pytest.mark.parametrize("off", [None, False, np.bool_(False)])
def test_an_option_that_is_none_or_false_is_omitted(off):
    x = random(2, 32)
    expected = lockstep.gemm(x, x, datapath="exact", alpha=0.5)
    assert lockstep.compare(lockstep.gemm(x, x, datapath="exact", alpha=0.5, split_accumulator=off).d, expected.d)


@pytest.mark.parametrize("format", ["e4m3", "e5m2", "e2m3", "e3m2", "e8m0", "e4m3fnuz", "e5m2fnuz", "e3m4", "e4m3ieee", "bf16"])
def test_codes_have_the_types_of_ml_dtypes_and_their_values(format):
    x = np.abs(random(4, 64, seed=3)) + np.float32(0.01)
    codes = lockstep.encode(x, format)
    assert codes.dtype.itemsize == (2 if format == "bf16" else 1) and codes.shape == x.shape
    np.testing.assert_array_equal(codes.astype(np.float32), lockstep.decode(codes, format))


def test_casts_are_those_of_ml_dtypes():
    x = np.concatenate([random(4096), random(4096) * 1e-3, random(4096) * 1e3])
    inside = np.clip(x, -448, 448)
    assert lockstep.compare(lockstep.encode(inside, "e4m3"), inside.astype(ml_dtypes.float8_e4m3fn))
    assert lockstep.compare(lockstep.encode(x, "bf16"), x.astype(ml_dtypes.bfloat16))


def test_inputs_of_other_libraries_and_layouts():
    x = random(32, 64)
    expected = lockstep.quantize(x, "mxfp8").rowwise.data.tobytes()
    assert lockstep.quantize(x.astype(np.float64), "mxfp8").rowwise.data.tobytes() == expected
    assert lockstep.quantize(x.tolist(), "mxfp8").rowwise.data.tobytes() == expected
    assert lockstep.quantize(np.asfortranarray(x), "mxfp8").rowwise.data.tobytes() == expected
    assert lockstep.quantize(np.stack([x, x], axis=-1)[..., 0], "mxfp8").rowwise.data.tobytes() == expected

    class OnlyDLPack:
        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    assert lockstep.quantize(OnlyDLPack(), "mxfp8").rowwise.data.tobytes() == expected
    torch = pytest.importorskip("torch", reason="torch is not installed; its tensors were not tried")
    assert lockstep.quantize(torch.from_numpy(x), "mxfp8").rowwise.data.tobytes() == expected
    bf16 = torch.from_numpy(x).bfloat16()
    assert lockstep.quantize(bf16, "mxfp8").rowwise.data.tobytes() == lockstep.quantize(
        x.astype(ml_dtypes.bfloat16), "mxfp8"
    ).rowwise.data.tobytes()


@pytest.mark.parametrize("shape", [(0, 32), (1, 64, 32), (32,), (2, 0, 32), (32, 0)])
def test_shapes_are_those_of_the_library(shape):
    q = lockstep.quantize(np.zeros(shape, np.float32), "fp8-current")
    assert q.shape == shape and q.dequantize().shape == shape


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: lockstep.quantize(random(4, 30), "mxfp8"), "SHAPE"),
        (lambda: lockstep.quantize(random(32, 32), "mxfp9"), "ARGUMENT"),
        (lambda: lockstep.quantize(random(32, 32), "mxfp8", tyle="32x32"), "ARGUMENT"),
        (lambda: lockstep.quantize(np.zeros((32, 32), np.int8), "mxfp8"), "DTYPE"),
        (lambda: lockstep.quantize(random(32, 32), "mxfp8").dequantize("int8"), "DTYPE"),
        (lambda: lockstep.encode(random(4), "e9m9"), "ARGUMENT"),
        (lambda: lockstep.gemm(random(4, 8), random(4, 9), datapath="exact"), "FILE"),
        (lambda: lockstep.compare(np.zeros(3, np.complex64), np.zeros(3, np.complex64)), "DTYPE"),
    ],
)
def test_errors_have_codes_and_the_next_call_works(call, code):
    with pytest.raises(lockstep.LockstepError) as caught:
        call()
    assert caught.value.code == code
    assert lockstep.info()["version"]


def test_compare_counts_differences():
    x = random(8, 8)
    y = x.copy()
    y[3, 4] = 7
    assert lockstep.compare(x, x)
    found = lockstep.compare({"a": x}, {"a": y})
    assert not found and found.tensors[0]["different"] == 1 and found.tensors[0]["first"]["coordinate"] == [3, 4]


def test_a_process_that_ended_is_started_again():
    server = Server()
    first = server.run(["info"]).message["result"]
    server._process.kill()
    server._process.wait()
    assert server.run(["info"]).message["result"] == first
    server.close()
    assert server.run(["info"]).message["result"] == first
    server.close()


def test_a_forked_child_has_a_process_of_its_own():
    lockstep.info()
    child = os.fork()
    if child == 0:
        os._exit(0 if lockstep.info()["version"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lockstep.info()["version"]


def test_threads_share_one_process():
    from concurrent.futures import ThreadPoolExecutor

    x = random(32, 64)
    expected = lockstep.quantize(x, "mxfp8").rowwise.data.tobytes()
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda _: lockstep.quantize(x, "mxfp8").rowwise.data.tobytes(), range(40))
        assert all(each == expected for each in results)


def test_frames_round_trip_every_type(tmp_path):
    arrays = {"f": random(3, 5), "h": np.arange(7, dtype=np.uint16), "b": np.array([True, False]), "e": np.zeros((0, 2), np.uint8)}
    with open(tmp_path / "frame", "wb") as file:
        write_frame(file, {"id": 1}, arrays, {"key": "value"})
    with open(tmp_path / "frame", "rb") as file:
        frame = read_frame(file)
        assert read_frame(file) is None
    assert frame.message == {"id": 1} and frame.metadata == {"key": "value"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(frame.tensors[name], array)
        assert frame.tensors[name].dtype == array.dtype
