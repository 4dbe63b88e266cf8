// What the benchmarks of training steps share: one rank's GPU and group, a stack of LayerNormMLP at the sizes of the command
// line, its step of forward pass, backward pass and optimizer, and medians over rounds in which all variants alternate.
import {
  AdamW,
  autocast,
  empty,
  Float8CurrentScaling,
  LayerNormMLP,
  openBackend,
  Scope,
  Sequential,
  tensor,
  Variable,
} from "lockstep";
import { localRank, openProcessGroup } from "lockstep/distributed";
import { shuffled } from "../cuda/timing.mjs";
import { median } from "../timing.mjs";

const [rounds, layers, features, hidden, tokens] = process.argv.slice(2).map(Number);
/** Whether the first argument is `trace` instead of a number of rounds. */
export const isTrace = process.argv[2] === "trace";
export const backend = await openBackend("cuda", { device: localRank() });
export const group = await openProcessGroup(backend, { transport: "device", timeoutMs: 60_000 });
export const RECIPES = { bf16: undefined, current: new Float8CurrentScaling() };

/** Weights of ordinary magnitude. They need not be random here, and this is faster. */
const drawn = new Map();
function initMethod(_, [rows, columns]) {
  const size = rows * columns;
  if (!drawn.has(size))
    drawn.set(
      size,
      new Float32Array(size).map((_, i) => ((i * 40503) % 65536) / 2 ** 20 - 2 ** -5),
    );
  return drawn.get(size);
}

/** The stack. `options` are those of its layers. */
export function modelOf(options = {}) {
  const makeLayer = () =>
    new LayerNormMLP(backend, features, hidden, { initMethod, bias: false, ...options });
  const model = new Sequential(backend, ...Array.from({ length: layers }, makeLayer));
  drawn.clear();
  return model;
}

export const trainer = (model, parallel) => ({
  model,
  parallel,
  optimizer: new AdamW(model, { learningRate: 1e-4 }),
});

const codes = new Uint16Array(tokens * features).map(
  (_, i) => 0x3c00 + ((i * 40503) % 1024) + (i % 3 === 0 ? 0x8000 : 0),
);
const [x, dy] = [1, 2].map(() => empty(backend, "bf16", [tokens, features]).write(codes));

export function step({ model, optimizer }, recipe, mark = () => {}) {
  const scope = new Scope();
  const input = new Variable(x, true);
  const y = autocast({ recipe, enabled: recipe !== undefined }, () => model.forward(input));
  mark("forward");
  y.backward(dy);
  mark("backward");
  input.zeroGrad();
  scope.dispose();
  optimizer.step();
  mark("optimizer");
  optimizer.zeroGrad();
}

const { onSideStream } = backend;
/** Runs a step without the side stream: exchanges, which `run` runs, take their turn among the other operations. */
export function stepInTurn(of, recipe, run = (exchange) => exchange()) {
  backend.onSideStream = run;
  step(of, recipe);
  backend.onSideStream = onSideStream;
}

/** Each of these spans where it was longest on a rank. */
async function longest(spans) {
  const own = tensor(backend, Float32Array.from(spans), [spans.length]);
  const all = group.allReduce(own, { reduction: "max" });
  const most = await all.data();
  for (const each of [own, all]) each.dispose();
  return Array.from(most);
}

/** Each of these spans where it was shortest. */
const shortest = async (spans) => (await longest(spans.map((span) => -span))).map((span) => -span);
const sum = (spans) => spans.reduce((total, span) => total + span, 0);

/** Draws numbers from 0 to 1, the same on all ranks. */
let state = 1;
function draw() {
  state = Math.imul(state, 1664525) + 1013904223;
  return (state >>> 8) / 2 ** 24;
}

/**
 * The milliseconds that the exchanges of a step take in turn, with what is computed for them: the median over rounds of their
 * sum, each on the rank that came to it last and so waited for no other.
 */
export async function exchangeMs(of, recipe) {
  const { timeline } = backend;
  const timed = (exchange) => {
    timeline.mark();
    const result = exchange();
    timeline.mark();
    return result;
  };
  const sums = [];
  for (let round = 0; round < rounds; round++) {
    await group.barrier();
    stepInTurn(of, recipe);
    stepInTurn(of, recipe, timed);
    const spans = timeline.spans().filter((_, i) => i % 2 === 0);
    sums.push(sum(await shortest(spans)));
  }
  return median(sums);
}

/** The steps that are timed, behind one that is not. */
const TIMED = 2;

/**
 * Medians of the milliseconds of a step of each way under a recipe, and of those for which it waits for the side stream. Steps
 * follow each other as in training, where hosts are ahead of their GPUs, so that no time counts in which a GPU waits for a host.
 * A step takes as long as that of the slowest rank. A rank that comes early to an exchange waits for the others' computation too,
 * which is no cost of exchanges: each wait is that of the rank that waits least for this exchange. Each round has another order,
 * since a step that follows one of less power has a faster clock.
 */
export async function measure(ways, recipe) {
  const times = Object.fromEntries(Object.keys(ways).map((way) => [way, { steps: [], waits: [] }]));
  for (let round = -2; round < rounds; round++) {
    for (const [way, run] of shuffled(Object.entries(ways), draw)) {
      await group.barrier();
      run(recipe);
      backend.timeline.mark();
      for (let i = 0; i < TIMED; i++) run(recipe);
      backend.timeline.mark();
      const waits = backend.timeline.waits();
      const [all] = await longest(backend.timeline.spans());
      const least = await shortest(waits);
      if (round < 0) continue;
      times[way].steps.push(all / TIMED);
      times[way].waits.push(sum(least) / TIMED);
    }
  }
  const medians = (which) =>
    Object.fromEntries(Object.entries(times).map(([way, lists]) => [way, median(lists[which])]));
  return { ms: medians("steps"), waited: medians("waits") };
}

/** Prints the results of rank 0. */
export function report(results) {
  if (group.rank !== 0) return;
  const what = `${layers} x LayerNormMLP(${features}, ${hidden}), ${tokens} tokens a rank, AdamW`;
  console.log(
    `${backend.description}, ${group.size} ranks, ${group.transport.description}, ${what}; medians of ${rounds} rounds`,
  );
  for (const each of results) console.log(JSON.stringify(each));
  console.log(JSON.stringify({ description: backend.description, size: group.size, what, results }));
}

export async function leave() {
  await group.barrier();
  await group.dispose();
  await backend.dispose();
  process.exit(0);
}
