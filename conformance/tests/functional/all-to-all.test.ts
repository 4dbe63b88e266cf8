/**
 * Experts on several ranks are bitwise equal to experts on one rank, forward and backward, with any numbers of rows, including
 * none.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import type { Backend } from "../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../src/collectives/group.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { GroupedLinear } from "../../../src/modules/grouped-linear.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { Float8BlockScaling, MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { useBackends } from "../harness/ranks/backends.js";

const RANKS = 3;
const LOCAL = 2;
const EXPERTS = RANKS * LOCAL;
const [WIDTH, TOPK] = [128, 2];
const backends = useBackends(RANKS + 1);

const RECIPES: Readonly<Record<string, () => Recipe | undefined>> = {
  bf16: () => undefined,
  delayed: () => new DelayedScaling({ reduceAmax: false }),
  current: () => new Float8CurrentScaling(),
  block: () => new Float8BlockScaling(),
  mxfp8: () => new MXFP8BlockScaling(),
};

/** The tokens of each rank, and how they choose experts. */
const CASES = {
  "tokens everywhere": { tokens: [5, 7, 4], expertsPerToken: (word: number) => word % EXPERTS },
  "a rank without tokens, and one without experts that are chosen": {
    tokens: [6, 0, 9],
    expertsPerToken: (word: number) => [0, 1, 4, 5][word % 4] as number,
  },
  "all tokens to one expert": { tokens: [3, 3, 2], expertsPerToken: () => 3 },
} as const;

const floats = (seed: number, count: number) =>
  Float32Array.from(words(seed, count), (word) => word / 2 ** 31 - 1);
const bf16 = (b: Backend, seed: number, total: number, firstRow: number, rows: number): Tensor => {
  const codes = Uint16Array.from(
    floats(seed, total * WIDTH),
    (x) => new Uint32Array(Float32Array.of(x).buffer)[0]! >>> 16,
  );
  return tensor(b, codes.slice(firstRow * WIDTH, (firstRow + rows) * WIDTH), [rows, WIDTH], "bf16");
};

/** `count` experts from `firstExpert` on. Their weights are the weights that one rank with all experts gives them. */
function expertsOf(b: Backend, firstExpert: number, count: number): GroupedLinear {
  const allWeights = floats(99, EXPERTS * WIDTH * WIDTH);
  let next = firstExpert;
  const initMethod = () => allWeights.slice(next * WIDTH * WIDTH, ++next * WIDTH * WIDTH);
  return new GroupedLinear(b, count, WIDTH, WIDTH, { bias: false, initMethod, random: new RandomState(1n) });
}

type Case = (typeof CASES)[keyof typeof CASES];

/** The results of a rank: bits of its outputs, its tokens' gradients, and its experts' gradients. */
type Bits = readonly (readonly number[])[];

const bitsOf = (x: Tensor | undefined): readonly number[] => (x ? [...(x.dataSync() as Uint16Array)] : []);
const readBits = async (x: Tensor | undefined): Promise<readonly number[]> =>
  x ? [...((await x.data()) as Uint16Array)] : [];

function indicesOf({ tokens, expertsPerToken }: Case, firstToken: number, count: number): Int32Array {
  const total = tokens.reduce((a: number, b) => a + b, 0);
  return Int32Array.from(words(7, total * TOPK), expertsPerToken).slice(
    firstToken * TOPK,
    (firstToken + count) * TOPK,
  );
}

/** One rank with all experts and all tokens. */
function runTogether(b: Backend, testCase: Case, recipe: Recipe | undefined): Bits {
  using _scope = new Scope();
  const total = testCase.tokens.reduce((a: number, count) => a + count, 0);
  using experts = expertsOf(b, 0, EXPERTS);
  const x = new Variable(bf16(b, 1, total, 0, total), true);
  const map = tensor(b, indicesOf(testCase, 0, total), [total, TOPK], "i32");
  const { output, rowIdMap } = functional.moePermute(x, map, { mapType: "index", numExperts: EXPERTS });
  const splits = [...rowIdMap.tokensPerExpert.dataSync()];
  const region = (body: () => Variable) => (recipe ? autocast({ recipe }, body) : body());
  const y = functional.moeUnpermute(
    region(() => experts.forward(output, splits)),
    rowIdMap,
  );
  y.backward(bf16(b, 2, total, 0, total));
  const bits = [bitsOf(y.tensor), bitsOf(x.grad), ...experts.weights.map(({ grad }) => bitsOf(grad))];
  x.zeroGrad();
  return bits;
}

