"""Every type in and out: Python returns what the command line returns, for codes of every format, and refuses other codes."""

import itertools
import multiprocessing
import pickle

import ml_dtypes
import numpy as np
import pytest

import lockstep
from lockstep._arrays import CODE_DTYPES, bits_of
from lockstep._process import SERVER

FORMATS = ["e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "e8m0", "e4m3fnuz", "e5m2fnuz", "e3m4", "e4m3ieee", "bf16", "f16", "tf32", "int8", "s2f6", "ue5m3", "int4"]
BITS = {"e2m1": 4, "int4": 4, "e2m3": 6, "e3m2": 6, "bf16": 16, "f16": 16, "tf32": 19}
UNSIGNED = {4: np.uint8, 6: np.uint8, 8: np.uint8, 16: np.uint16, 19: np.uint32, 32: np.uint32}
NUMPY_TYPES = [np.float32, np.float16, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint8, np.int8, np.bool_]
NARROW_TYPES = [*CODE_DTYPES.values(), np.dtype(ml_dtypes.float4_e2m1fn)]
SHAPES = [(), (0,), (1,), (7, 3), (2, 0, 4), (5, 1, 2)]


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def own_type(format):
    return np.dtype(ml_dtypes.float4_e2m1fn) if format == "e2m1" else CODE_DTYPES.get(format)


def by_command_line(command, x, *words):
    return SERVER.run([command, "in", "-o", "out", *words], {"in/x": x}).tensors["out/x"]


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_array_equal(a.view(np.uint8) if a.ndim else a, b.view(np.uint8) if b.ndim else b)


@pytest.mark.parametrize("format", FORMATS)
def test_decode_gives_what_the_command_line_gives_for_codes_of_every_type(format):
    bits = BITS.get(format, 8)
    codes = np.arange(2 ** max(bits, 8) if bits < 19 else 2**14, dtype=UNSIGNED[bits]) & (2 ** (8 if bits == 4 else bits) - 1)
    codes = codes.astype(UNSIGNED[bits]).reshape(-1, 16)
    expected = by_command_line("decode", codes, f"--format={format}")
    same(lockstep.decode(codes, format), expected)
    dtype = own_type(format)
    if format == "e2m1":
        one_by_one = np.stack([codes & 15, codes >> 4], axis=-1).reshape(16, 32).view(dtype)
        same(lockstep.decode(one_by_one, format), expected)
        np.testing.assert_array_equal(one_by_one.astype(np.float32), expected)
    elif dtype is not None:
        same(lockstep.decode(codes.view(dtype), format), expected)
        np.testing.assert_array_equal(codes.view(dtype).astype(np.float32), expected)


@pytest.mark.parametrize("format", FORMATS)
def test_encode_gives_what_the_command_line_gives_for_inputs_of_every_type(format):
    for dtype, shape in itertools.product([np.float32, ml_dtypes.bfloat16, np.float16], [(0,), (6, 2), (2, 0, 4)]):
        x = random(*shape, seed=3).astype(dtype)
        codes = lockstep.encode(x, format)
        assert codes.dtype == (CODE_DTYPES.get(format) or UNSIGNED[BITS.get(format, 8)])
        np.testing.assert_array_equal(codes.view(UNSIGNED[BITS.get(format, 8)]), by_command_line("encode", x, f"--format={format}"))
        np.testing.assert_array_equal(lockstep.decode(codes, format).shape, shape)


def test_the_even_element_is_in_the_low_nibble():
    values = np.array([0.5, 1.0, -6.0, 0.0], np.float32)
    assert lockstep.encode(values, "e2m1").tolist() == [0x21, 0x0F]
    assert lockstep.decode(np.array([0x21, 0x0F], np.uint8), "e2m1").tolist() == values.tolist()
    assert lockstep.decode(values.astype(ml_dtypes.float4_e2m1fn), "e2m1").tolist() == values.tolist()
    q = lockstep.quantize(np.tile(np.array([6, 0, 1, 0], np.float32), 8).reshape(1, 32), "mxfp4").rowwise
    assert q.data[0, :2].tolist() == [0x07, 0x02]


@pytest.mark.parametrize("format", FORMATS)
def test_what_are_no_codes_of_a_format_is_refused(format):
    own = own_type(format)
    size = np.dtype(UNSIGNED[BITS.get(format, 8)]).itemsize
    for dtype in [np.dtype(each) for each in [*NUMPY_TYPES, *NARROW_TYPES]]:
        is_code = dtype == own or (dtype.itemsize == size and (dtype.kind == "u" or dtype == np.int8))
        codes = np.zeros((2, 4), dtype)
        if is_code:
            lockstep.decode(codes, format)
            continue
        with pytest.raises(lockstep.LockstepError) as caught:
            lockstep.decode(codes, format)
        assert caught.value.code == "DTYPE" and str(dtype) in str(caught.value), (dtype, caught.value)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_are_kept_and_an_odd_number_of_4_bit_codes_is_refused(shape):
    x = random(*shape, seed=1)
    for format in ("e4m3", "bf16", "tf32"):
        same(lockstep.decode(lockstep.encode(x, format), format), by_command_line("decode", by_command_line("encode", x, f"--format={format}"), f"--format={format}"))
    four = x.astype(ml_dtypes.float4_e2m1fn)
    if shape and shape[-1] % 2 == 0:
        np.testing.assert_array_equal(lockstep.decode(four, "e2m1"), four.astype(np.float32))
        return
    for call in (lambda: lockstep.encode(x, "e2m1"), lambda: lockstep.decode(four, "e2m1")):
        with pytest.raises(lockstep.LockstepError) as caught:
            call()
        assert caught.value.code == "SHAPE"


VIEWS = {
    "transposed": np.transpose,
    "reversed": lambda x: x[..., ::-1] if x.ndim else x,
    "broadcast": lambda x: np.broadcast_to(x, (2, *x.shape)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_have_the_shape_and_the_bits_of_their_copies(view, shape):
    for dtype in (np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8):
        x = view(random(*shape, seed=2).astype(dtype))
        bits = bits_of(x)
        assert bits.dtype == UNSIGNED[8 * x.itemsize] and bits.shape == x.shape
        assert bits.tobytes() == x.tobytes()
    x = view(random(*shape, seed=2))
    codes = lockstep.encode(x, "e4m3")
    same(codes, lockstep.encode(x.copy(order="C"), "e4m3"))
    same(lockstep.decode(view(lockstep.encode(random(*shape, seed=2), "e4m3")), "e4m3"), lockstep.decode(codes, "e4m3"))


@pytest.mark.parametrize("dtype", [np.dtype(each) for each in [*NUMPY_TYPES[:6], np.uint8, np.int8, *NARROW_TYPES]], ids=str)
def test_compare_sees_one_bit_of_every_type(dtype):
    bits = np.arange(8, dtype=np.uint8).repeat(dtype.itemsize) & 7
    one, other = bits.view(dtype).reshape(2, 4), bits.copy()
    other[3 * dtype.itemsize] ^= 1
    assert lockstep.compare(one, one.copy())
    assert not lockstep.compare(one, other.view(dtype).reshape(2, 4))


def test_formats_have_the_names_of_other_projects():
    x = random(4, 8)
    for alias, format in (("float8_e4m3fn", "e4m3"), ("bfloat16", "bf16"), ("float6_e2m3fn", "e2m3"), ("fp4", "e2m1")):
        codes = lockstep.encode(x, alias)
        same(codes, lockstep.encode(x, format))
        same(lockstep.decode(codes, alias), lockstep.decode(codes, format))


@pytest.mark.parametrize("quantizer", ["fp8-current", "fp8-delayed", "fp8-block", "fp8-row", "mxfp8", "mxfp6", "mxfp4", "mxint8", "nvfp4", "int8-row", "int4-group"])
@pytest.mark.parametrize("usage", ["rowwise", "columnwise"])
def test_usage_is_one_form_and_results_are_those_of_the_command_line(quantizer, usage):
    x = random(32, 128)
    q = lockstep.quantize(x, quantizer, usage=usage)
    for form in ([usage], (usage,)):
        again = lockstep.quantize(x, quantizer, usage=form)
        same(getattr(again, usage).data, getattr(q, usage).data)
    frame = SERVER.run(["quantize", "in", "-o", "out", f"--quantizer={quantizer}", f"--usage={usage}"], {"in/x": x})
    copy = getattr(q, usage)
    assert copy.data.tobytes() == frame.tensors[f"out/x.{usage}.data"].tobytes()
    assert copy.scale_inv.tobytes() == frame.tensors[f"out/x.{usage}.scale_inv"].tobytes()
    assert getattr(q, "columnwise" if usage == "rowwise" else "rowwise") is None


def test_a_dialect_fixes_the_quantizer_and_dequantizes_as_its_library_does():
    x = random(32, 64).astype(ml_dtypes.bfloat16)
    q = lockstep.quantize(x, dialect="modelopt-nvfp4")
    assert q.settings["quantizer"] == "nvfp4"
    values = q.dequantize("bfloat16", dialect="modelopt-nvfp4")
    tensors, metadata = q._tensors("in/x")
    frame = SERVER.run(["dequantize", "in", "-o", "out", "--dtype=bf16", "--dialect=modelopt-nvfp4"], tensors, metadata)
    same(values, frame.tensors["out/x"])
    ct = lockstep.quantize(random(32, 64), dialect="ct-mxfp8")
    as_bf16 = ct.dequantize().astype(ml_dtypes.bfloat16).astype(np.float32)
    assert lockstep.compare(lockstep.dequantize(ct, dialect="ct-mxfp8"), as_bf16)
    assert lockstep.explain(x, at=(0, 0), dialect="ocp-mxfp8").steps["spec"]["scaleRule"] == "e8m0Floor"
    with pytest.raises(lockstep.LockstepError):
        q.dequantize(dialect="ct-mxfp8")


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: lockstep.decode(random(4), "e4m3"), lockstep.LockstepError, "codes are float32"),
        (lambda: lockstep.decode(np.zeros(4, np.int64), "e4m3"), lockstep.LockstepError, "int64"),
        (lambda: lockstep.dequantize(random(4)), TypeError, "QuantizedTensor"),
        (lambda: lockstep.quantize(random(4, 32)), lockstep.LockstepError, "quantizer"),
        (lambda: lockstep.quantize(random(4, 32), "mxfp8", usage=5), lockstep.LockstepError, "usage is 5"),
        (lambda: lockstep.quantize(random(4, 32), "mxfp8", usage="both"), lockstep.LockstepError, "rowwise, columnwise"),
        (lambda: lockstep.quantize(random(4, 32), "mxfp8", output="y"), lockstep.LockstepError, "output is no option"),
        (lambda: lockstep.quantize(random(4, 32), "mxfp8", tensors="y"), lockstep.LockstepError, "tensors is no option"),
        (lambda: lockstep.quantize(random(4, 32), "mxfp8", help=True), lockstep.LockstepError, "help is no option"),
        (lambda: lockstep.explain(random(4, 32), "mxfp8", (0.5, 1)), TypeError, "each index must be an integer"),
        (lambda: lockstep.explain(random(4, 32), "mxfp8"), TypeError, "at is None"),
        (lambda: lockstep.explain(random(4, 32), "mxfp8", (0, 1), usage=("rowwise", "columnwise")), lockstep.LockstepError, "must be one of"),
        (lambda: lockstep.quantize([[1.0], [1.0, 2.0]], "mxfp8"), lockstep.LockstepError, "is no array"),
        (lambda: lockstep.identify(random(1, 32), random(1, 32), np.zeros((1, 1), np.uint8)), lockstep.LockstepError, "codes is float32"),
        (lambda: lockstep.compare(np.zeros(4, ml_dtypes.float6_e2m3fn), np.zeros(4, np.uint8)), lockstep.LockstepError, "float6_e2m3fn"),
    ],
)
def test_wrong_arguments_are_told_what_is_needed(call, error, said):
    with pytest.raises(error, match=said):
        call()


