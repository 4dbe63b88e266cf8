"""Records triton_kernels' MX formats with the PyTorch functions that the tests of its kernels compare with. vLLM's wheel contains
it:

triton_dialects.py FOLDER VERSION

FOLDER contains the package triton_kernels (vllm/third_party of the wheel); VERSION is the version of vLLM.
"""

import sys

import torch

import facts
import triton_models as models
from recorder import ORDINARY, Book, Dialect

TYPES = {"e2m1": torch.uint8, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
NAMES = {"e2m1": "triton-mxfp4", "e4m3": "triton-mxfp8", "e5m2": "triton-mxfp8-e5m2"}


def asking(mxfp, elements):
    def ask(x):
        codes, scale = mxfp.downcast_to_mxfp_torch(x, TYPES[elements], axis=-1)
        values = mxfp.upcast_from_mxfp_torch(codes, scale, torch.bfloat16 if elements == "e2m1" else x.dtype, axis=-1)
        return {"codes": codes, "scale": scale, "values": values}

    return ask


def main(folder, version):
    sys.path.insert(0, folder)
    from triton_kernels.numerics_details import mxfp

    book = Book("triton", "triton_kernels", package_version=f"vLLM {version}", beside=("torch", "triton"))
    for elements, name in NAMES.items():
        book.add(Dialect(
            name=name, function=f"triton_kernels.numerics_details.mxfp.downcast_to_mxfp_torch(x, {TYPES[elements]}, axis=-1), upcast_from_mxfp_torch",
            elements=elements, block=[1, 32], ask=asking(mxfp, elements), cases=ORDINARY, facts=facts.triton(elements), model=models.model(elements),
        ))
    book.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