/** One rank of several. */
async function runDivided(group: ProcessGroup, testCase: Case, recipe: Recipe | undefined): Promise<Bits> {
  const { backend: b, rank } = group;
  const count = testCase.tokens[rank] as number;
  const firstToken = testCase.tokens.slice(0, rank).reduce((a: number, tokens) => a + tokens, 0);
  const total = testCase.tokens.reduce((a: number, tokens) => a + tokens, 0);
  const keptTensors: Tensor[] = [];
  const keep = <T extends Tensor>(x: T): T => {
    keptTensors.push(x);
    return x;
  };
  // the numbers of rows for each expert, and those from each rank for this rank's experts
  const map = keep(tensor(b, indicesOf(testCase, firstToken, count), [count, TOPK], "i32"));
  const sentCounts = Array.from(
    { length: EXPERTS },
    (_, expert) => indicesOf(testCase, firstToken, count).filter((i) => i === expert).length,
  );
  const counts = keep(tensor(b, Int32Array.from(sentCounts), [EXPERTS], "i32"));
  const exchangedCounts = keep(group.allToAll(counts));
  const sizes = [...(await exchangedCounts.data())];
  const experts = expertsOf(b, rank * LOCAL, LOCAL);
  const x = new Variable(keep(bf16(b, 1, total, firstToken, count)), true);
  const scope = new Scope();
  const rowsOf = (countList: readonly number[], rankOf: number) =>
    countList.slice(rankOf * LOCAL, (rankOf + 1) * LOCAL).reduce((a, n) => a + n, 0);
  const ranks = Array.from({ length: RANKS }, (_, otherRank) => otherRank);
  const sentRows = ranks.map((otherRank) => rowsOf(sentCounts, otherRank));
  const receivedRows = ranks.map((otherRank) => rowsOf(sizes, otherRank));
  // chunks arrive by rank, then expert; experts take them by expert, then rank
  const byExpert = Array.from({ length: LOCAL }, (_, localExpert) =>
    ranks.map((otherRank) => otherRank * LOCAL + localExpert),
  ).flat();
  const byRank = ranks.flatMap((otherRank) =>
    Array.from({ length: LOCAL }, (_, localExpert) => localExpert * RANKS + otherRank),
  );
  const splits = Array.from({ length: LOCAL }, (_, localExpert) =>
    ranks.reduce((sum, otherRank) => sum + (sizes[otherRank * LOCAL + localExpert] as number), 0),
  );
  const region = (body: () => Variable) => (recipe ? autocast({ recipe }, body) : body());

  const { output, rowIdMap } = functional.moePermute(x, map, { mapType: "index", numExperts: EXPERTS });
  const dispatchedRows = functional.allToAll(output, group, { sent: sentRows, received: receivedRows });
  const sortedChunks = functional.moeSortChunksByIndex(dispatchedRows, sizes, byExpert);
  const expertOutput = region(() => experts.forward(sortedChunks, splits));
  const sortedSizes = byExpert.map((chunk) => sizes[chunk] as number);
  const unsortedChunks = functional.moeSortChunksByIndex(expertOutput, sortedSizes, byRank);
  const returnedRows = functional.allToAll(unsortedChunks, group, { sent: receivedRows, received: sentRows });
  const y = functional.moeUnpermute(returnedRows, rowIdMap);
  y.backward(keep(bf16(b, 2, total, firstToken, count)));
  scope.keepAll();
  scope[Symbol.dispose]();
  const bits = [await readBits(y.tensor), await readBits(x.grad)];
  for (const { grad } of experts.weights) bits.push(await readBits(grad));
  x.zeroGrad();
  experts.dispose();
  for (const tensorToFree of [
    y,
    returnedRows,
    unsortedChunks,
    expertOutput,
    sortedChunks,
    dispatchedRows,
    output,
  ])
    tensorToFree.tensor.dispose();
  for (const tensorToFree of [...Object.values(rowIdMap), ...keptTensors]) (tensorToFree as Tensor).dispose();
  return bits;
}

describe("experts on several ranks have the bits of one rank", () => {
  for (const [name, testCase] of Object.entries(CASES))
    it.each(Object.keys(RECIPES))(`${name}, under %s`, async (recipeName) => {
      const make = RECIPES[recipeName] as () => Recipe | undefined;
      const expected = runTogether(backends[RANKS] as Backend, testCase, make());
      const groups = loopbackOver(backends.slice(0, RANKS));
      const resultsByRank = await Promise.all(groups.map((group) => runDivided(group, testCase, make())));
      expect(resultsByRank.flatMap(([y]) => y)).toEqual(expected[0]);
      expect(resultsByRank.flatMap(([, dx]) => dx)).toEqual(expected[1]);
      expect(resultsByRank.flatMap(([, , ...weights]) => weights)).toEqual(expected.slice(2));
    });
});

it("numbers that do not fit are refused", () => {
  using _scope = new Scope();
  const [group] = loopbackOver(backends.slice(0, RANKS)) as [ProcessGroup];
  const x = empty(group.backend, "bf16", [4, 2]);
  const rows = (...sent: number[]) => ({ sent, received: [0, 0, 0] });
  expect(() => functional.allToAll(x, group, rows(4, 0))).toThrow(ArgumentError);
  expect(() => functional.allToAll(x, group, rows(4, 0, 1))).toThrow(ShapeError);
  expect(() => functional.allToAll(x, group, rows(4, 0, -1))).toThrow(ArgumentError);
});
