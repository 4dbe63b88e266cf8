"""Records the results of TransformerEngine for quantizers, modules and their state, with which the tests compare Lockstep.

python3 scripts/witness/te_vectors.py FOLDER [NAME ...], on a machine with an H100 or H200, torch and TransformerEngine.

Inputs are identified by kind and seed (te_draws.py). A result is recorded as its first bits and the SHA-256 of all its bits,
row-major, with every NaN of a wide type replaced by 0x7fff or 0x7fffffff. If a replay counts differences, all bits are recorded
in base64. Each product has the cuBLASLt algorithms that TransformerEngine chose, read from cuBLASLt's log.
"""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys

# isort: off
from te_environment import LOG

# isort: on
import numpy as np
import torch
import transformer_engine
import transformer_engine.pytorch as te
import transformer_engine_torch as tex
from te_draws import draw
from transformer_engine.common import recipe as recipes
from transformer_engine.pytorch.tensor.float8_blockwise_tensor import Float8BlockQuantizer
from transformer_engine.pytorch.tensor.float8_tensor import Float8CurrentScalingQuantizer, Float8Quantizer

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
NAMES = {kind: name for name, kind in TYPES.items()}
CODES = {"e4m3": tex.DType.kFloat8E4M3, "e5m2": tex.DType.kFloat8E5M2}


def on_gpu(kind, dtype, seed, shape):
    bits = torch.from_numpy(np.ascontiguousarray(draw(kind, dtype, seed, shape)).copy()).cuda()
    return bits.view(TYPES[dtype]).view(*shape)


def bits_of(tensor):
    """The bits of a tensor on the host, with every NaN replaced by the canonical one."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype in NAMES:
        whole = {"bf16": (torch.int16, 0x7FFF), "f16": (torch.int16, 0x7FFF), "f32": (torch.int32, 0x7FFFFFFF)}
        kind, nan = whole[NAMES[tensor.dtype]]
        bits = torch.where(tensor.isnan(), torch.full_like(tensor.view(kind), nan), tensor.view(kind))
        return bits.cpu().numpy()
    return tensor.view(torch.uint8).cpu().numpy()


def result(tensor, whole=False):
    if tensor is None:
        return None
    raw = bits_of(tensor).tobytes()
    record = {"type": NAMES.get(tensor.dtype, "u8"), "shape": list(tensor.shape)}
    if whole:
        return {**record, "bits": base64.b64encode(raw).decode()}
    return {**record, "sha256": hashlib.sha256(raw).hexdigest(), "first": raw[:16].hex()}


class Log:
    """Reads cuBLASLt's log: new() returns the algorithms of all products since its last call."""

    at = 0

    def new(self):
        torch.cuda.synchronize()
        if not os.path.exists(LOG):
            return []
        with open(LOG, errors="replace") as file:
            file.seek(self.at)
            text = file.read()
            self.at = file.tell()
        found = []
        for line in text.splitlines():
            if "[cublasLtMatmul]" in line and "algo=" in line:
                match = re.search(r"algo=\[([^\]]*)\]", line)
                if match:
                    found.append(match.group(1))
        return found


LOGGED = Log()


def attempt(case, body):
    """The case, with the results of `body` or with the reason for which TransformerEngine refuses it."""
    try:
        return {**case, **body()}
    except Exception as error:  # the first line of a refusal is recorded as the result
        torch.cuda.synchronize()
        return {**case, "refused": str(error).strip().splitlines()[0][:160] if str(error).strip() else repr(error)}


# Quantizers

SHAPES = [(384, 512), (136, 272), (16, 16), (7, 48), (3, 40, 144)]
SCALES = [0x3F800000, 0x3EBD70A4, 0x43E00000, 0x7F7FFFFF, 0x00800000, 0x00000000, 0x7F800000, 0x7FC00000]


def float32(bits):
    return torch.tensor(np.array([bits], dtype=np.uint32).view(np.float32), device="cuda")