def refused(_):
    lockstep.quantize(random(4, 30), "mxfp8")


def test_errors_survive_a_process_pool():
    for error in (lockstep.LockstepError("SHAPE", "too short"), lockstep.KernelMismatch("no", {"seed": 1})):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(lockstep.LockstepError) as caught:
        pool.map_async(refused, [0]).get(timeout=60)
    assert caught.value.code == "SHAPE"


def test_pytorch_tensors_of_every_type_go_in_and_come_out():
    torch = pytest.importorskip("torch", reason="torch is not installed; its tensors were not tried")
    codes = np.arange(256, dtype=np.uint8).reshape(8, 32)
    for format in ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0", "e2m1"):
        array = lockstep.encode(random(8, 32), format) if format == "e2m1" else codes.view(CODE_DTYPES[format])
        array = np.stack([array & 15, array >> 4], axis=-1).reshape(8, 32).view(ml_dtypes.float4_e2m1fn) if format == "e2m1" else array
        tensor = lockstep.to_torch(array)
        assert tensor.dtype == getattr(torch, "float4_e2m1fn_x2" if format == "e2m1" else array.dtype.name)
        same(lockstep.decode(tensor, format), lockstep.decode(array, format))
        assert lockstep.compare(tensor, array)
    x = random(32, 64)
    for dialect in ("torchao-mxfp8-floor", "torchao-mxfp4-rceil"):
        q = lockstep.quantize(lockstep.to_torch(x), dialect=dialect).rowwise
        data = q.data if q.data.dtype != np.uint8 else np.stack([q.data & 15, q.data >> 4], axis=-1).reshape(32, 64).view(ml_dtypes.float4_e2m1fn)
        assert dialect in lockstep.identify(x, lockstep.to_torch(data), lockstep.to_torch(q.scale_inv)).dialects
    product = lockstep.gemm(lockstep.to_torch(x.astype(ml_dtypes.float8_e4m3fn)), x.astype(ml_dtypes.float8_e4m3fn), datapath="hopper")
    assert product.d.shape == (32, 32)
