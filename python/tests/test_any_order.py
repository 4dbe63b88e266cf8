"""assert_kernel(order="any"): products and sums of numpy are accepted, and wrong ones are not."""

import ml_dtypes
import numpy as np
import pytest

import lockstep


def by_blas(x, w):
    return x.astype(np.float32) @ w.astype(np.float32).T


def pairwise(x, w):
    return (x[:, None, :] * w[None, :, :]).sum(axis=2, dtype=np.float32)


def einsum(x, w):
    return np.einsum("mk,nk->mn", x, w)


def in_f64(x, w):
    return (x.astype(np.float64) @ w.astype(np.float64).T).astype(np.float32)


def in_tiles(x, w):
    """As Triton's interpreter does: blocks of 32 along K, each a product of numpy."""
    acc = np.zeros((x.shape[0], w.shape[0]), np.float32)
    for k in range(0, x.shape[1], 32):
        acc += x[:, k : k + 32].astype(np.float32) @ w[:, k : k + 32].astype(np.float32).T
    return acc


def drops_tail(x, w):
    k = x.shape[1] // 32 * 32
    return by_blas(x[:, :k], w[:, :k])


def bf16_blocks(x, w):
    acc = np.zeros((x.shape[0], w.shape[0]), ml_dtypes.bfloat16)
    for k in range(0, x.shape[1], 32):
        acc = (acc + by_blas(x[:, k : k + 32], w[:, k : k + 32]).astype(ml_dtypes.bfloat16)).astype(ml_dtypes.bfloat16)
    return acc.astype(np.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kernel", [by_blas, pairwise, einsum, in_f64, in_tiles])
def test_a_right_product_is_accepted(kernel):
    agreement = lockstep.assert_kernel(kernel, order="any", runs=24)
    assert agreement == 24
    assert any("order" in note for note in agreement.notes)


@pytest.mark.filterwarnings("ignore")
def test_the_order_of_numpy_is_named():
    notes = lockstep.assert_kernel(pairwise, order="any", runs=24).notes
    assert any("numpy's pairwise sum" in note for note in notes), notes


@pytest.mark.filterwarnings("ignore")
def test_types_of_operands_and_results():
    def product(x, w):
        return by_blas(x, w).astype(ml_dtypes.bfloat16)

    assert lockstep.assert_kernel(product, order="any", dtypes=("bfloat16", "float8_e4m3fn"), out_dtype="bfloat16", runs=16) == 32


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kernel", [drops_tail, bf16_blocks, lambda x, w: by_blas(x, w) * np.float32(1.001)])
def test_a_wrong_product_is_rejected(kernel):
    with pytest.raises(lockstep.KernelMismatch, match="wrong elements") as caught:
        lockstep.assert_kernel(kernel, order="any", runs=24)
    assert caught.value.failure["verdict"]["wrong"] > 0


@pytest.mark.filterwarnings("ignore")
def test_column_sums(assert_kernel):
    assert assert_kernel(lambda x: x.sum(axis=0, dtype=np.float32), order="any", operation="column_sum", runs=16) == 16
    with pytest.raises(lockstep.KernelMismatch):
        assert_kernel(lambda x: x[1:].sum(axis=0, dtype=np.float32), order="any", operation="column_sum", runs=16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "some"}, "order is 'some'; it must be one of reference, any"),
        ({"order": None}, "order is None; it must be one of reference, any"),
        ({"order": "any", "quantizer": "mxfp8"}, "have no quantizer; leave out 'mxfp8'"),
        ({"order": "any", "operation": "softmax"}, "operation is 'softmax'; it must be one of gemm, column_sum"),
        ({"order": "any", "dtypes": "float64"}, "dtypes is 'float64'; it must be one of float32"),
        ({"order": "any", "dtypes": ()}, "dtypes is empty"),
        ({"order": "any", "out_dtype": "int8"}, "out_dtype is 'int8'; it must be one of float32"),
        ({"order": "any", "accumulator": "int32"}, "accumulator is 'int32'; it must be one of f32, tensor-core, f64"),
    ],
)
def test_an_unknown_name_is_refused_with_the_allowed_ones(options, message):
    with pytest.raises(lockstep.LockstepError, match=message):
        lockstep.assert_kernel(by_blas, **options)


def test_an_exception_of_the_kernel_is_the_cause():
    with pytest.raises(lockstep.KernelMismatch, match="ZeroDivisionError") as caught:
        lockstep.assert_kernel(lambda x, w: 1 // 0, order="any")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
