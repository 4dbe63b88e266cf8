"""Records microxcaling's MX quantizer, which returns values but no codes. No registry has microxcaling:

microxcaling_dialects.py CHECKOUT [COMMIT]
"""

import subprocess
import sys
import warnings

import facts
import microxcaling_models as models
from recorder import ORDINARY, Book, Dialect

FORMATS = {"e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2", "e3m2": "fp6_e3m2", "e2m3": "fp6_e2m3", "e2m1": "fp4_e2m1", "int8": "int8"}
NAMES = {"e4m3": "mxfp8", "e5m2": "mxfp8-e5m2", "e3m2": "mxfp6-e3m2", "e2m3": "mxfp6-e2m3", "e2m1": "mxfp4", "int8": "mxint8"}


def asking(mx, elements, rounding):
    specs = mx.finalize_mx_specs({"scale_bits": 8, "block_size": 32, "shared_exp_method": "max", "custom_cuda": False, "w_elem_format": FORMATS[elements], "a_elem_format": FORMATS[elements]})
    return lambda x: {"values": mx.mx_ops.quantize_mx_op(x, specs, elem_format=FORMATS[elements], block_size=32, axes=[-1], round=rounding)}


def main(checkout, commit=None):
    warnings.filterwarnings("ignore")
    sys.path.insert(0, checkout)
    import mx
    import mx.mx_ops

    commit = commit or subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    book = Book("microxcaling", "microxcaling", package_version=f"commit {commit}")
    for rounding in ("nearest", "even", "floor"):
        for elements in FORMATS:
            if rounding == "floor" and elements not in ("e4m3", "e2m1"):
                continue
            book.add(Dialect(
                name=f"ocp-{NAMES[elements]}" + ("" if rounding == "nearest" else f"-{rounding}"),
                function=f"mx.mx_ops.quantize_mx_op(x, scale_bits 8, '{FORMATS[elements]}', block_size=32, axes=[-1], round='{rounding}')", elements=elements,
                block=[1, 32], ask=asking(mx, elements, rounding), cases=ORDINARY, facts=facts.ocp(elements, rounding), model=models.model(elements, rounding),
            ))
    book.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
