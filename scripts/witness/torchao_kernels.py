"""Compares torchao's quantizers with their dialects by lockstep.assert_kernel: PYTHONPATH=python python torchao_kernels.py [RUNS]

It needs torch, torchao 0.18.0 and ml_dtypes (dialects/record_all.sh installs the first two), and a built repository.
"""

import sys
import warnings

import torch
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale
from torchao.quantization.granularity import PerRow, PerTensor
from torchao.quantization.quantize_.workflows.float8.float8_tensor import Float8Tensor

import lockstep

FORMATS = {"mxfp8": torch.float8_e4m3fn, "mxfp6": "fp6_e2m3", "mxfp4": torch.float4_e2m1fn_x2}


def mx(element, mode):
    def kernel(x):
        scales, codes = to_mx(lockstep.to_torch(x), element, 32, scaling_mode=mode)
        return codes.reshape(x.shape[0], -1), scales

    return kernel


def nvfp4(x):
    q = NVFP4Tensor.to_nvfp4(lockstep.to_torch(x))
    return q.qdata, q.scale


def nvfp4_two_level(x):
    values = lockstep.to_torch(x)
    scale = per_tensor_amax_to_scale(torch.max(torch.abs(values)))
    q = NVFP4Tensor.to_nvfp4(values, per_tensor_scale=scale)
    return q.qdata, q.scale, scale


def fp8(granularity):
    def kernel(x):
        q = Float8Tensor.from_hp(lockstep.to_torch(x), torch.float8_e4m3fn, granularity=granularity)
        return q.qdata, q.scale

    return kernel


KERNELS = {
    **{
        f"torchao-{quantizer}-{mode.value}": mx(element, mode)
        for quantizer, element in FORMATS.items()
        for mode in (ScaleCalculationMode.FLOOR, ScaleCalculationMode.RCEIL, ScaleCalculationMode.CEIL, ScaleCalculationMode.EVEN)
    },
    "torchao-nvfp4": nvfp4,
    "torchao-nvfp4-two-level": nvfp4_two_level,
    "torchao-fp8-tensor": fp8(PerTensor()),
    "torchao-fp8-row": fp8(PerRow()),
}


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    failed = []
    for dialect, kernel in KERNELS.items():
        try:
            agreement = lockstep.assert_kernel(kernel, dialect=dialect, dtypes=("float32", "bfloat16"), runs=runs)
            print(f"{dialect}: {agreement} inputs", *agreement.notes, sep="\n  ", flush=True)
        except lockstep.KernelMismatch as mismatch:
            failed.append(dialect)
            print(mismatch, flush=True)
    sys.exit(f"not as their dialects: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
