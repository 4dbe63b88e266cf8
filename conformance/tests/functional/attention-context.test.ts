/**
 * Attention with positions distributed over ranks gives the same bits as on one rank. The gradients of keys and values are sums
 * over ranks in the declared order.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import { ArgumentError, DistributedError } from "../../../src/errors.js";
import { dotProductAttention } from "../../../src/functional/attention.js";
import { wideTensor } from "../../../src/modules/parameter.js";
import { normal } from "../../../src/random.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { draws } from "../harness/draws.js";
import { useBackends } from "../harness/ranks/backends.js";

const MOST = 8;
const backends = useBackends(MOST);
const BY_DATAPATH = { hopper: backends, exact: useBackends(MOST, false, "exact") } as const;

interface Case {
  readonly ranks: number;
  readonly batch: number;
  /** The number of positions of each rank. */
  readonly length: number;
  readonly heads: number;
  readonly depth: number;
  readonly dtype: WideDType;
  readonly datapath: keyof typeof BY_DATAPATH;
  readonly causal: boolean;
  readonly seed: number;
}

const cases: fc.Arbitrary<Case> = fc.record({
  ranks: fc.integer({ min: 1, max: MOST }),
  batch: fc.integer({ min: 1, max: 3 }),
  length: fc.integer({ min: 1, max: 9 }),
  heads: fc.integer({ min: 1, max: 3 }),
  depth: fc.constantFrom(1, 4, 7, 16),
  dtype: fc.constantFrom("f32", "bf16", "f16"),
  datapath: fc.constantFrom("hopper", "exact"),
  causal: fc.boolean(),
  seed: fc.nat(1000),
});

/** The parts of two ranks lie in one step of a tensor core, in which their sum is rounded in another way than alone. */
const ACROSS_STEPS: Case = {
  ranks: 7,
  batch: 2,
  length: 7,
  heads: 3,
  depth: 7,
  dtype: "f16",
  datapath: "hopper",
  causal: true,
  seed: 747,
};

const features = ({ heads, depth }: Case): number => heads * depth;
const drawn = ({ seed, batch, ranks, length }: Case, stream: number, width: number): Float32Array =>
  normal({ seed: BigInt(seed + 1000 * stream), offset: 0n }, batch * ranks * length * width, 1);

/** The rows of one rank's positions in values [batch, positions, width]. */
function rowsOf(
  { batch, ranks, length }: Case,
  values: ArrayLike<number>,
  width: number,
  rank: number,
): Float32Array {
  const out = new Float32Array(batch * length * width);
  for (let b = 0; b < batch; b++) {
    const first = (b * ranks + rank) * length * width;
    out.set(
      Array.from({ length: length * width }, (_, i) => values[first + i] as number),
      b * length * width,
    );
  }
  return out;
}

const rounded = (backend: Backend, values: Float32Array, dtype: WideDType): number[] => {
  using _ = new Scope();
  return [...wideTensor(backend, values, [values.length], dtype).dataSync()];
};

/** The widths of queries, keys and values in a row of qkv. */
const columns = (of: Case, row: ArrayLike<number>, part: number): number[] =>
  Array.from(row).filter((_, i) => Math.floor((i % (3 * features(of))) / features(of)) === part);

/** Runs attention on one rank. With `only`, the gradient is restricted to one rank's positions. */
function whole(backend: Backend, of: Case, only?: number) {
  using _ = new Scope();
  const { batch, ranks, length, heads, causal, dtype } = of;
  const width = features(of);
  const x = new Variable(
    wideTensor(backend, drawn(of, 1, 3 * width), [batch, ranks * length, 3 * width], dtype),
    true,
  );
  const y = dotProductAttention(x, { heads, causal });
  const grad = drawn(of, 2, width).map((value, i) =>
    only === undefined || Math.floor(i / (length * width)) % ranks === only ? value : 0,
  );
  y.backward(wideTensor(backend, grad, [batch, ranks * length, width], dtype));
  const dx = x.grad?.dataSync() as ArrayLike<number>;
  const seen = { y: Array.from(y.tensor.dataSync()), dx: Array.from(dx) };
  x.zeroGrad();
  return seen;
}

