"""The shared parts of te_server.py: the recipes, random inputs, and a training step of one module."""

import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common import recipe as recipes

BF16 = torch.bfloat16
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


def stepper(model, x, dy, recipe, graphed):
    """One forward and backward pass of `model`, which takes x and `is_first_microbatch`, with cached quantized weights.

    With `graphed`, it is captured in CUDA graphs.
    """
    parameters = list(model.parameters())
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
    step()
    torch.cuda.synchronize()
    return step


def report(name, error):
    """Prints the reason why a case is not measured."""
    print(f"te_server: {name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
