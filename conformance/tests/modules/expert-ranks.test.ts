/**
 * A `MoELayer` whose experts are divided among ranks is bitwise equal to one rank with all experts and all tokens. Rows reach
 * their experts and return, for any numbers of ranks, experts and rows.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import type { Backend } from "../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../src/collectives/group.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import { multiply } from "../../../src/functional/index.js";
import { ExpertRanks } from "../../../src/modules/expert-ranks.js";
import { MoELayer, type MoELayerCall, type MoELayerOptions } from "../../../src/modules/moe-layer.js";
import { recompute } from "../../../src/modules/recompute.js";
import { tensor } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { DelayedScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { covering, product } from "../../arbitraries/covering.js";
import { upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { draws, sampleCases } from "../harness/draws.js";
import { useBackends } from "../harness/ranks/backends.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../harness/recipes.js";

const RANKS = 3;
const EXPERTS = 6;
const [HIDDEN, FFN] = [128, 128];
const STEPS = 2;
const backends = useBackends(RANKS + 1);

/**
 * The numbers of tokens of each rank, and biases by which all tokens choose one expert, or none chooses any expert of one rank.
 */
const TOKENS = {
  ragged: { tokens: [5, 7, 4], bias: [0, 0, 0, 0, 0, 0] },
  "a rank without tokens": { tokens: [6, 0, 9], bias: [0, 0, 0, 0, 0, 0] },
  "a rank whose experts have no tokens": { tokens: [3, 4, 2], bias: [0, 0, -9, -9, 0, 0] },
  "one expert": { tokens: [3, 3, 2], bias: [0, 0, 0, 9, 0, 0] },
  "no tokens": { tokens: [0, 0, 0], bias: [0, 0, 0, 0, 0, 0] },
} as const;

const CASES = covering(
  product({
    tokens: Object.keys(TOKENS) as (keyof typeof TOKENS)[],
    recipe: Object.keys(DETERMINISTIC_RECIPES),
    topk: [1, 2],
    bias: [true, false],
    recomputes: [false, true],
    microbatches: [false, true],
    withLoss: [false, true],
  }),
  2,
);
type Case = (typeof CASES)[number];

/** Bits of the result, the gradients of the tokens, and gradients and scales of each expert. */
interface Observation {
  readonly tokens: readonly (readonly number[])[];
  readonly experts: readonly (readonly (readonly number[])[])[];
  readonly scales: readonly unknown[];
}

const recipeOf = (name: string): Recipe | undefined =>
  // amaxes of an expert belong to its rank
  name === "delayed"
    ? new DelayedScaling({ amaxHistoryLen: 3, reduceAmax: false })
    : DETERMINISTIC_RECIPES[name]?.();

