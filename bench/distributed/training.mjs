// One rank of the benchmark of data parallelism. It runs forward, backward and optimizer of a stack of LayerNormMLP in three
// variants: gradients are reduced while the backward pass runs, in turn with it, or not at all; and the same with parameters that
// fullyShard divides, exchanged beside the computation and in turn with it. Rank 0 prints the results. A step takes as long as
// that of the slowest rank, for all variants, since ranks that exchange wait for the slowest. Given `trace` instead of a number
// of rounds, each rank prints when each part of one step began and ended.
import {
  AdamW,
  autocast,
  DataParallel,
  empty,
  Float8CurrentScaling,
  fullyShard,
  LayerNormMLP,
  openBackend,
  Scope,
  Sequential,
  tensor,
  Variable,
} from "lockstep";
import { openProcessGroup } from "lockstep/distributed";
import { median } from "../timing.mjs";

const [rounds, layers, features, hidden, tokens] = process.argv.slice(2).map(Number);
const isTrace = process.argv[2] === "trace";
const backend = await openBackend("cuda", { device: Number(process.env.LOCAL_RANK) });
const group = await openProcessGroup(backend, { transport: "device", timeoutMs: 60_000 });

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

const modelOf = () => {
  const makeLayer = () => new LayerNormMLP(backend, features, hidden, { initMethod, bias: false });
  return new Sequential(backend, ...Array.from({ length: layers }, makeLayer));
};
const trainer = (model, parallel) => ({
  model,
  parallel,
  optimizer: new AdamW(model, { learningRate: 1e-4 }),
});
const [whole, divided] = [modelOf(), modelOf()];
drawn.clear();
const copied = trainer(whole, new DataParallel(whole, group));
const sharded = trainer(divided, fullyShard(divided, group));
const codes = new Uint16Array(tokens * features).map(
  (_, i) => 0x3c00 + ((i * 40503) % 1024) + (i % 3 === 0 ? 0x8000 : 0),
);
const [x, dy] = [1, 2].map(() => empty(backend, "bf16", [tokens, features]).write(codes));

function step({ model, optimizer }, recipe, mark = () => {}) {
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
const inTurn = (body) => body();
const stepInTurn = (of, recipe) => {
  backend.onSideStream = inTurn;
  step(of, recipe);
  backend.onSideStream = onSideStream;
};
const WAYS = {
  "not reduced": (recipe) => copied.parallel.noSync(() => step(copied, recipe)),
  "reduced in turn": (recipe) => stepInTurn(copied, recipe),
  "reduced beside": (recipe) => step(copied, recipe),
  "sharded in turn": (recipe) => stepInTurn(sharded, recipe),
  "sharded beside": (recipe) => step(sharded, recipe),
};

const RECIPES = { bf16: undefined, current: new Float8CurrentScaling() };
if (isTrace) {
  for (const [name, recipe] of Object.entries(RECIPES)) await trace(name, recipe);
  await leave();
}

/** Runs a step and prints, in milliseconds from its start, what each stream had done when. */
async function trace(name, recipe) {
  step(copied, recipe);
  step(copied, recipe);
  await group.barrier();
  const labels = [];
  const mark = (label) => {
    labels.push(label);
    backend.timeline.mark();
  };
  let buckets = 0;
  backend.onSideStream = (body) =>
    onSideStream.call(backend, () => {
      const number = buckets++;
      mark(`  bucket ${number} begins`);
      const result = body();
      mark(`  bucket ${number} ends`);
      return result;
    });
  const handles = [...copied.model.namedParameters()].map(([parameter, each]) =>
    each.registerPostAccumulateGradHook(() => mark(`gradient of ${parameter}`)),
  );
  mark("begin");
  step(copied, recipe, mark);
  for (const { remove } of handles) remove();
  backend.onSideStream = onSideStream;
  let at = 0;
  const times = [0, ...Array.from(backend.timeline.spans(), (span) => (at += span))];
  console.log(`${backend.description}, rank ${group.rank} of ${group.size}, ${name}; milliseconds`);
  for (const [i, label] of labels.entries()) console.log(`${times[i].toFixed(2).padStart(8)}  ${label}`);
}

async function leave() {
  await group.barrier();
  await group.dispose();
  await backend.dispose();
  process.exit(0);
}

/** The longest of the spans that the ranks measured. */
async function longest(span) {
  const own = tensor(backend, new Float32Array([span]), [1]);
  const all = group.allReduce(own, { reduction: "max" });
  const [most] = await all.data();
  for (const each of [own, all]) each.dispose();
  return most;
}

const results = [];
for (const [name, recipe] of Object.entries(RECIPES)) {
  const times = Object.fromEntries(Object.keys(WAYS).map((way) => [way, []]));
  for (let round = -2; round < rounds; round++) {
    for (const [way, run] of Object.entries(WAYS)) {
      await group.barrier();
      backend.timeline.mark();
      run(recipe);
      backend.timeline.mark();
      const [span] = backend.timeline.spans();
      const slowest = await longest(span);
      if (round >= 0) times[way].push(slowest);
    }
  }
  const ms = Object.fromEntries(Object.entries(times).map(([way, list]) => [way, median(list)]));
  const alone = ms["not reduced"];
  const shares = (kind) => {
    const [turn, beside] = [ms[`${kind} in turn`], ms[`${kind} beside`]];
    return { "of ranks times one": alone / beside, hidden: 1 - (beside - alone) / (turn - alone) };
  };
  results.push({ recipe: name, ms, copied: shares("reduced"), sharded: shares("sharded") });
}
if (group.rank === 0) {
  const what = `${layers} x LayerNormMLP(${features}, ${hidden}), ${tokens} tokens a rank, AdamW`;
  console.log(
    `${backend.description}, ${group.size} ranks, ${group.transport.description}, ${what}; medians of ${rounds} rounds`,
  );
  for (const each of results) console.log(JSON.stringify(each));
  console.log(JSON.stringify({ description: backend.description, size: group.size, what, results }));
}
await leave();