/** Runs attention on all ranks. */
async function shared(of: Case) {
  const { batch, ranks, length, heads, causal, dtype, datapath } = of;
  const width = features(of);
  return Promise.all(
    loopbackOver(BY_DATAPATH[datapath].slice(0, ranks), 20_000).map(async (group) => {
      const { backend, rank } = group;
      const make = (stream: number, of3: number) =>
        wideTensor(backend, rowsOf(of, drawn(of, stream, of3), of3, rank), [batch, length, of3], dtype);
      const x = new Variable(make(1, 3 * width), true);
      const y = dotProductAttention(x, { heads, causal, group });
      const grad = make(2, width);
      y.backward(grad);
      const seen = { y: Array.from(await y.tensor.data()), dx: Array.from((await x.grad?.data()) ?? []) };
      for (const each of [x.tensor, y.tensor, grad]) each.dispose();
      x.zeroGrad();
      return seen;
    }),
  );
}

/** The f32 values of stored elements. */
function wide(dtype: WideDType, values: readonly number[]): number[] {
  const [bits, floats] = [new Uint32Array(1), new Float32Array(1)];
  const view = new Float32Array(bits.buffer);
  return values.map((value) => {
    if (dtype === "f32") return value;
    if (dtype === "bf16") {
      bits[0] = value << 16;
      return view[0] as number;
    }
    const [sign, exponent, fraction] = [value >> 15, (value >> 10) & 31, value & 1023];
    floats[0] =
      (sign ? -1 : 1) * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
    return floats[0] as number;
  });
}

describe("context parallelism", () => {
  it("equals one rank in the result and the gradient of queries, and sums gradients of keys and values over the ranks", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (of) => {
        const backend = BY_DATAPATH[of.datapath][0] as Backend;
        const width = features(of);
        const expected = whole(backend, of);
        const shares = Array.from({ length: of.ranks }, (_, rank) =>
          wide(of.dtype, whole(backend, of, rank).dx),
        );
        const sums = (shares[0] as number[]).map((_, i) =>
          shares.reduce((sum, share) => Math.fround(sum + (share[i] as number)), 0),
        );
        for (const [rank, { y, dx }] of (await shared(of)).entries()) {
          const where = `rank ${rank} of ${JSON.stringify(of)}`;
          expect(y, where).toEqual([...rowsOf(of, expected.y, width, rank)]);
          const own = (values: ArrayLike<number>, part: number) =>
            columns(of, rowsOf(of, values, 3 * width, rank), part);
          expect(columns(of, dx, 0), where).toEqual(own(expected.dx, 0));
          // zeros in place of the other ranks' gradients change nothing if sums do not depend on the steps of a tensor core
          if (of.datapath === "hopper" && of.dtype !== "f32") continue;
          for (const part of [1, 2]) {
            const wanted = rounded(backend, Float32Array.from(own(sums, part)), of.dtype);
            const normal = (values: readonly number[]) => wide(of.dtype, values).map((value) => value + 0);
            expect(normal(columns(of, dx, part)), where).toEqual(normal(wanted));
          }
        }
      }),
      { numRuns: draws(60), examples: [[ACROSS_STEPS], [{ ...ACROSS_STEPS, datapath: "exact" }]] },
    );
  });

  it("refuses a group of another backend and ranks with different numbers of positions", async () => {
    const [zero, one] = loopbackOver(backends.slice(0, 2), 20_000);
    if (!zero || !one) throw new Error("there are two ranks");
    const make = (backend: Backend, length: number) =>
      wideTensor(backend, new Float32Array(length * 6), [1, length, 6], "f32");
    const here = make(zero.backend, 2);
    expect(() => dotProductAttention(here, { heads: 1, group: one })).toThrow(ArgumentError);
    expect(() => dotProductAttention(here, { heads: 1, group: 2 as never })).toThrow(ArgumentError);
    const y = dotProductAttention(here, { heads: 1, group: zero });
    const there = make(one.backend, 3);
    expect(() => dotProductAttention(there, { heads: 1, group: one })).toThrow(DistributedError);
    await expect(y.tensor.data()).rejects.toThrow(DistributedError);
    for (const each of [here, y.tensor, there]) each.dispose();
  });
});