async function run(b: Backend, row: Case, group: ProcessGroup | undefined): Promise<Observation> {
  const { tokens, bias: biases } = TOKENS[row.tokens];
  const total = tokens.reduce((sum: number, count) => sum + count, 0);
  const firstToken = group ? tokens.slice(0, group.rank).reduce((sum: number, count) => sum + count, 0) : 0;
  const count = group ? (tokens[group.rank] as number) : total;
  const recipe = recipeOf(row.recipe);
  const random = new RandomState(1n);
  const options: MoELayerOptions = { topk: row.topk, scoreFunction: "sigmoid", bias: row.bias, random };
  const layer = new MoELayer(b, HIDDEN, FFN, EXPERTS, { ...options, group });
  const expertBias = tensor(b, Float32Array.from(biases), [EXPERTS]);
  const gradRows = (seed: number): Tensor => {
    const values = [...wideValues(drawnValues(seed, [total, HIDDEN]))];
    const rows = values.slice(firstToken * HIDDEN, (firstToken + count) * HIDDEN);
    return upload(b, rounded("bf16", [count, HIDDEN], rows));
  };
  const observations: (readonly number[])[] = [];
  for (let step = 0; step < STEPS; step++) {
    const x = new Variable(gradRows(10 + step), true);
    const dy = gradRows(20 + step);
    const base: MoELayerCall = { expertBias, ...(row.microbatches ? { isFirstMicrobatch: step === 0 } : {}) };
    const tokenCounts = await layer.exchangeCounts(x, { expertBias });
    if (!group) expect(tokenCounts.received).toEqual(tokenCounts.sent);
    let y: Tensor;
    {
      using scope = new Scope();
      const call = { ...base, ...(group ? { tokenCounts } : {}) };
      const forward = (input: Variable): Variable =>
        row.withLoss ? layer.forwardWithLoss(input, 0.5, call).output : layer.forward(input, call);
      const body = () => (row.recomputes ? recompute(forward, x) : forward(x));
      const out = recipe ? autocast({ recipe }, body) : body();
      out.backward(dy);
      y = scope.keep(out.tensor);
    }
    const dx = x.grad as Tensor;
    for (const tensor of [y, dx]) observations.push(Array.from((await tensor.data()) as Uint16Array));
    for (const tensor of [y, dx, dy, x.tensor]) tensor.dispose();
  }
  const experts: (readonly (readonly number[])[])[] = [];
  for (const i of layer.fc1.weights.keys()) {
    const parameters = [layer.fc1, layer.fc2].flatMap((layer) => [layer.weights[i], layer.biases[i]]);
    const grads: (readonly number[])[] = [];
    for (const parameter of parameters)
      if (parameter) {
        grads.push(Array.from((await parameter.tensor.data()) as Uint16Array));
        grads.push(Array.from((await (parameter.grad as Tensor).data()) as Uint16Array));
      }
    experts.push(grads);
  }
  const snapshots = [...layer.namedQuantizations()].filter(([name]) => name !== "router.linear");
  const scales = snapshots.map(([, state]) => state.snapshotSync());
  layer.dispose();
  expertBias.dispose();
  // the states of fc1's experts, then the states of fc2's experts
  const half = scales.length / 2;
  return {
    tokens: observations,
    experts,
    scales: scales.slice(0, half).map((scale, i) => [scale, scales[half + i]]),
  };
}

describe("results, gradients, initial weights and scales equal the ones of one rank", () => {
  it.each(sampleCases(CASES.map((row, i) => [`${i}: ${JSON.stringify(row)}`, row] as const)))(
    "%s",
    async (_, row) => {
      const oneRank = await run(backends[RANKS] as Backend, row, undefined);
      const groups = loopbackOver(backends.slice(0, RANKS));
      const ranks = await Promise.all(groups.map((group) => run(group.backend, row, group)));
      for (const [i, bits] of oneRank.tokens.entries())
        expect(ranks.flatMap(({ tokens }) => tokens[i] ?? [])).toEqual(bits);
      expect(ranks.flatMap(({ experts }) => experts)).toEqual(oneRank.experts);
      expect(ranks.flatMap(({ scales }) => scales)).toEqual(oneRank.scales);
    },
  );
});

/** The number of tokens of each rank for each expert of all ranks. */
const exchanges = fc
  .record({ ranks: fc.integer({ min: 1, max: RANKS }), locals: fc.integer({ min: 1, max: 4 }) })
  .chain(({ ranks, locals }) => {
    const counts = fc.array(fc.nat(3), { minLength: ranks * locals, maxLength: ranks * locals });
    return fc.record({
      locals: fc.constant(locals),
      counts: fc.array(counts, { minLength: ranks, maxLength: ranks }),
    });
  });

/** Each of two ranks has three experts, and tokens for all experts. */
const UNEQUAL = {
  locals: 3,
  counts: [
    [1, 2, 1, 3, 1, 2],
    [2, 1, 3, 1, 2, 1],
  ],
};

