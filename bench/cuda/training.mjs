// Times one step of LayerNormLinear and Linear, forward and backward, under each recipe, compared with bf16 in the same run, and
// the GPU time of each kind of operation, from events around every operation.
import {
  autocast,
  captureGraph,
  DelayedScaling,
  Float8BlockScaling,
  Float8CurrentScaling,
  LayerNormLinear,
  Linear,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
  Scope,
  UnsupportedError,
  Variable,
} from "lockstep";
import { interceptRun } from "../../dist/src/backends/run.js";
import { median } from "../timing.mjs";
import { initMethod, randomBf16 } from "./device.mjs";
import { measureDevice } from "./timing.mjs";

export const TOKENS = 8192;
export const FEATURES = 4096;
/** The number of steps whose operations are timed. */
const TRACED = 7;

const RECIPES = [
  { name: "bf16" },
  { name: "delayed", recipe: new DelayedScaling(), wanted: 1.3 },
  { name: "current", recipe: new Float8CurrentScaling(), wanted: 1.3 },
  { name: "block", recipe: new Float8BlockScaling(), wanted: 1.1 },
  { name: "mxfp8 (emulated)", recipe: new MXFP8BlockScaling() },
  { name: "nvfp4 (emulated)", recipe: new NVFP4BlockScaling() },
];

/**
 * A training step: the forward pass under a recipe and the backward pass, with cached quantized weights, as in all microbatches
 * but the first. `forward(input, call)` returns the result.
 */
export function trainingStep({ forward, parameters, x, dy, recipe }) {
  return (isFirstMicrobatch = false) => {
    const scope = new Scope();
    const input = new Variable(x, true);
    const y = autocast({ recipe, enabled: recipe !== undefined }, () =>
      forward(input, { isFirstMicrobatch }),
    );
    y.backward(dy);
    input.zeroGrad();
    for (const parameter of parameters) parameter.zeroGrad();
    scope.dispose();
  };
}

/** The layers with a cached weight; `step()` runs one microbatch. */
function layersUnder(backend, recipe) {
  const layers = [
    new LayerNormLinear(backend, FEATURES, FEATURES, { initMethod }),
    new Linear(backend, FEATURES, FEATURES, { initMethod }),
  ];
  const parameters = layers.flatMap((layer) => layer.parameters());
  const [x, dy] = [1, 2].map((seed) => randomBf16(backend, [TOKENS, FEATURES], seed));
  const forward = (input, call) => layers.reduce((value, layer) => layer.forward(value, call), input);
  const step = trainingStep({ forward, parameters, x, dy, recipe });
  const dispose = () => {
    for (const each of [...layers, x, dy]) each.dispose();
  };
  step(true);
  return { step, dispose };
}

/** The step as one CUDA graph; undefined, and the reason on stderr, if its operations cannot be captured. */
export function captured(backend, step) {
  try {
    return captureGraph(backend, () => step());
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    process.stderr.write(`bench: a step is not captured: ${error.message}\n`);
    return undefined;
  }
}

/** The suffix in the name of a captured step. */
export const GRAPHED = " graphed";

/** The steps under all recipes, run directly and as captured graphs, and a function that disposes of all. */
export function stepCases(backend) {
  const steps = RECIPES.map(({ name, recipe }) => {
    const { step, dispose } = layersUnder(backend, recipe);
    return { name: `step ${name}`, step, dispose, graph: captured(backend, step) };
  });
  return {
    cases: steps.flatMap(({ name, step, graph }) => [
      { name, run: () => step() },
      ...(graph ? [{ name: `${name}${GRAPHED}`, run: () => graph.replay() }] : []),
    ]),
    dispose: () => {
      for (const { dispose, graph } of steps) {
        graph?.dispose();
        dispose();
      }
    },
  };
}

/**
 * The milliseconds of each operation of one step (including the operations that it calls), and of the entire step from its first
 * operation to its last.
 */
function trace(backend, step) {
  const { timeline } = backend;
  const names = [];
  let depth = 0;
  const mark = () => {
    if (depth === 0) timeline.mark();
  };
  const restore = interceptRun(backend, (run) => (op, args) => {
    mark();
    depth++;
    run(op, args);
    depth--;
    mark();
    if (depth === 0) names.push(op);
  });
  step();
  restore();
  const spans = timeline.spans();
  const operations = names.map((name, i) => ({ name, ms: spans[2 * i] }));
  return { operations, total: spans.reduce((sum, ms) => sum + ms, 0) };
}

/** The median time of each operation over several steps, in the order of the step. */
function breakdown(backend, step) {
  const traces = Array.from({ length: TRACED }, () => trace(backend, step));
  const [{ operations }] = traces;
  const each = operations.map(({ name }, i) => ({
    name,
    ms: median(traces.map((one) => one.operations[i].ms)),
  }));
  const busy = median(traces.map((one) => one.operations.reduce((sum, { ms }) => sum + ms, 0) / one.total));
  return { each, busy };
}

/** The rows of both tables. */
export function trainingRows(backend, wait, rounds) {
  const cases = RECIPES.map(({ name, recipe, wanted }) => {
    const { step, dispose } = layersUnder(backend, recipe);
    return { name, wanted, run: () => step(), step, dispose };
  });
  for (const { step } of cases) step();
  wait();
  const held = backend.memoryUse().reserved;
  const times = measureDevice(cases, wait, rounds, 2);
  const grown = backend.memoryUse().reserved - held;
  const traced = cases.map(({ step }) => breakdown(backend, step));
  for (const { dispose } of cases) dispose();
  const steps = cases.map(({ name, wanted }, i) => ({
    name: `training step ${name}, ${TOKENS}x${FEATURES}x${FEATURES}`,
    ms: times[i].median * 1000,
    "of bf16": times[0].median / times[i].median,
    wanted,
    "GPU busy": traced[i].busy,
    "bytes from the driver": grown,
  }));
  return { steps, operations: operationRows(cases, traced) };
}

/** One row per kind of operation and one column per recipe: milliseconds per step. */
function operationRows(cases, traced) {
  const kinds = [...new Set(traced.flatMap(({ each }) => each.map(({ name }) => name)))];
  return kinds.map((kind) => {
    const columns = cases.map(({ name }, i) => {
      const ofKind = traced[i].each.filter((one) => one.name === kind);
      return [name, ofKind.reduce((sum, { ms }) => sum + ms, 0)];
    });
    return { "ms of a step": kind, ...Object.fromEntries(columns) };
  });
}
