"""One rank of PyTorch's data parallelism at the sizes of training.mjs, in bf16. Rank 0 prints the results as JSON.

The model is a stack of LayerNorm, Linear, GELU and Linear. DistributedDataParallel reduces gradients while the backward pass runs;
"in turn" reduces each gradient after it; "not reduced" runs inside no_sync. fully_shard shards each block.
"""

import json
import os
import random
import statistics
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

rounds, layers, features, hidden, tokens = map(int, sys.argv[1:6])
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
size = dist.get_world_size()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.fc1 = nn.Linear(features, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(nn.functional.gelu(self.fc1(self.norm(x)), approximate="tanh"))


def model_of(dtype: torch.dtype) -> nn.Module:
    with torch.device("cuda"):
        return nn.Sequential(*[Block() for _ in range(layers)]).to(dtype)


x = torch.randn(tokens, features, device="cuda", dtype=torch.bfloat16)
dy = torch.randn(tokens, features, device="cuda", dtype=torch.bfloat16)


def timed(run, steps: int = 2) -> float:
    """The milliseconds per step of `steps` consecutive steps, on the slowest rank, as in stack.mjs."""
    dist.barrier()
    begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    run()
    begun.record()
    for _ in range(steps):
        run()
    done.record()
    done.synchronize()
    span = torch.tensor(begun.elapsed_time(done) / steps, device="cuda")
    dist.all_reduce(span, op=dist.ReduceOp.MAX)
    return span.item()


# the same order on all ranks
drawn = random.Random(1)


def measured(ways: dict) -> dict:
    times = {name: [] for name in ways}
    for number in range(-2, rounds):
        for name, run in drawn.sample(list(ways.items()), len(ways)):
            span = timed(run)
            if number >= 0:
                times[name].append(span)
    return {name: statistics.median(spans) for name, spans in times.items()}


def data_parallel() -> dict:
    model = DistributedDataParallel(model_of(torch.bfloat16), device_ids=[device], gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    def alone(reduce: bool = False) -> None:
        with model.no_sync():
            model(x.requires_grad_()).backward(dy)
        if reduce:
            for each in model.parameters():
                dist.all_reduce(each.grad, op=dist.ReduceOp.AVG)
        update()

    def beside() -> None:
        model(x.requires_grad_()).backward(dy)
        update()

    return measured({"not reduced": alone, "reduced in turn": lambda: alone(True), "reduced beside": beside})


def sharded() -> dict:
    model = model_of(torch.float32)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for block in model:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        model(x.requires_grad_()).backward(dy)
        optimizer.step()
        optimizer.zero_grad()

    return measured({"fully sharded": step})


ms = {**data_parallel(), **sharded()}
alone, turn, beside, _ = ms.values()
if dist.get_rank() == 0:
    what = f"{layers} x (LayerNorm, Linear, GELU, Linear)({features}, {hidden}), {tokens} tokens a rank, bf16, AdamW"
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {size} ranks, {what}; medians of {rounds} rounds")
    result = {"ms": ms, "of ranks times one": alone / beside, "hidden": 1 - (beside - alone) / (turn - alone)}
    print(json.dumps({"size": size, "what": what, **result}))
dist.destroy_process_group()