it("each row meets its expert in the order of one rank; its result and gradient return to its place", async () => {
  const law = async (locals: number, counts: readonly (readonly number[])[]): Promise<void> => {
    using _ = new Scope();
    const ranks = counts.length;
    // each row has a different value
    const rowsOf = counts.map((sent, rank) =>
      sent.flatMap((count, expert) =>
        Array.from({ length: count }, (_, i) => ({ expert, value: 1 + rank * 1000 + expert * 10 + i })),
      ),
    );
    const results = loopbackOver(backends.slice(0, ranks)).map((group, rank) => {
      const b = group.backend;
      const rows = rowsOf[rank] as (typeof rowsOf)[number];
      const x = new Variable(
        tensor(
          b,
          Float32Array.from(rows, ({ value }) => value),
          [rows.length, 1],
        ),
        true,
      );
      const firstExpert = rank * locals;
      const receivedCounts = counts.flatMap((sent) => sent.slice(firstExpert, firstExpert + locals));
      const dispatches: { readonly rows: Tensor; readonly mSplits: readonly number[] }[] = [];
      const run = new ExpertRanks(group, ranks * locals).run(
        x,
        { sent: counts[rank] as readonly number[], received: receivedCounts },
        (input, mSplits) => {
          dispatches.push({ rows: input.tensor, mSplits });
          const factors = mSplits.flatMap((count, i) => new Array<number>(count).fill(firstExpert + i + 2));
          return multiply(input, tensor(b, Float32Array.from(factors), [factors.length, 1]));
        },
      );
      run.backward(tensor(b, new Float32Array(rows.length).fill(3), [rows.length, 1]));
      const dx = (x.grad as Tensor).clone();
      x.zeroGrad();
      return { seen: dispatches, y: run.tensor, dx };
    });
    const numbers = async (values: Tensor): Promise<readonly number[]> =>
      [...(await values.data())].map(Number);
    for (const [rank, { seen: dispatches, y, dx }] of results.entries()) {
      const rows = rowsOf[rank] as (typeof rowsOf)[number];
      const experts = Array.from({ length: locals }, (_, i) => rank * locals + i);
      const rowsOfExpert = experts.map((index) => rowsOf.flat().filter(({ expert }) => expert === index));
      expect(dispatches.map(({ mSplits }) => mSplits)).toEqual([rowsOfExpert.map(({ length }) => length)]);
      expect(await numbers((dispatches[0] as (typeof dispatches)[number]).rows)).toEqual(
        rowsOfExpert.flat().map(({ value }) => value),
      );
      expect(await numbers(y)).toEqual(rows.map(({ expert, value }) => value * (expert + 2)));
      expect(await numbers(dx)).toEqual(rows.map(({ expert }) => 3 * (expert + 2)));
    }
  };
  await fc.assert(
    fc.asyncProperty(exchanges, ({ locals, counts }) => law(locals, counts)),
    { numRuns: draws(200, 10), examples: [[UNEQUAL]] },
  );
});

describe("refuses", () => {
  it("experts that the ranks cannot divide", () => {
    const [group] = loopbackOver(backends.slice(0, RANKS)) as [ProcessGroup];
    expect(() => new MoELayer(group.backend, HIDDEN, FFN, 4, { topk: 1, group })).toThrow(ShapeError);
  });

  it("counts that are missing or too few", () => {
    using _ = new Scope();
    const [group] = loopbackOver(backends.slice(0, RANKS)) as [ProcessGroup];
    const x = upload(group.backend, drawnValues(1, [4, HIDDEN]));
    using dividedLayer = new MoELayer(group.backend, HIDDEN, FFN, EXPERTS, { topk: 1, group });
    expect(() => dividedLayer.forward(x)).toThrow(/exchangeCounts/);
    const fewTokens = { sent: [4, 0, 0, 0, 0, 0], received: [1, 2] };
    expect(() => dividedLayer.forward(x, { tokenCounts: fewTokens })).toThrow(ArgumentError);
  });
});

it("counts of one rank replace reading them on the host", async () => {
  const b = backends[RANKS] as Backend;
  const layer = new MoELayer(b, HIDDEN, FFN, EXPERTS, { topk: 2 });
  const x = upload(b, drawnValues(1, [9, HIDDEN]));
  const tokenCounts = await layer.exchangeCounts(x);
  expect(tokenCounts.sent.reduce((sum, count) => sum + count, 0)).toBe(18);
  {
    using _ = new Scope();
    const [withCounts, withoutCounts] = [layer.forward(x, { tokenCounts }), layer.forward(x)];
    expect([...withCounts.tensor.dataSync()]).toEqual([...withoutCounts.tensor.dataSync()]);
  }
  x.dispose();
  layer.dispose();
});