PER_TENSOR = ["_data", "_transpose", "_scale_inv"]
PER_BLOCK = ["_rowwise_data", "_columnwise_data", "_rowwise_scale_inv", "_columnwise_scale_inv"]


def logical(scales, columns):
    """Scales without the padding at the end of each row, which no kernel writes."""
    return scales[:, :columns].contiguous()


def quantized(quantizer, x, scale_columns=None):
    out = quantizer(x)
    parts = {name: getattr(out, name, None) for name in PER_TENSOR + PER_BLOCK}
    if scale_columns:
        for name, columns in zip(PER_BLOCK[2:], scale_columns):
            parts[name] = logical(parts[name], columns)
    record = {name.strip("_"): result(part) for name, part in parts.items() if isinstance(part, torch.Tensor)}
    return {**record, "dequantized": result(out.dequantize(dtype=x.dtype))}


def quantizer_cases():
    seed = 1
    for shape in SHAPES:
        for dtype in ("bf16", "f32", "f16"):
            for kind in ("bell", "wide", "edges"):
                for fmt in ("e4m3", "e5m2"):
                    seed += 1
                    given = {"shape": list(shape), "dtype": dtype, "kind": kind, "format": fmt, "seed": seed}
                    yield from per_tensor_cases(given)
                    yield from block_cases(given)


def source(case):
    return on_gpu(case["kind"], case["dtype"], case["seed"], case["shape"])


def per_tensor_cases(given):
    scale = SCALES[given["seed"] % len(SCALES)]
    case = {"quantizer": "delayed", **given, "scale": f"{scale:08x}"}

    def delayed():
        amax = torch.zeros(1, device="cuda")
        quantizer = Float8Quantizer(float32(scale), amax, CODES[given["format"]], rowwise=True, columnwise=True)
        return {**quantized(quantizer, source(case)), "amax": result(amax, True)}

    yield attempt(case, delayed)
    for pow2 in (False, True):
        for epsilon in (0.0, 0.5):
            now = {"quantizer": "current", **given, "pow2": pow2, "epsilon": epsilon}

            def current(now=now):
                options = {"force_pow_2_scales": now["pow2"], "amax_epsilon": now["epsilon"]}
                quantizer = Float8CurrentScalingQuantizer(CODES[now["format"]], torch.device("cuda"), **options)
                return quantized(quantizer, source(now))

            yield attempt(now, current)


