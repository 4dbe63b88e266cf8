"""TransformerEngine's side of bench/cuda/te.mjs: python3 te_server.py TOKENS FEATURES.

Prints the names of its cases as one JSON line. It then answers each line "NAME<TAB>CALLS" with the seconds per call; the GPU is
synchronized before the first and after the last call. A step is the forward and backward pass of LayerNormLinear and Linear with
cached quantized weights, launched kernel by kernel or captured in CUDA graphs. With --kernels, it prints the GPU time of each
kernel of a step instead, and exits.
"""

import json
import sys
import time

import torch
import transformer_engine
import transformer_engine.pytorch as te
import transformer_engine_torch as tex
from transformer_engine.common import recipe as recipes
from transformer_engine.pytorch.tensor.float8_blockwise_tensor import Float8BlockQuantizer
from transformer_engine.pytorch.tensor.float8_tensor import Float8CurrentScalingQuantizer, Float8Quantizer

BF16 = torch.bfloat16
E4M3 = tex.DType.kFloat8E4M3
RECIPES = {
    "bf16": None,
    "delayed": recipes.DelayedScaling(),
    "current": recipes.Float8CurrentScaling(),
    "block": recipes.Float8BlockScaling(),
}


def values(rows, columns, seed):
    """Random bf16 values of both signs in eight binades, with the distribution of bench/cuda/device.mjs."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    draw = torch.randint(0, 1 << 16, (rows, columns), generator=generator, device="cuda", dtype=torch.int32)
    bits = (draw & 0x807F) | ((123 + ((draw >> 8) & 7)) << 7)
    return bits.to(torch.int16).view(BF16)


class Layers(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        options = {"params_dtype": BF16, "device": "cuda"}
        self.first = te.LayerNormLinear(features, features, **options)
        self.second = te.Linear(features, features, **options)

    def forward(self, x, is_first_microbatch=None):
        return self.second(self.first(x, is_first_microbatch=is_first_microbatch), is_first_microbatch=is_first_microbatch)


def stepper(tokens, features, recipe, graphed):
    model = Layers(features)
    parameters = list(model.parameters())
    x, dy = values(tokens, features, 1).requires_grad_(), values(tokens, features, 2)
    options = {"enabled": recipe is not None, "recipe": recipe}
    call = model
    if graphed:
        call = te.make_graphed_callables(model, (x,), num_warmup_iters=3, cache_quantized_params=True, **options)

    def step(first=False):
        with te.autocast(**options):
            y = call(x, is_first_microbatch=first)
        y.backward(dy)
        x.grad = None
        for parameter in parameters:
            parameter.grad = None

    step(True)
    return step


def quantizers():
    both = {"rowwise": True, "columnwise": True}
    row = {"rowwise": True, "columnwise": False}
    scale, amax = torch.ones(1, device="cuda"), torch.zeros(1, device="cuda")
    for suffix, usage in (("", row), (", both", both)):
        yield "fp8 delayed" + suffix, Float8Quantizer(scale, amax, E4M3, **usage)
        yield "fp8 current" + suffix, Float8CurrentScalingQuantizer(E4M3, torch.device("cuda"), **usage)
        yield "fp8-block 1x128" + suffix, Float8BlockQuantizer(E4M3, block_scaling_dim=1, **usage)
        yield "fp8-block 128x128" + suffix, Float8BlockQuantizer(E4M3, block_scaling_dim=2, **usage)


def kernel_cases(rows, columns):
    inputs = [values(rows, columns, seed) for seed in (1, 2, 3)]
    size = f"{rows}x{columns}"
    for name, quantizer in quantizers():
        target = quantizer.make_empty((rows, columns), dtype=BF16, device="cuda")
        yield f"{name} {size}", lambda i, q=quantizer, t=target: q.update_quantized(inputs[i % 3], t)
    gamma, beta = (values(1, columns, seed).view(-1) for seed in (4, 5))
    delayed = Float8Quantizer(torch.ones(1, device="cuda"), torch.zeros(1, device="cuda"), E4M3, rowwise=True, columnwise=False)
    bf16 = tex.DType.kBFloat16
    yield f"layerNorm {size}", lambda i: tex.layernorm_fwd(inputs[i % 3], gamma, beta, 1e-5, None, None, bf16, 0, False)
    yield f"rmsNorm {size}", lambda i: tex.rmsnorm_fwd(inputs[i % 3], gamma, 1e-5, None, None, bf16, 0, False)
    yield f"rmsNorm, fp8 delayed {size}", lambda i: tex.rmsnorm_fwd(inputs[i % 3], gamma, 1e-5, None, delayed, bf16, 0, False)
    _, mean, rstd = tex.layernorm_fwd(inputs[0], gamma, beta, 1e-5, None, None, bf16, 0, False)
    yield f"normBackward {size}", lambda i: tex.layernorm_bwd(inputs[(i + 1) % 3], inputs[i % 3], mean, rstd, gamma, 0, False)


def all_cases(tokens, features):
    for name, recipe in RECIPES.items():
        for suffix, graphed in (("", False), (" graphed", True)):
            try:
                step = stepper(tokens, features, recipe, graphed)
            except Exception as error:  # without a successful capture, only the step without graphs is timed
                print(f"te_server: {name}{suffix}: {error}", file=sys.stderr)
                continue
            yield f"step {name}{suffix}", lambda i, step=step: step()
    yield from kernel_cases(8192, 8192)


def kernels(tokens, features):
    from torch.profiler import ProfilerActivity, profile

    for name, recipe in RECIPES.items():
        step = stepper(tokens, features, recipe, False)
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
            for _ in range(5):
                step()
            torch.cuda.synchronize()
        events = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        times = {}
        for event in events:
            times.setdefault(event.name, []).append(event.device_time)
        print(f"== {name}")
        for kernel, each in sorted(times.items(), key=lambda item: -sum(item[1])):
            print(f"{sum(each) / 5:9.1f} us a step, {len(each) / 5:5.1f} calls  {kernel[:150]}")


def main():
    tokens, features = int(sys.argv[1]), int(sys.argv[2])
    if "--kernels" in sys.argv:
        return kernels(tokens, features)
    cases = dict(all_cases(tokens, features))
    version = f"TransformerEngine {transformer_engine.__version__}, torch {torch.__version__}"
    print(json.dumps({"version": version, "cases": list(cases)}), flush=True)
    for line in sys.stdin:
        name, calls = line.rstrip("\n").split("\t")
        run, calls = cases[name], int(calls)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(calls):
            run(i)
        torch.cuda.synchronize()
        print(json.dumps((time.perf_counter() - start) / calls), flush=True)


main()
