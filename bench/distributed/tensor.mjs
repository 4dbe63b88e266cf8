// One rank of the benchmark of tensor parallelism with sequence parallelism: a step of a stack of LayerNormMLP whose layers are
// divided among all ranks, compared with a step of an undivided stack on each rank, which exchanges nothing. Both have the same
// number of input rows per rank, so that their products compute the same amount: each rank of the undivided stack multiplies its
// own rows by all weights, each rank of the divided one multiplies all rows by its part of the weights. Rows are exchanged in
// chunks (`overlap`), or all at once on the main stream. A step includes the optimizer, which has a part of the weights in the
// divided stack.
import { group, leave, measure, modelOf, RECIPES, report, step, stepInTurn, trainer } from "./stack.mjs";

const undivided = trainer(modelOf());
const dividedBy = (overlap) => trainer(modelOf({ group, sequenceParallel: true, overlap }));
const [inTurn, cut] = [dividedBy(false), dividedBy(true)];
const WAYS = {
  "one rank": (recipe) => step(undivided, recipe),
  "in turn": (recipe) => step(inTurn, recipe),
  overlap: (recipe) => step(cut, recipe),
  "cut in turn": (recipe) => stepInTurn(cut, recipe),
};

const results = [];
for (const [name, recipe] of Object.entries(RECIPES)) {
  const { ms } = await measure(WAYS, recipe);
  const [single, sequential, overlapped] = Object.values(ms);
  results.push({ recipe: name, ms, "of ranks times one": [single / sequential, single / overlapped] });
}
report(results);
await leave();
