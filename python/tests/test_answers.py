"""explain, diff and identify agree with the results of quantize and gemm."""

import dataclasses
import math

import ml_dtypes
import mxfp8
import numpy as np
import pytest

import lockstep

SPECIALS = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38, 1.0625, -1.1875], np.float32)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def packed_code(data, row, column):
    return data[row, column // 2] >> 4 * (column % 2) & 15


@pytest.mark.parametrize(
    ("quantizer", "options"),
    [
        ("mxfp8", {}),
        ("mxfp8", {"format": "e5m2"}),
        ("mxfp8", {"dialect": "torchao-mxfp8-floor"}),
        ("fp8-current", {}),
        ("fp8-block", {"tile": "1x128"}),
        ("nvfp4", {}),
        ("mxfp4", {"dialect": "ct-mxfp4"}),
    ],
)
def test_explained_codes_and_scales_are_those_of_quantize(quantizer, options):
    x = random(3, 128, seed=5)
    x[1, : len(SPECIALS)] = SPECIALS
    q = lockstep.quantize(x, quantizer, **options).rowwise
    data, scales = q.data.view(np.uint8), q.scale_inv.reshape(-1)
    for at in [(0, 0), (2, 127), (1, 127), *((1, k) for k in range(len(SPECIALS)))]:
        explanation = lockstep.explain(x, quantizer, at, **options)
        steps = explanation.steps
        code = data[at] if data.shape == x.shape else packed_code(data, *at)
        assert (steps["code"], steps["at"]) == (code, list(at))
        np.testing.assert_array_equal(np.float32(steps["input"]), x[at])
        assert math.copysign(1, steps["input"]) == math.copysign(1, x[at]) or math.isnan(x[at])
        np.testing.assert_array_equal(np.float32(steps["scale"]["value"]), np.float32(scales[steps["scale"]["index"]]))
        assert str(explanation).splitlines() == list(explanation.lines) and len(explanation.lines) > 8


def test_the_columnwise_copy_and_leading_dimensions_are_explained():
    x = random(2, 32, 64)
    q = lockstep.quantize(x, "mxfp8", usage=["columnwise"]).columnwise
    explanation = lockstep.explain(x, "mxfp8", (1, 3, 7), usage="columnwise")
    assert explanation.steps["direction"] == "columnwise"
    assert explanation.steps["code"] == q.data.view(np.uint8)[35, 7]
    assert lockstep.explain(x, None, (1, 3, 7), dialect="ocp-mxfp8").steps["spec"]["scaleRule"] == "e8m0Floor"


@pytest.mark.parametrize(
    ("datapath", "dtype"), [("exact", "float32"), ("fp32", "float32"), ("hopper", "float8_e4m3fn"), ("blackwell", "bfloat16")]
)
def test_explained_elements_of_a_product_are_those_of_gemm(datapath, dtype):
    x, w = random(4, 96).astype(dtype), random(5, 96, seed=1).astype(dtype)
    more = {"bias": random(5, seed=2), "c": random(4, 5, seed=3), "beta": 0.5, "datapath": datapath, "out_dtype": "bf16"}
    product = lockstep.gemm(x, w, **more)
    for at in [(0, 0), (3, 4), (1, 2)]:
        explanation = lockstep.explain_gemm(x, w, at, **more)
        assert explanation.steps["out"]["code"] == product.d.view(np.uint16)[at]
        assert explanation.steps["depth"] == 96
    q = lockstep.quantize(random(4, 96), "mxfp8")
    planned = lockstep.gemm(q, q, datapath="hopper", split_k=2)
    explained = lockstep.explain_gemm(q, q, (2, 1), plan=planned.plan)
    assert explained.steps["out"]["value"] == planned.d[2, 1]


@pytest.mark.parametrize("beta", [1, 0.5, -2, 0])
def test_a_product_adds_beta_times_c(beta):
    x, w, c = np.round(random(3, 8) * 4), np.round(random(5, 8, seed=1) * 4), np.round(random(3, 5, seed=2) * 4)
    np.testing.assert_array_equal(lockstep.gemm(x, w, c=c, beta=beta, datapath="exact").d, x @ w.T + beta * c)


@pytest.mark.parametrize("on", [True, False])
def test_a_flag_of_numpy_is_one_of_python(on):
    x = random(4, 64)
    explained = [lockstep.quantize(x, "nvfp4", four_over_six=flag).rowwise.data for flag in (on, np.bool_(on))]
    np.testing.assert_array_equal(*explained)


@pytest.mark.parametrize(
    ("a", "b"),
    [("te", "torchao-mxfp8-floor"), ("torchao-mxfp8-floor", "torchao-mxfp8-rceil"), ("ocp-mxfp8", "ocp-mxfp8")],
)
def test_counts_of_diff_are_those_of_both_quantizations(a, b):
    x = random(16, 64, seed=7)
    found = lockstep.diff(x, a, b, quantizer="mxfp8", format="e4m3", tile="1x32", examples=3)
    made = [lockstep.quantize(x, "mxfp8", dialect=each).rowwise for each in (a, b)]
    for name, part in (("codes", "data"), ("scales", "scale_inv")):
        one, other = (getattr(each, part).view(np.uint8) for each in made)
        assert found.counts[name] == {"different": int((one != other).sum()), "of": one.size}
    assert bool(found) == (found.counts["codes"]["different"] > 0) == (a != b)
    assert len(found.examples) == min(3, found.counts["scales"]["different"])
    assert str(found).count("\n") == len(found.examples) and a in str(found)
    rule = lockstep.explain(x, "mxfp8", (0, 0), dialect=b).steps["spec"]["scaleRule"]
    assert found.settings["b"]["scaleRule"] == rule


@pytest.mark.parametrize("different", [(), ("scales",), ("codes",), ("values",), ("scales", "codes", "values")])
def test_a_difference_of_any_kind_is_true(different):
    equal = lockstep.diff(np.ones((1, 32), np.float32), "te", "te", quantizer="mxfp8")
    assert not equal and all(counts["different"] == 0 for counts in equal.counts.values())
    counts = {name: {**counts, "different": int(name in different)} for name, counts in equal.counts.items()}
    assert bool(dataclasses.replace(equal, counts=counts)) == (len(different) > 0)


def test_diff_without_errors_has_an_infinite_ratio():
    found = lockstep.diff(np.ones((1, 32), np.float32), "te", "ocp-mxfp8", quantizer="mxfp8")
    assert found.errors["a"] == {"max": 0, "sqnr": math.inf}


@pytest.mark.parametrize(
    ("quantizer", "dialect"),
    [
        ("mxfp8", "te"),
        ("mxfp8", "torchao-mxfp8-floor"),
        ("mxfp8", "torchao-mxfp8-even"),
        ("mxfp4", "ct-mxfp4"),
        ("nvfp4", "torchao-nvfp4"),
        ("fp8-row", "fbgemm-fp8"),
    ],
)
def test_a_dialect_is_identified_by_what_it_makes(quantizer, dialect):
    x = random(32, 128, seed=11)
    x[:, ::16] *= np.exp2(np.random.default_rng(1).integers(-6, 7, (32, 8))).astype(np.float32)
    q = lockstep.quantize(x, quantizer, dialect=dialect).rowwise
    found = lockstep.identify(x, q.data, q.scale_inv, tensor_scale=q.amax, quantizer=quantizer)
    assert found and dialect in found.dialects and found.nearest is None
    assert dialect not in found.excluded and len(found.excluded) > 0
    assert str(found) == found.words


def test_a_mistake_is_identified_and_nonsense_is_not():
    x = random(16, 64, seed=3)
    codes, scales = mxfp8.floor_scales(x)
    assert "ocp-mxfp8" in lockstep.identify(x, codes, scales).dialects
    packed = lockstep.quantize(x, "mxfp4", dialect="ocp-mxfp4").rowwise
    swapped = packed.data << 4 | packed.data >> 4
    assert "swapped" in lockstep.identify(x, swapped, packed.scale_inv).words
    unpacked = np.stack([packed.data & 15, packed.data >> 4], axis=-1).reshape(x.shape).view(ml_dtypes.float4_e2m1fn)
    assert "ocp-mxfp4" in lockstep.identify(x, unpacked, packed.scale_inv.view(np.uint8)).dialects
    nonsense = lockstep.identify(x, np.arange(x.size, dtype=np.uint8).reshape(x.shape), scales)
    assert not nonsense and nonsense.nearest is not None and nonsense.dialects == []


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: lockstep.explain(random(4, 32), "mxfp8", (4, 0)), "ARGUMENT"),
        (lambda: lockstep.explain(random(4, 32), "mxfp8", (0,)), "ARGUMENT"),
        (lambda: lockstep.explain(random(4, 32), "mxfp8", (-1, 0)), "ARGUMENT"),
        (lambda: lockstep.explain(random(4, 30), "mxfp8", (0, 0)), "SHAPE"),
        (lambda: lockstep.explain(np.zeros((4, 32), np.int8), "mxfp8", (0, 0)), "DTYPE"),
        (lambda: lockstep.explain_gemm(random(4, 8), random(4, 8), (0, 4), datapath="exact"), "ARGUMENT"),
        (lambda: lockstep.diff(random(4, 32), "te", "tea"), "ARGUMENT"),
        (lambda: lockstep.diff(random(4, 32), "ocp-mxfp8", "torchao-nvfp4"), "ARGUMENT"),
        (lambda: lockstep.identify(np.full((1, 32), np.nan, np.float32), np.zeros((1, 32), np.uint8), np.zeros((1, 1), np.uint8)), "ARGUMENT"),
        (lambda: lockstep.identify(random(1, 32), np.zeros(7, np.uint8), np.zeros((1, 1), np.uint8)), "SHAPE"),
    ],
)
def test_errors_have_codes(call, code):
    with pytest.raises(lockstep.LockstepError) as caught:
        call()
    assert caught.value.code == code
