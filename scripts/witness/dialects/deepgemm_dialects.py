"""Records the block FP8 of DeepSeek's checkpoints with DeepGEMM's torch functions.

No registry has DeepGEMM. The script runs the file deep_gemm/utils/math.py of a checkout:
deepgemm_dialects.py CHECKOUT [COMMIT]
"""

import importlib.util
import subprocess
import sys
import warnings

import facts
import deepseek_models as models
from recorder import ORDINARY, Book, Dialect


def load(checkout):
    spec = importlib.util.spec_from_file_location("deepgemm_math", f"{checkout}/deep_gemm/utils/math.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def token(math, ue8m0, size):
    def ask(x):
        codes, scale = math.per_token_cast_to_fp8(x, use_ue8m0=ue8m0, gran_k=size)
        return {"codes": codes, "sf": scale}

    return ask


def block(math, ue8m0, size):
    def ask(x):
        codes, scale = math.per_block_cast_to_fp8(x, use_ue8m0=ue8m0, gran_k=size)
        return {"codes": codes, "sf": scale}

    return ask


def fp4(math, size):
    def ask(x):
        codes, scale = math.per_token_cast_to_fp4(x, use_ue8m0=True, gran_k=size)
        return {"codes": codes, "sf": scale, "values": math.cast_back_from_fp4(codes, scale, gran_k=size)}

    return ask


def main(checkout, commit=None):
    warnings.filterwarnings("ignore")
    math = load(checkout)
    commit = commit or subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    book = Book("deepgemm", "DeepGEMM", package_version=f"deep_gemm/utils/math.py at {commit}")
    for ue8m0 in (False, True):
        word = "ue8m0" if ue8m0 else "fp8"
        book.add(Dialect(
            name=f"deepseek-{word}-token", function=f"per_token_cast_to_fp8(x, use_ue8m0={ue8m0}, gran_k=128)", elements="e4m3", block=[1, 128],
            ask=token(math, ue8m0, 128), ask_sweep=token(math, ue8m0, 32), sweep_options={"gran_k": 32}, cases=ORDINARY,
            facts=facts.deepseek("token", ue8m0), model=models.deepgemm(1, 128, 32, ue8m0),
        ))
        book.add(Dialect(
            name="deepseek-ue8m0" if ue8m0 else "deepseek-fp8-block", function=f"per_block_cast_to_fp8(x, use_ue8m0={ue8m0}, gran_k=128)", elements="e4m3",
            block=[128, 128], ask=block(math, ue8m0, 128), cases=ORDINARY, sweeps=[],
            facts=facts.deepseek("block", ue8m0), model=models.deepgemm(128, 128, 32, ue8m0),
        ))
    book.add(Dialect(
        name="deepseek-mxfp4", function="per_token_cast_to_fp4(x, use_ue8m0=True, gran_k=32), cast_back_from_fp4", elements="e2m1", block=[1, 32],
        ask=fp4(math, 32), cases=ORDINARY, facts=facts.deepseek("fp4", True), model=models.deepgemm_fp4,
    ))
    book.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
