"""A kernel of any dialect can be tested: the library's result is accepted, and refused with one bit changed."""

import numpy as np
import pytest

import lockstep
from lockstep._process import SERVER

ROWS = {row["name"]: row for row in SERVER.run(["dialects"]).message["result"]["dialects"]}


def kernel_of(dialect, spoilt=0, **options):
    def kernel(x):
        copy = lockstep.quantize(x, dialect=dialect, **options).rowwise
        data = np.array(copy.data.view(np.uint8))
        data[0, 0] ^= spoilt
        parts = (data, copy.scale_inv, copy.amax)
        has_amax = copy.amax is not None and dialect not in ("torchao-nvfp4", "gguf-nvfp4")
        return parts if has_amax else parts[:2]

    return kernel


@pytest.mark.parametrize("dialect", ROWS)
def test_a_right_kernel_of_every_dialect_is_accepted(dialect):
    agreement = lockstep.assert_kernel(kernel_of(dialect), dialect=dialect, runs=3)
    assert agreement <= 3
    left_out = [note for note in agreement.notes if note.startswith("no input has")]
    assert len(left_out) == len(ROWS[dialect].get("nonFinite", {}))


@pytest.mark.parametrize("dialect", ["torchao-nvfp4", "deepseek-fp8-block", "deepseek-ue8m0", "fbgemm-fp8-ub1200", "ct-int4-group"])
def test_one_wrong_bit_is_refused(dialect):
    with pytest.raises(lockstep.KernelMismatch, match=f"kernel is not {dialect}"):
        lockstep.assert_kernel(kernel_of(dialect, spoilt=1), dialect=dialect, runs=3)


def test_any_epsilon_can_be_tested():
    options = {"pow2_scales": False, "scale_rule": "f32Quotient", "element_scaling": "divide", "amax_epsilon": float(np.float32(1e-12) * 448)}

    def kernel(x, epsilon=options["amax_epsilon"]):
        copy = lockstep.quantize(x, "fp8-block", **{**options, "amax_epsilon": epsilon}).rowwise
        return copy.data, copy.scale_inv

    assert lockstep.assert_kernel(kernel, "fp8-block", runs=5, **options) == 5
    with pytest.raises(lockstep.KernelMismatch):
        lockstep.assert_kernel(lambda x: kernel(x, 0), "fp8-block", runs=40, **options)


def test_nan_and_infinities_are_drawn_where_they_are_asked_for():
    seen = []

    def kernel(x):
        seen.append(x)
        copy = lockstep.quantize(x, dialect="fbgemm-fp8").rowwise
        return copy.data, copy.scale_inv

    lockstep.assert_kernel(kernel, dialect="fbgemm-fp8", runs=20)
    assert not any(np.isnan(x).any() for x in seen) and any(np.isinf(x).any() for x in seen)
    assert all(x.size for x in seen)
    seen.clear()
    assert lockstep.assert_kernel(kernel, dialect="fbgemm-fp8", runs=20, nonfinite=True).notes == (
        "codes that are NaN are equal whatever their signs",
    )
    assert any(np.isnan(x).any() for x in seen)
    seen.clear()
    lockstep.assert_kernel(kernel, dialect="fbgemm-fp8", runs=20, nonfinite=False)
    assert all(np.isfinite(x).all() for x in seen)


@pytest.mark.parametrize("options, has_note", [({"dialect": "torchao-fp8-row"}, True), ({"quantizer": "mxfp8"}, False)])
def test_the_notes_say_that_a_rule_divides_zero_by_zero(options, has_note):
    def kernel(x):
        copy = lockstep.quantize(x, **options).rowwise
        return copy.data, copy.scale_inv

    def wrong(x):
        data, scales = kernel(x)
        return data.view(np.uint8) ^ 1, scales

    notes = [note for note in lockstep.assert_kernel(kernel, runs=5, **options).notes if "0 / 0" in note]
    with pytest.raises(lockstep.KernelMismatch) as caught:
        lockstep.assert_kernel(wrong, runs=5, **options)
    printed = [line for line in str(caught.value).splitlines() if line.startswith("note: ") and "0 / 0" in line]
    assert printed == [f"note: {note}" for note in notes]
    assert len(notes) == has_note
    assert all("a block of zeros is 0 / 0 by" in note for note in notes)


def test_a_scale_may_be_of_a_type_and_shape_that_means_the_same():
    def kernel(x):
        copy = lockstep.quantize(x, dialect="torchao-fp8-row").rowwise
        return copy.data, copy.scale_inv.reshape(-1, 1)

    lockstep.assert_kernel(kernel, dialect="torchao-fp8-row", runs=3)


    def of_another_format(x):
        import ml_dtypes

        codes, scales = kernel(x)
        return codes.view(ml_dtypes.float8_e5m2), scales

    with pytest.raises(lockstep.KernelMismatch, match="data is float8_e5m2; it must be float8_e4m3fn"):
        lockstep.assert_kernel(of_another_format, dialect="torchao-fp8-row", runs=3)
