// Shared by the benchmarks of training steps: one rank's GPU and group, a stack of LayerNormMLP with the sizes of the command
// line, its step (forward, backward, optimizer), and medians over rounds in which the variants alternate.
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

/** The stack. `options`: the options of its layers. */
export function modelOf(options = {}) {
  const makeLayer = () =>
    new LayerNormMLP(backend, features, hidden, {
      initMethod,
      outputLayerInitMethod: initMethod,
      bias: false,
      ...options,
    });
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
/** Runs a step without the side stream: `run` executes each exchange on the main stream, in order with the other operations. */
export function stepInTurn(setup, recipe, run = (exchange) => exchange()) {
  backend.onSideStream = run;
  step(setup, recipe);
  backend.onSideStream = onSideStream;
}

/** The maximum of each span over the ranks. */
async function longest(spans) {
  const local = tensor(backend, Float32Array.from(spans), [spans.length]);
  const all = group.allReduce(local, { reduction: "max" });
  const most = await all.data();
  for (const each of [local, all]) each.dispose();
  return Array.from(most);
}

/** The minimum of each span over the ranks. */
const shortest = async (spans) => (await longest(spans.map((span) => -span))).map((span) => -span);
const sum = (spans) => spans.reduce((total, span) => total + span, 0);

/** Draws numbers from 0 to 1, the same on all ranks. */
let state = 1;
function draw() {
  state = Math.imul(state, 1664525) + 1013904223;
  return (state >>> 8) / 2 ** 24;
}

/**
 * The milliseconds of a step's exchanges, with the computation for them, if they run on the main stream: the median over rounds
 * of their sum. Each exchange is timed on the rank that reached it last, which waits for no other.
 */
export async function exchangeMs(setup, recipe) {
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
    stepInTurn(setup, recipe);
    stepInTurn(setup, recipe, timed);
    const spans = timeline.spans().filter((_, i) => i % 2 === 0);
    sums.push(sum(await shortest(spans)));
  }
  return median(sums);
}

/** The number of timed steps. They follow an untimed one. */
const TIMED = 2;

/**
 * Medians of the milliseconds per step of each variant under a recipe, and of the milliseconds for which a step waits for the
 * side stream. Steps follow each other as in training, where hosts run ahead of their GPUs, so that waiting of a GPU for its host
 * is not measured. The time of a step is the slowest rank's. A rank that reaches an exchange early also waits for the others'
 * computation, which is not a cost of the exchange; therefore the wait for each exchange is the shortest over the ranks. The
 * order differs in each round, because a step after one that used less power runs at a higher clock.
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
