"""Cases of bench/cuda/te.mjs: a step of LayerNormLinear and Linear, quantizers and norms."""

import torch
import transformer_engine.pytorch as te
import transformer_engine_torch as tex
from te_common import BF16, RECIPES, report, stepper, values
from transformer_engine.pytorch.tensor.float8_blockwise_tensor import Float8BlockQuantizer
from transformer_engine.pytorch.tensor.float8_tensor import Float8CurrentScalingQuantizer, Float8Quantizer

E4M3 = tex.DType.kFloat8E4M3


class Layers(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        options = {"params_dtype": BF16, "device": "cuda"}
        self.first = te.LayerNormLinear(features, features, **options)
        self.second = te.Linear(features, features, **options)

    def forward(self, x, is_first_microbatch=None):
        return self.second(self.first(x, is_first_microbatch=is_first_microbatch), is_first_microbatch=is_first_microbatch)


def layers_step(tokens, features, recipe, graphed):
    x, dy = values(tokens, features, 1).requires_grad_(), values(tokens, features, 2)
    return stepper(Layers(features), x, dy, recipe, graphed)


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


def cases(tokens, features):
    for name, recipe in RECIPES.items():
        for suffix, graphed in (("", False), (" graphed", True)):
            try:
                step = layers_step(tokens, features, recipe, graphed)
            except Exception as error:  # without a successful capture, only the step without graphs is timed
                report(f"step {name}{suffix}", error)
                continue
            yield f"step {name}{suffix}", lambda i, step=step: step()
    yield from kernel_cases(8192, 8192)


def kernels(tokens, features):
    from torch.profiler import ProfilerActivity, profile

    for name, recipe in RECIPES.items():
        step = layers_step(tokens, features, recipe, False)
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
