// One rank of the benchmark of data parallelism. It runs forward, backward and optimizer of a stack of LayerNormMLP in three
// variants: gradients are reduced while the backward pass runs, on the main stream in order with it, or not at all. Two more
// variants divide the parameters by fullyShard and exchange them concurrently with the computation, or on the main stream. Rank 0
// prints the results. In all variants the time of a step is the slowest rank's, because ranks that exchange wait for the slowest.
// `hidden` is the share of the exchanges' time on the main stream for which the computation does not wait when they run
// concurrently. The times of steps do not show this share: a GPU at its power limit runs at a lower clock while it exchanges and
// multiplies, and at a higher clock while it only exchanges. With `trace` instead of a number of rounds, each rank prints the
// begin and end of each part of one step.
import { DataParallel, fullyShard } from "lockstep";
import {
  backend,
  exchangeMs,
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

const [full, divided] = [modelOf(), modelOf()];
const copied = trainer(full, new DataParallel(full, group));
const sharded = trainer(divided, fullyShard(divided, group));

const WAYS = {
  "not reduced": (recipe) => copied.parallel.noSync(() => step(copied, recipe)),
  "reduced in turn": (recipe) => stepInTurn(copied, recipe),
  "reduced beside": (recipe) => step(copied, recipe),
  "sharded in turn": (recipe) => stepInTurn(sharded, recipe),
  "sharded beside": (recipe) => step(sharded, recipe),
};

if (isTrace) {
  for (const [name, recipe] of Object.entries(RECIPES)) {
    await trace(`${name}, DataParallel`, recipe, copied);
    await trace(`${name}, fullyShard`, recipe, sharded);
  }
  await leave();
}

/** Runs a step after several others, and prints when each stream reached which point, in milliseconds from the step's start. */
async function trace(name, recipe, setup) {
  const { onSideStream } = backend;
  for (let i = 0; i < 3; i++) step(setup, recipe);
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
  const handles = [...setup.model.namedParameters()].map(([parameter, each]) =>
    each.registerPostAccumulateGradHook(() => mark(`gradient of ${parameter}`)),
  );
  mark("begin");
  step(setup, recipe, mark);
  for (const { remove } of handles) remove();
  backend.onSideStream = onSideStream;
  const waits = backend.timeline.waits();
  let at = 0;
  const times = [0, ...Array.from(backend.timeline.spans(), (span) => (at += span))];
  console.log(`${backend.description}, rank ${group.rank} of ${group.size}, ${name}; milliseconds`);
  for (const [i, label] of labels.entries()) {
    const waited = waits[label.match(/(?<number>\d+) ends$/)?.groups.number];
    const held = waited > 0.005 ? `, which was waited for ${waited.toFixed(2)}` : "";
    console.log(`${times[i].toFixed(2).padStart(8)}  ${label}${held}`);
  }
}

const results = [];
for (const [name, recipe] of Object.entries(RECIPES)) {
  const { ms, waited } = await measure(WAYS, recipe);
  const shares = async (kind, setup) => {
    const exchanges = await exchangeMs(setup, recipe);
    const wait = waited[`${kind} beside`];
    return {
      "of ranks times one": ms["not reduced"] / ms[`${kind} beside`],
      exchanges,
      waited: wait,
      hidden: 1 - wait / exchanges,
    };
  };
  results.push({
    recipe: name,
    ms,
    copied: await shares("reduced", copied),
    sharded: await shares("sharded", sharded),
  });
}
report(results);
await leave();
