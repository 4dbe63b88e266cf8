// One rank of the benchmark of data parallelism. It runs forward, backward and optimizer of a stack of LayerNormMLP in three
// variants: gradients are reduced while the backward pass runs, in turn with it, or not at all; and the same with parameters that
// fullyShard divides, exchanged beside the computation and in turn with it. Rank 0 prints the results. A step takes as long as
// that of the slowest rank, for all variants, since ranks that exchange wait for the slowest. `hidden` is the share of the time
// that exchanges take in turn for which the computation does not wait when they run beside it. Times of steps do not say that: a
// GPU at its power limit has a slower clock while it exchanges beside products, and a faster one where it only exchanges.
// Given `trace` instead of a number of rounds, each rank prints when each part of one step began and ended.
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

const [whole, divided] = [modelOf(), modelOf()];
const copied = trainer(whole, new DataParallel(whole, group));
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

/** Runs a step behind others and prints, in milliseconds from its start, what each stream had done when. */
async function trace(name, recipe, of) {
  const { onSideStream } = backend;
  for (let i = 0; i < 3; i++) step(of, recipe);
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
  const shares = async (kind, of) => {
    const exchanges = await exchangeMs(of, recipe);
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
