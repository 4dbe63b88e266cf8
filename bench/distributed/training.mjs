// One rank of the benchmark of data parallelism. It runs forward, backward and optimizer of a stack of LayerNormMLP in three
// variants: gradients are reduced while the backward pass runs, in turn with it, or not at all; and the same with parameters that
// fullyShard divides, exchanged beside the computation and in turn with it. Rank 0 prints the results. A step takes as long as
// that of the slowest rank, for all variants, since ranks that exchange wait for the slowest. Given `trace` instead of a number
// of rounds, each rank prints when each part of one step began and ended.
import { DataParallel, fullyShard } from "lockstep";
import {
  backend,
  group,
  isTrace,
  leave,
  measure,
  modelOf,
  RECIPES,
  report,
  step,
  stepInTurn,
  trainer,
} from "./stack.mjs";

const [whole, divided] = [modelOf(), modelOf()];
const copied = trainer(whole, new DataParallel(whole, group));
const sharded = trainer(divided, fullyShard(divided, group));

const WAYS = {
  "not reduced": (recipe, mark) => copied.parallel.noSync(() => step(copied, recipe, mark)),
  "reduced in turn": (recipe, mark) => stepInTurn(copied, recipe, mark),
  "reduced beside": (recipe, mark) => step(copied, recipe, mark),
  "sharded in turn": (recipe, mark) => stepInTurn(sharded, recipe, mark),
  "sharded beside": (recipe, mark) => step(sharded, recipe, mark),
};

if (isTrace) {
  for (const [name, recipe] of Object.entries(RECIPES)) {
    await trace(`${name}, DataParallel`, recipe, copied);
    await trace(`${name}, fullyShard`, recipe, sharded);
  }
  await leave();
}

/** Runs a step and prints, in milliseconds from its start, what each stream had done when. */
async function trace(name, recipe, of) {
  const { onSideStream } = backend;
  step(of, recipe);
  step(of, recipe);
  await group.barrier();
  const labels = [];
  const mark = (label) => {
    labels.push(label);
    backend.timeline.mark();
  };
  let exchanges = 0;
  backend.onSideStream = (body) =>
    onSideStream.call(backend, () => {
      const number = exchanges++;
      mark(`  exchange ${number} begins`);
      const result = body();
      mark(`  exchange ${number} ends`);
      return result;
    });
  const handles = [...of.model.namedParameters()].map(([parameter, each]) =>
    each.registerPostAccumulateGradHook(() => mark(`gradient of ${parameter}`)),
  );
  mark("begin");
  step(of, recipe, mark);
  for (const { remove } of handles) remove();
  backend.onSideStream = onSideStream;
  let at = 0;
  const times = [0, ...Array.from(backend.timeline.spans(), (span) => (at += span))];
  console.log(`${backend.description}, rank ${group.rank} of ${group.size}, ${name}; milliseconds`);
  for (const [i, label] of labels.entries()) console.log(`${times[i].toFixed(2).padStart(8)}  ${label}`);
}

const results = [];
for (const [name, recipe] of Object.entries(RECIPES)) {
  const { ms, optimizerMs } = await measure(WAYS, recipe);
  const alone = ms["not reduced"];
  const shares = (kind) => {
    const [turn, beside] = [ms[`${kind} in turn`], ms[`${kind} beside`]];
    // the optimizer of sharded parameters has fewer of them: what exchanges add is counted without that
    const bare = alone - optimizerMs["not reduced"] + optimizerMs[`${kind} in turn`];
    return { "of ranks times one": alone / beside, hidden: 1 - (beside - bare) / (turn - bare) };
  };
  results.push({ recipe: name, ms, copied: shares("reduced"), sharded: shares("sharded") });
}
report(results);
await leave();
