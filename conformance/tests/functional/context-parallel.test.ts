/**
 * Attention whose positions are divided among ranks is bitwise equal to attention on one rank, forward and backward, by every
 * exchange. The gradients of sinks are sums over each rank's rows, or over its heads.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import { ArgumentError, DistributedError, ShapeError } from "../../../src/errors.js";
import { attention, type BlockwiseAttentionOptions } from "../../../src/functional/blockwise-attention.js";
import { tensor } from "../../../src/ops/create.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { covering, product } from "../../arbitraries/covering.js";
import { draws } from "../harness/draws.js";
import { useBackends } from "../harness/ranks/backends.js";
import { waves } from "../modules/attention/drawn.js";

const MOST = 4;
const backends = useBackends(MOST);

interface Case {
  readonly ranks: number;
  readonly batch: number;
  /** The number of positions of each rank. */
  readonly length: number;
  readonly groups: number;
  /** The number of heads of queries that share a head of keys. */
  readonly share: number;
  readonly widths: readonly [keys: number, values: number];
  readonly dtype: WideDType;
  readonly layout: "bshd" | "sbhd";
  readonly exchange: "all_gather" | "p2p" | "a2a";
  readonly causal: boolean;
  readonly window: readonly [left: number, right: number];
  /** The numbers of heads of other ranks before and after these, among which the bits of dropout are drawn. */
  readonly drops: readonly [before: number, after: number] | undefined;
  readonly sinks: boolean;
  readonly slopes: "none" | "heads" | "batch";
  readonly softcap: number | undefined;
  readonly blockKeys: number;
  readonly splitKeys: number;
}

const cases: fc.Arbitrary<Case> = fc
  .record({
    ranks: fc.integer({ min: 1, max: MOST }),
    batch: fc.integer({ min: 1, max: 2 }),
    length: fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(16, 17, 33)),
    groups: fc.integer({ min: 1, max: 2 }),
    share: fc.integer({ min: 1, max: 3 }),
    widths: fc.constantFrom<readonly [number, number]>([16, 16], [24, 8], [5, 7]),
    dtype: fc.constantFrom<WideDType>("f32", "bf16", "f16"),
    layout: fc.constantFrom<"bshd" | "sbhd">("bshd", "sbhd"),
    exchange: fc.constantFrom<Case["exchange"]>("all_gather", "p2p", "a2a"),
    causal: fc.boolean(),
    window: fc.constantFrom<readonly [number, number]>([-1, -1], [-1, -1], [0, 0], [5, 0], [20, 3]),
    drops: fc.constantFrom<Case["drops"]>(undefined, undefined, [0, 0], [3, 2]),
    sinks: fc.boolean(),
    slopes: fc.constantFrom<Case["slopes"]>("none", "heads", "batch"),
    softcap: fc.constantFrom(undefined, 3),
    blockKeys: fc.constantFrom(16, 32),
    splitKeys: fc.constantFrom(0, 32),
  })
  .map(({ groups, ...testCase }) => {
    // all ranks have heads
    const ownCase = { ...testCase, groups: testCase.exchange === "a2a" ? groups * testCase.ranks : groups };
    if (ownCase.causal || ownCase.exchange === "a2a") return ownCase;
    return { ...ownCase, window: [-1, -1], drops: undefined, slopes: "none" };
  });

/** Two ranks exchange heads. Other ranks have further heads. Elements of the second sequence are dropped. */
const OTHER_HEADS: Case = {
  ...{ ranks: 2, batch: 2, length: 9, groups: 2, share: 1, widths: [5, 7], dtype: "f32", layout: "sbhd" },
  ...{ exchange: "a2a", causal: false, window: [-1, -1], drops: [3, 2], sinks: false, slopes: "none" },
  ...{ softcap: undefined, blockKeys: 16, splitKeys: 0 },
};

/** The second rank begins within a step of the backward pass. Sums of f16 show the query at which a step begins. */
const WITHIN_STEP: Case = {
  ...{ ranks: 2, batch: 2, length: 24, groups: 2, share: 2, widths: [24, 8], dtype: "f16", layout: "sbhd" },
  ...{ exchange: "all_gather", causal: true, window: [-1, -1], drops: undefined, sinks: false },
  ...{ slopes: "none", softcap: undefined, blockKeys: 16, splitKeys: 0 },
};

/** Two ranks with every two options. */
const OPTIONS: readonly Case[] = covering(
  product({
    exchange: ["all_gather", "p2p", "a2a"],
    causal: [true, false],
    dtype: ["f32", "bf16", "f16"],
    widths: [
      [5, 7],
      [24, 8],
    ],
    window: [
      [-1, -1],
      [5, 0],
      [20, 3],
    ],
    drops: [undefined, [0, 0], [3, 2]],
    sinks: [false, true],
    slopes: ["none", "heads", "batch"],
    softcap: [undefined, 3],
    layout: ["bshd", "sbhd"],
    splitKeys: [0, 32],
  } as const).filter(
    ({ exchange, causal, window, drops, slopes }) =>
      exchange === "a2a" ||
      causal ||
      window[1] === 0 ||
      (window[0] === -1 && drops === undefined && slopes === "none"),
  ),
  2,
).map((options) => ({
  ...{ ranks: 2, batch: 2, length: 24, groups: 2, share: 1, blockKeys: 16 },
  ...options,
}));

