"""Cases of bench/cuda/experts.mjs: training steps of GroupedLinear, and permutations of tokens by their experts."""

import torch
import transformer_engine.pytorch as te
from te_common import BF16, RECIPES, report, stepper, values

NOTES = []


class Experts(torch.nn.Module):
    def __init__(self, splits, inward, out):
        super().__init__()
        self.splits = splits
        self.experts = te.GroupedLinear(len(splits), inward, out, bias=False, params_dtype=BF16, device="cuda")

    def forward(self, x, is_first_microbatch=None):
        return self.experts(x, self.splits, is_first_microbatch=is_first_microbatch)


def splits_of(experts, rows):
    """As in experts.mjs: expert i has i + 1 shares, rounded down to 32 rows; the last one has the rest."""
    shares = experts * (experts + 1) // 2
    counts = [rows * (i + 1) // shares // 32 * 32 for i in range(experts - 1)]
    return [*counts, rows - sum(counts)]


def grouped_cases(experts, rows, inward, out):
    splits = splits_of(experts, rows)
    x, dy = values(rows, inward, 1).requires_grad_(), values(rows, out, 2)
    for name, recipe in RECIPES.items():
        case = f"{experts} experts {inward} to {out}, {name}"
        try:
            step = stepper(Experts(splits, inward, out), x, dy, recipe, False)
        except Exception as error:  # the other cases are measured
            report(case, error)
            continue
        yield case, lambda i, step=step: step()


def permutation_cases(tokens, width, experts, topk):
    # token t has the experts t * 5 + j * 3 of those in order, as in experts.mjs
    choices = (torch.arange(tokens, device="cuda")[:, None] * 5 + torch.arange(topk, device="cuda") * 3) % experts
    routing = choices.to(torch.int32)
    x = values(tokens, width, 3)
    probs = torch.full((tokens, topk), 1 / topk, device="cuda", dtype=torch.float32)
    rows, row_map = te.moe_permute(x, routing, tokens * topk, map_type="index")
    te.moe_unpermute(rows, row_map, merging_probs=probs, map_type="index")
    yield "moePermute", lambda i: te.moe_permute(x, routing, tokens * topk, map_type="index")
    yield "moeUnpermute", lambda i: te.moe_unpermute(rows, row_map, merging_probs=probs, map_type="index")


def cases(*sizes):
    """`sizes` are those of permutations (tokens, width, experts, topk), and of each layer (experts, rows, in, out)."""
    try:
        yield from permutation_cases(*sizes[:4])
    except Exception as error:  # the layers are measured
        report("permutations", error)
    for first in range(4, len(sizes), 4):
        yield from grouped_cases(*sizes[first : first + 4])
