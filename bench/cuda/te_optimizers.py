"""Cases of bench/cuda/optimizers.mjs: one step of FusedAdam on bf16 parameters with f32 masters."""

import torch
from te_common import values
from transformer_engine.pytorch.optimizers import FusedAdam

NOTES = []


def cases(*sizes):
    """`sizes` are those of each case: the number of parameters, rows and columns."""
    for first in range(0, len(sizes), 3):
        count, rows, columns = sizes[first : first + 3]
        parameters = [torch.nn.Parameter(values(rows, columns, i)) for i in range(count)]
        for i, parameter in enumerate(parameters):
            parameter.grad = values(rows, columns, count + i)
        optimizer = FusedAdam(parameters, lr=1e-3, weight_decay=0.01, master_weights=True)
        optimizer.step()
        yield f"{count} x {rows}x{columns}", lambda i, optimizer=optimizer: optimizer.step()
