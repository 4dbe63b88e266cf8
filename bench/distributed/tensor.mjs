// One rank of the benchmark of tensor parallelism with sequence parallelism: a step of a stack of LayerNormMLP whose layers are
// divided among all ranks, compared with that of a whole stack on each rank, which exchanges nothing. Each rank has as many rows
// of the input in both, so that the products of either compute as much: with the whole stack every rank computes its own rows,
// with the divided one all rows by its part of the weights. Rows are exchanged in chunks (`overlap`), or at once in turn. The
// optimizer is part of a step; with the divided stack, it has a part of the weights.
import { group, leave, measure, modelOf, RECIPES, report, step, stepInTurn, trainer } from "./stack.mjs";

const whole = trainer(modelOf());
const dividedBy = (overlap) => trainer(modelOf({ group, sequenceParallel: true, overlap }));
const [inTurn, cut] = [dividedBy(false), dividedBy(true)];
const WAYS = {
  "one rank": (recipe) => step(whole, recipe),
  "in turn": (recipe) => step(inTurn, recipe),
  overlap: (recipe) => step(cut, recipe),
  "cut in turn": (recipe) => stepInTurn(cut, recipe),
};

const results = [];
for (const [name, recipe] of Object.entries(RECIPES)) {
  const { ms } = await measure(WAYS, recipe);
  const [alone, turn, beside] = Object.values(ms);
  results.push({ recipe: name, ms, "of ranks times one": [alone / turn, alone / beside] });
}
report(results);
await leave();