def block_cases(given):
    for dim in (1, 2):
        for pow2 in (True, False):
            for epsilon in (0.0, 0.5):
                case = {"quantizer": "block", **given, "dim": dim, "pow2": pow2, "epsilon": epsilon}

                def block(case=case):
                    options = {"force_pow_2_scales": case["pow2"], "amax_epsilon": case["epsilon"], "block_scaling_dim": case["dim"]}
                    quantizer = Float8BlockQuantizer(CODES[case["format"]], rowwise=True, columnwise=True, **options)
                    rows, columns = int(np.prod(case["shape"][:-1])), case["shape"][-1]
                    blocks = (-(-columns // 128), -(-rows // 128))
                    return quantized(quantizer, source(case), (rows, columns) if case["dim"] == 1 else blocks)

                yield attempt(case, block)


def nvfp4_case(seed, shape, dtype, kind, tile, options):
    from transformer_engine.pytorch.custom_recipes import reference_utils
    from transformer_engine.pytorch.custom_recipes.reference_nvfp4 import NVFP4QuantizerRef

    case = {"quantizer": "nvfp4-reference", "shape": list(shape), "dtype": dtype, "kind": kind, "seed": seed, "tile": list(tile), **options}

    def run():
        quantizer = NVFP4QuantizerRef(reference_utils.Fp4Formats.E2M1, rowwise=True, columnwise=True, quant_tile_shape=tile, **options)
        out = quantizer.quantize(source(case))
        names = ["data", "scale", "data_t", "scale_t", "global_amax_row", "global_amax_col"]
        return {name: result(getattr(out, name)) for name in names}

    return attempt(case, run)


def nvfp4_cases():
    """Cases of NVFP4, from TransformerEngine's own reference in PyTorch, because its NVFP4 kernels need a
    Blackwell GPU.
    """
    seed = 5000
    plain = [{}, {"with_rht": True}, {"with_rht": True, "with_random_sign_mask": False}]
    four = [{"nvfp4_use_4over6": True, "nvfp4_e4m3_max": e, "nvfp4_4over6_err_mode": m} for e in (256, 448) for m in ("MAE", "MSE")]
    for shape in ((128, 256), (48, 80), (16, 16)):
        for dtype in ("bf16", "f32"):
            for kind in ("bell", "wide"):
                for tile in ((1, 16), (16, 16)):
                    for options in plain + four:
                        if options.get("with_rht") and (tile == (16, 16) or dtype != "bf16"):
                            continue
                        seed += 1
                        yield nvfp4_case(seed, shape, dtype, kind, tile, options)
    for shape in ((128, 256), (48, 80), (2, 16), (1024, 16), (32, 512)):
        for dtype in ("bf16", "f16", "f32"):
            for kind in ("bell", "small", "wide"):
                for options in [{}] + four:
                    seed += 1
                    yield nvfp4_case(seed, shape, dtype, kind, (1, 16), {"row_scaled_nvfp4": True, **options})


# Norms and activations, whose results may differ from ours: tests count the differences

ACTIVATIONS = ["gelu", "relu", "qgelu", "srelu", "silu"]
GATED = {"geglu": "gelu", "reglu": "relu", "qgeglu": "qgelu", "sreglu": "srelu", "swiglu": "silu", "glu": "sigmoid"}


def function_cases():
    for dtype in ("f32", "bf16"):
        for kind in ("bell", "wide"):
            base = {"dtype": dtype, "kind": kind, "seed": 9000}
            x, dy = (on_gpu(kind, dtype, seed, (16, 64)) for seed in (9000, 9001))
            for name in ACTIVATIONS:
                case = {"function": name, **base, "shape": [16, 64]}
                yield attempt(case, lambda: {"out": result(getattr(tex, name)(x, None), True), "dx": result(getattr(tex, "d" + name)(dy, x, None), True)})
            half = on_gpu(kind, dtype, 9001, (16, 32))
            for name in GATED:
                case = {"function": name, **base, "shape": [16, 64]}
                yield attempt(case, lambda: {"out": result(getattr(tex, name)(x, None), True), "dx": result(getattr(tex, "d" + name)(half, x, None), True)})
            for columns in (48, 768):
                yield from norm_cases(dtype, kind, columns)


def norm_cases(dtype, kind, columns):
    shape = (6, columns)
    x, dy = (on_gpu(kind, dtype, seed, shape) for seed in (9100, 9101))
    gamma, beta = (on_gpu("bell", dtype, seed, (columns,)) for seed in (9102, 9103))
    for zero_centered in (False, True):
        base = {"dtype": dtype, "kind": kind, "seed": 9100, "shape": list(shape), "zeroCentered": zero_centered, "epsilon": 1e-5}

        def layer_norm():
            out, mean, rstd = tex.layernorm_fwd(x, gamma, beta, 1e-5, None, None, tex.DType.kFloat32 if dtype == "f32" else tex.DType.kBFloat16, 0, zero_centered)
            dx, dgamma, dbeta = tex.layernorm_bwd(dy, x, mean, rstd, gamma, 0, zero_centered)
            names = {"out": out, "mean": mean, "rstd": rstd, "dx": dx, "dgamma": dgamma, "dbeta": dbeta}
            return {name: result(each, True) for name, each in names.items()}

        def rms_norm():
            out, _, rstd = tex.rmsnorm_fwd(x, gamma, 1e-5, None, None, tex.DType.kFloat32 if dtype == "f32" else tex.DType.kBFloat16, 0, zero_centered)
            dx, dgamma = tex.rmsnorm_bwd(dy, x, rstd, gamma, 0, zero_centered)
            names = {"out": out, "rstd": rstd, "dx": dx, "dgamma": dgamma}
            return {name: result(each, True) for name, each in names.items()}

        yield attempt({"function": "layerNorm", **base}, layer_norm)
        yield attempt({"function": "rmsNorm", **base}, rms_norm)


# Modules

RECIPES = {
    "bf16": None,
    "delayed": lambda: recipes.DelayedScaling(amax_history_len=3, reduce_amax=False),
    "delayed-recent": lambda: recipes.DelayedScaling(amax_history_len=4, amax_compute_algo="most_recent", margin=1, reduce_amax=False),
    "delayed-e4m3": lambda: recipes.DelayedScaling(fp8_format=recipes.Format.E4M3, amax_history_len=1, reduce_amax=False),
    "current": lambda: recipes.Float8CurrentScaling(),
    "block": lambda: recipes.Float8BlockScaling(),
}

MODULES = {
    "Linear": lambda c, o: te.Linear(c["in"], c["out"], **o),
    "LayerNormLinear": lambda c, o: te.LayerNormLinear(c["in"], c["out"], eps=0.0, normalization=c["normalization"], zero_centered_gamma=c["zeroCentered"], **o),
    "LayerNormMLP": lambda c, o: te.LayerNormMLP(c["in"], c["hidden"], eps=0.0, normalization=c["normalization"], zero_centered_gamma=c["zeroCentered"], activation=c["activation"], **o),
}


def module_of(case):
    options = {"bias": case["bias"], "params_dtype": torch.bfloat16, "device": "cuda", "fuse_wgrad_accumulation": case["mainGrads"]}
    return MODULES[case["module"]](case, options)


def redraw(module, case, iteration):
    """Sets all parameters to new random values.

    Each parameter, in the order of names, has its own seed in each iteration.
    """
    with torch.no_grad():
        for i, (name, parameter) in enumerate(sorted(module.named_parameters())):
            kind = "bell" if "layer_norm" in name else "small"
            parameter.copy_(on_gpu(kind, "bf16", case["seed"] + 100 * iteration + 10 + i, tuple(parameter.shape)))


def state_of(module):
    states = {}
    for name, key in (("forward", "scaling_fwd"), ("backward", "scaling_bwd")):
        meta = module.fp8_meta.get(key)
        if meta is not None and hasattr(meta, "amax_history"):
            states[name] = {"scale": result(meta.scale, True), "history": result(meta.amax_history, True)}
    return states


def microbatch(module, case, recipe, iteration, index):
    seed = case["seed"] + 100 * iteration + 50 + 2 * index
    x = on_gpu(case["kind"], "bf16", seed, (case["tokens"], case["in"])).requires_grad_()
    dy = on_gpu("bell", "bf16", seed + 1, (case["tokens"], case["out"]))
    first = None if case["microbatches"] == 1 else index == 0
    with te.autocast(enabled=recipe is not None, recipe=recipe):
        y = module(x, is_first_microbatch=first)
    y.backward(dy)
    given = {"y": result(y), "dx": result(x.grad, "normalization" in case)}
    for name, parameter in sorted(module.named_parameters()):
        fused = case["mainGrads"] and hasattr(parameter, "main_grad") and "weight" in name and "layer_norm" not in name
        grad = parameter.main_grad if fused else parameter.grad
        given["d " + name] = result(grad, "layer_norm" in name)
        if not case["mainGrads"]:
            parameter.grad = None
        elif not fused:
            parameter.grad = None
    return {**given, "algorithms": LOGGED.new()}


def run_module(case):
    module = module_of(case)
    made = RECIPES[case["recipe"]]
    recipe = made() if made else None
    if case["mainGrads"]:
        for name, parameter in module.named_parameters():
            if "weight" in name and "layer_norm" not in name:
                parameter.main_grad = torch.zeros(parameter.shape, dtype=torch.float32, device="cuda")
    LOGGED.new()
    iterations = []
    for iteration in range(case["iterations"]):
        redraw(module, case, iteration)
        results = [microbatch(module, case, recipe, iteration, i) for i in range(case["microbatches"])]
        torch.cuda.synchronize()
        iterations.append({"microbatches": results, **state_of(module)})
    return {"results": iterations}


def module_cases():
    seed = 20000
    common = {"bias": True, "mainGrads": False, "microbatches": 1, "iterations": 1, "kind": "bell"}
    linear = [(16, 16, 16), (48, 48, 80), (144, 272, 400), (272, 1040, 528), (512, 1024, 768), (1024, 768, 1024), (256, 2048, 4096)]
    for name in RECIPES:
        delayed = name.startswith("delayed")
        for tokens, inward, out in linear:
            seed += 1000
            yield {"module": "Linear", "recipe": name, "tokens": tokens, "in": inward, "out": out, "seed": seed, **common}
        shape = {"tokens": 128, "in": 256, "out": 384}
        for change in (
            {"iterations": 5},
            {"microbatches": 2, "iterations": 2},
            {"microbatches": 3, "mainGrads": True, "iterations": 2},
            {"bias": False, "kind": "wide"},
            {"kind": "edges", "bias": False},
        ):
            seed += 1000
            if change.get("iterations") == 5 and not delayed:
                continue
            yield {"module": "Linear", "recipe": name, **shape, "seed": seed, **common, **change}
        shape = {"tokens": 32, "in": 64, "out": 128}
        for normalization in ("LayerNorm", "RMSNorm"):
            for zero_centered in (False, True):
                for bias in (True, False):
                    seed += 1000
                    norm = {"normalization": normalization, "zeroCentered": zero_centered, "bias": bias, "kind": "signs"}
                    yield {"module": "LayerNormLinear", "recipe": name, **shape, "seed": seed, **common, **norm}
        seed += 1000
        cached = {"normalization": "LayerNorm", "zeroCentered": False, "kind": "signs", "microbatches": 2, "iterations": 2}
        yield {"module": "LayerNormLinear", "recipe": name, **shape, "seed": seed, **common, **cached}
        mlp = {"tokens": 32, "in": 64, "hidden": 144, "out": 64, "normalization": "RMSNorm", "zeroCentered": False, "kind": "signs"}
        for activation in ("relu", "srelu", "reglu", "sreglu"):
            for bias in (True, False):
                seed += 1000
                yield {"module": "LayerNormMLP", "recipe": name, **common, **mlp, "seed": seed, "activation": activation, "bias": bias}
        seed += 1000
        yield {"module": "LayerNormMLP", "recipe": name, **common, **mlp, "seed": seed, "activation": "reglu", "microbatches": 2, "iterations": 2, "normalization": "LayerNorm"}


def origin():
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.check_output(query, text=True).strip().splitlines()[0]
    version = f"TransformerEngine {transformer_engine.__version__}, torch {torch.__version__}, driver {driver}"
    gpu = torch.cuda.get_device_name()
    return {"project": "TransformerEngine", "version": version, "gpu": gpu, "how": "python3 scripts/witness/te_vectors.py FOLDER"}


def write(folder, what, cases):
    name = f"te-{what}.json"
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    with open(os.path.join(folder, name), "w") as file:
        file.write('{"origin":' + json.dumps(origin()) + ',"' + what + '":[\n' + lines + "\n]}\n")
    refused = [case["refused"] for case in cases if "refused" in case]
    print(f"{name}: {len(cases)} cases, {len(refused)} refused", flush=True)
    for reason in sorted(set(refused)):
        print(f"  {refused.count(reason)} x {reason}", flush=True)


RECORDED = {
    "quantizations": quantizer_cases,
    "nvfp4": nvfp4_cases,
    "functions": function_cases,
    "modules": lambda: (attempt(case, lambda: run_module(case)) for case in module_cases()),
}


def main():
    folder, *names = sys.argv[1:]
    for name in names or RECORDED:
        write(folder, name, list(RECORDED[name]()))


if __name__ == "__main__":
    main()