const EXAMPLES: [Case][] = [OTHER_HEADS, WITHIN_STEP, ...OPTIONS].map((example) => [example]);

const SHAPES = { q: 0, k: 1, v: 2, grad: 3 } as const;

/** The shape of all positions of a tensor, or of those of one rank, in the order "sbhd". */
function shapeOf(testCase: Case, operand: keyof typeof SHAPES, positions: number): Shape {
  const heads = operand === "q" || operand === "grad" ? testCase.groups * testCase.share : testCase.groups;
  return [positions, testCase.batch, heads, testCase.widths[operand === "q" || operand === "k" ? 0 : 1]];
}

/** The elements of a tensor at the positions from `first` on. */
function part(
  b: Backend,
  testCase: Case,
  operand: keyof typeof SHAPES,
  firstPosition: number,
  positions: number,
): Tensor {
  const shape = shapeOf(testCase, operand, positions);
  const allValues = waves(
    b,
    1 + SHAPES[operand],
    shapeOf(testCase, operand, testCase.ranks * testCase.length),
    testCase.dtype,
  );
  const ownValues = allValues.slice(
    firstPosition * (allValues.size / (testCase.ranks * testCase.length)),
    shape,
  );
  return testCase.layout === "sbhd" ? ownValues : swapFirstAxes(ownValues);
}

/** Exchanges the first two dimensions. */
function swapFirstAxes(x: Tensor): Tensor {
  const [a, b, ...otherSizes] = x.shape as readonly [number, number, number, number];
  const unit = otherSizes[0] * otherSizes[1];
  const out = x.clone().reshape([b, a, ...otherSizes]);
  for (let i = 0; i < a; i++)
    for (let j = 0; j < b; j++) out.paste(x.slice((i * b + j) * unit, [unit]), (j * a + i) * unit);
  return out;
}

function optionsOf(b: Backend, testCase: Case): BlockwiseAttentionOptions {
  const heads = testCase.groups * testCase.share;
  const { drops: [headsBefore, headsAfter] = [0, 0] } = testCase;
  const slope = Array.from({ length: testCase.batch * heads }, (_, i) => 2 ** -(i % 5));
  return {
    ...{
      layout: testCase.layout,
      causal: testCase.causal,
      window: testCase.window,
      softcap: testCase.softcap,
    },
    plan: { blockKeys: testCase.blockKeys, splitKeys: testCase.splitKeys },
    ...(testCase.drops
      ? {
          dropout: {
            ...{ probability: 0.3, seed: 5n, offset: 6n },
            ...(headsBefore + headsAfter > 0
              ? { allHeads: headsBefore + heads + headsAfter, firstHead: headsBefore }
              : {}),
          },
        }
      : {}),
    ...(testCase.slopes === "heads"
      ? { alibiSlopes: tensor(b, Float32Array.from(slope.slice(0, heads)), [heads]) }
      : {}),
    ...(testCase.slopes === "batch"
      ? { alibiSlopes: tensor(b, Float32Array.from(slope), [testCase.batch, heads]) }
      : {}),
  };
}

/** Results of a rank: out, the gradients of q, k and v in the order "sbhd", and of the sinks. */
type Results = readonly [out: Tensor, dq: Tensor, dk: Tensor, dv: Tensor, dsinks: Tensor | undefined];

function run(
  b: Backend,
  testCase: Case,
  [firstPosition, positions]: readonly [number, number],
  options: BlockwiseAttentionOptions = {},
  grads: (grad: Tensor) => Tensor = (grad) => grad,
): Results {
  using scope = new Scope();
  const [q, k, v] = (["q", "k", "v"] as const).map(
    (operand) => new Variable(part(b, testCase, operand, firstPosition, positions), true),
  ) as [Variable, Variable, Variable];
  const heads = testCase.groups * testCase.share;
  const logits = Float32Array.from({ length: heads }, (_, i) => 1 - i / 2);
  const sinks = testCase.sinks ? new Variable(tensor(b, logits, [heads]), true) : undefined;
  const out = attention(q, k, v, { ...optionsOf(b, testCase), ...(sinks ? { sinks } : {}), ...options });
  out.backward(grads(part(b, testCase, "grad", firstPosition, positions)));
  const order = (x: Tensor): Tensor => (testCase.layout === "sbhd" ? x.clone() : swapFirstAxes(x));
  const results = [out.tensor, q.grad, k.grad, v.grad].map((x) => scope.keep(order(x as Tensor)));
  const gradOfSinks = sinks?.grad && scope.keep(sinks.grad.clone());
  for (const leaf of [q, k, v, ...(sinks ? [sinks] : [])]) leaf.zeroGrad();
  return [...results, gradOfSinks] as unknown as Results;
}

const bits = async (x: Tensor): Promise<number[]> => [...(await x.data())].map(Number);

