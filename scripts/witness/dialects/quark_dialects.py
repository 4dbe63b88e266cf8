"""Records AMD Quark's AMDFP4, FP4 in groups with unsigned e5m3 scales, with its observer and its CPU kernels."""

import torch
from quark.torch import kernel
from quark.torch.quantization.config.config import AmdFP4Spec
from quark.torch.quantization.observer.observer import PerBlockMXObserver
from quark.torch.utils import create_pack_method

import facts
import quark_models as models
from recorder import ORDINARY, Book, Dialect

GROUP = 16
SPEC = AmdFP4Spec(ch_axis=-1, group_size=GROUP, is_dynamic=False).to_quantization_spec()
HALF_EVEN = 8


def amdfp4(x):
    observer = PerBlockMXObserver(SPEC)
    observer(x)
    scale, zero_point = observer.calculate_qparams()
    packing = create_pack_method("per_group", "fp4")
    rounded = kernel.scaled_real_quantize("fp4", x, scale, zero_point, -1, GROUP, -6.0, 6.0, HALF_EVEN, "per_group")
    codes = packing.pack(rounded, False)
    stored = kernel.scaled_real_quantize("fp8_e5m3", scale, None, None, -1, 1, 0.0, 114688.0, HALF_EVEN, "per_group")
    read = kernel.dequantize("fp8_e5m3", stored, None, None, -1, -1, "per_tensor").to(x.dtype)
    values = kernel.dequantize("fp4", packing.unpack(codes, False), read, zero_point, -1, GROUP, "per_group")
    return {"codes": codes, "scale": stored, "values": values}


def main():
    book = Book("quark", "amd-quark")
    book.add(Dialect(
        name="quark-amdfp4", function="PerBlockMXObserver, scaled_real_quantize, Pack_fp4, dequantize", elements="e2m1", block=[1, GROUP], ask=amdfp4,
        cases=ORDINARY, facts=facts.quark(), model=models.amdfp4,
    ))
    book.write()


if __name__ == "__main__":
    main()
