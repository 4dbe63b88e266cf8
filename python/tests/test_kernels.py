"""assert_kernel: a correct kernel passes, and each wrong one fails with a counterexample."""

import mxfp8
import numpy as np
import pytest

import lockstep


def test_a_right_kernel_holds(assert_kernel):
    assert assert_kernel(mxfp8.quantize, "mxfp8", runs=200) == 200


def test_a_right_kernel_holds_for_every_type_of_input():
    lockstep.assert_kernel(mxfp8.quantize, "mxfp8", dtypes=("bfloat16", "float16"))


def test_what_the_library_computes_is_right_in_every_copy_and_quantizer():
    for quantizer, usage in (("nvfp4", "columnwise"), ("mxfp4", "rowwise"), ("fp8-current", "rowwise")):

        def kernel(x):
            copy = getattr(lockstep.quantize(x, quantizer, usage=[usage]), usage)
            return (copy.data, copy.scale_inv) if copy.amax is None else (copy.data, copy.scale_inv, copy.amax)

        assert lockstep.assert_kernel(kernel, quantizer, usage=usage, runs=20) == 20


@pytest.mark.parametrize("options", [{"format": "e5m2"}, {"tile": "32x32"}, {"dialect": "ct-mxfp8"}])
def test_options_are_those_of_quantize(options):
    def kernel(x):
        copy = lockstep.quantize(x, "mxfp8", **options).rowwise
        return copy.data, copy.scale_inv

    lockstep.assert_kernel(kernel, "mxfp8", runs=20, **options)
    with pytest.raises(lockstep.KernelMismatch):
        lockstep.assert_kernel(kernel, "mxfp8", runs=50)


@pytest.mark.parametrize(
    ("kernel", "mistake"),
    [
        (mxfp8.floor_scales, "the scale rule is e8m0Floor .*ocp-mxfp8"),
        (mxfp8.truncated, "elements are truncated toward zero"),
        (mxfp8.loses_sign_of_zero, "-0 counts as [+]0 in inputs"),
    ],
)
def test_a_mistake_is_named_and_explained(kernel, mistake):
    with pytest.raises(lockstep.KernelMismatch, match=f"looks like: .*{mistake}") as caught:
        lockstep.assert_kernel(kernel, "mxfp8")
    found = caught.value.failure["found"]
    assert "x = f32 [1, 32]" in found["text"]
    assert any("amax" in line for line in found["explanation"])


def test_a_dialect_is_what_a_kernel_is_held_to():
    lockstep.assert_kernel(mxfp8.floor_scales, "mxfp8", dialect="ocp-mxfp8")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (mxfp8.floor_scales, "elements differ"),
        (mxfp8.truncated, "rowwise.data: .* elements differ"),
        (mxfp8.loses_sign_of_zero, "expected 0x80 \\(-0\\)"),
        (mxfp8.wrong_shape, "rowwise.data"),
        (lambda x: mxfp8.quantize(x)[:1], "the answer has rowwise.data; it has to have"),
        (lambda x: np.zeros(3), "rowwise.data is F32 \\[3\\]; it has to be U8"),
    ],
)
def test_a_wrong_kernel_fails_with_its_counterexample(kernel, message):
    with pytest.raises(lockstep.KernelMismatch, match=message) as caught:
        lockstep.assert_kernel(kernel, "mxfp8")
    failure = caught.value.failure
    assert failure["path"] and '"quantizer":"mxfp8"' in failure["counterexample"]
    assert "seed 1" in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        (mxfp8.raises, RuntimeError, "it raised RuntimeError: out of registers"),
        (lambda x: None, TypeError, "TypeError: the kernel returned None; codes, scales"),
        (lambda x: (1, 2, 3, 4), TypeError, "TypeError: the kernel returned 4 arrays"),
    ],
)
def test_an_exception_of_the_kernel_is_the_cause_and_is_not_shrunk(kernel, error, message):
    calls = []

    def counted(x):
        calls.append(x)
        return kernel(x)

    with pytest.raises(lockstep.KernelMismatch, match=message) as caught:
        lockstep.assert_kernel(counted, "mxfp8")
    assert isinstance(caught.value.__cause__, error)
    assert len(calls) == 1 and caught.value.failure["input"] is calls[0]
    assert f"float32 {list(calls[0].shape)}" in str(caught.value)


def test_only_settings_that_are_not_the_usual_ones_are_printed():
    with pytest.raises(lockstep.KernelMismatch) as caught:
        lockstep.assert_kernel(mxfp8.truncated, "mxfp8")
    assert '{"spec":{"quantizer":"mxfp8"}}; x = f32 [1, 32]' in caught.value.failure["found"]["text"]
    with pytest.raises(lockstep.KernelMismatch) as caught:
        lockstep.assert_kernel(mxfp8.truncated, "mxfp8", dialect="ocp-mxfp8")
    assert '{"spec":{"quantizer":"mxfp8","scaleRule":"e8m0Floor"}}; x =' in caught.value.failure["found"]["text"]


def test_pytest_shows_the_frames_of_the_user(pytester):
    pytester.makepyfile(
        """
        def broken(x):
            raise RuntimeError("out of registers")

        def test_broken(assert_kernel):
            assert_kernel(broken, "mxfp8")
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    text = "\n".join(result.outlines)
    assert 'raise RuntimeError("out of registers")' in text and "direct cause" in text
    assert "kernels.py" not in text and "pytest_plugin.py" not in text


@pytest.mark.parametrize(
    "options", [{"quantizer": "mxfp9"}, {"format": "e9m9"}, {"tile": "3x3"}, {"pow2scales": True}, {"dialect": "ct-mxfp9"}, {"usage": "both"}, {"dtypes": ["int8"]}]
)
def test_what_does_not_exist_is_refused(options):
    with pytest.raises(lockstep.LockstepError):
        lockstep.assert_kernel(mxfp8.quantize, **{"quantizer": "mxfp8", **options})


def test_the_plugin_takes_runs_and_seed_from_the_command_line(pytester):
    pytester.makepyfile(
        """
        import lockstep

        def test_right(assert_kernel):
            def kernel(x):
                copy = lockstep.quantize(x, "mxfp6").rowwise
                return copy.data, copy.scale_inv
            assert assert_kernel(kernel, "mxfp6") == 7
        """
    )
    pytester.runpytest_subprocess("--lockstep-runs", "7", "--lockstep-seed", "5").assert_outcomes(passed=1)