/** The gradient of the sinks from the rows of one rank, without an exchange. */
function sinksOf(b: Backend, testCase: Case, rank: number): Tensor {
  using scope = new Scope();
  const { ranks, length } = testCase;
  const hidesLater = testCase.causal || testCase.window[1] === 0;
  const keys = hidesLater ? (rank + 1) * length : ranks * length;
  const heads = testCase.groups * testCase.share;
  const logits = Float32Array.from({ length: heads }, (_, i) => 1 - i / 2);
  const sinks = new Variable(tensor(b, logits, [heads]), true);
  const out = attention(
    part(b, testCase, "q", rank * length, length),
    part(b, testCase, "k", 0, keys),
    part(b, testCase, "v", 0, keys),
    { ...optionsOf(b, testCase), sinks, align: "end" },
  );
  out.backward(part(b, testCase, "grad", rank * length, length));
  const gradOfSinks = scope.keep((sinks.grad as Tensor).clone());
  sinks.zeroGrad();
  return gradOfSinks;
}

describe("context parallelism", () => {
  it("has the bits of one rank by every exchange, forward and backward", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (testCase) => {
        const { ranks, length } = testCase;
        const expectedResults = run(backends[0] as Backend, testCase, [0, ranks * length]);
        const groups = loopbackOver(backends.slice(0, ranks), 20_000);
        const results = groups.map((cpGroup) =>
          run(cpGroup.backend, testCase, [cpGroup.rank * length, length], {
            cpGroup,
            cpCommType: testCase.exchange,
          }),
        );
        for (const [i, name] of ["out", "dq", "dk", "dv"].entries()) {
          const expected = await bits(expectedResults[i] as Tensor);
          const elementsPerRank = expected.length / ranks;
          for (const [rank, ownResults] of results.entries())
            expect(
              await bits(ownResults[i] as Tensor),
              `${name} of rank ${rank} of ${JSON.stringify(testCase)}`,
            ).toEqual(expected.slice(rank * elementsPerRank, (rank + 1) * elementsPerRank));
        }
        const heads = testCase.groups * testCase.share;
        for (const [rank, { 4: dsinks }] of results.entries()) {
          if (!dsinks) continue;
          const isByHeads = testCase.exchange === "a2a" && ranks > 1;
          using expected = isByHeads
            ? (expectedResults[4] as Tensor).clone()
            : sinksOf(backends[0] as Backend, testCase, rank);
          const isHeadOfRank = (i: number) => !isByHeads || Math.floor((i * ranks) / heads) === rank;
          expect(await bits(dsinks), `sinks of rank ${rank} of ${JSON.stringify(testCase)}`).toEqual(
            (await bits(expected)).map((x, i) => (isHeadOfRank(i) ? x : 0)),
          );
        }
        for (const tensorToFree of [expectedResults, ...results].flat()) tensorToFree?.dispose();
      }),
      { numRuns: draws(120, 6) + EXAMPLES.length, examples: EXAMPLES },
    );
  });

  it("refuses what ranks cannot divide, and ranks with different numbers of positions", async () => {
    using _ = new Scope();
    const groups = loopbackOver(backends.slice(0, 2), 20_000);
    const [rank0, rank1] = groups as [(typeof groups)[number], (typeof groups)[number]];
    const b = rank0.backend;
    const make = (heads: number, positions = 2, otherBackend = b) =>
      waves(otherBackend, 1, [1, positions, heads, 8]);
    const call = (options: BlockwiseAttentionOptions, heads = 2) => {
      const x = make(heads);
      return attention(x, x, x, { causal: true, cpGroup: rank0, ...options });
    };
    const pairs = waves(b, 1, [1, 1, 2, 2]);
    const lengths = tensor(b, Int32Array.of(1), [1], "i32");
    for (const options of [
      { bias: pairs },
      { mask: tensor(b, new Uint8Array(4), [1, 1, 2, 2], "u8") },
      { queryLengths: lengths },
      { keyLengths: lengths },
      { causal: false, window: [1, 1] },
      { causal: false, dropout: { probability: 0.5, seed: 1n } },
      { causal: false, alibiSlopes: tensor(b, new Float32Array(2), [2]) },
      { cpGroup: rank1 },
      { cpCommType: "ring" as never },
    ] as const)
      expect(() => call(options), JSON.stringify(Object.keys(options))).toThrow(ArgumentError);
    expect(() => call({ cpCommType: "a2a" }, 1)).toThrow(ShapeError);
    const [query, keys] = [make(1, 2), make(1, 3)];
    expect(() => attention(query, keys, keys, { causal: true, cpGroup: rank0 })).toThrow(ShapeError);
    // the enqueued work of this rank fails as soon as the other rank disagrees
    const y = attention(query, query, query, { cpGroup: rank0, cpCommType: "all_gather" });
    const [otherTensor, rows] = [make(1, 2, rank1.backend), make(1, 3, rank1.backend)];
    expect(() => attention(otherTensor, rows, rows, { cpGroup: rank1, cpCommType: "all_gather" })).toThrow(
      DistributedError,
    );
    await expect(y.tensor.data()).rejects.toThrow(DistributedError);
  });
});
