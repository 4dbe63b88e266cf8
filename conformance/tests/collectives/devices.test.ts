/** Groups whose ranks exchange from device to device give the oracle's results, in whatever order their streams run. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { reduceParts } from "../../../src/collectives/devices/reduce.js";
import type { Rings } from "../../../src/collectives/devices/ring.js";
import type { ProcessGroup } from "../../../src/collectives/group.js";
import type { Tensor, WideDType } from "../../../src/index.js";
import { empty } from "../../../src/ops/create.js";
import { add } from "../../../src/ops/elementwise/operators.gen.js";
import { onSideStream } from "../../../src/ops/side-stream.js";
import { isOverlap } from "../../../src/tensor/storage.js";
import * as oracle from "../../oracle/collective/collective.js";
import { differenceOf } from "../../values/difference.js";
import { fromCodes, PlainTensor, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { useBackends } from "../harness/ranks/backends.js";
import { distributedCase } from "../harness/ranks/case.js";
import { Job, roundTo } from "../harness/ranks/devices.js";
import { assertCase } from "../harness/ranks/jobs.js";
import { runCalls } from "../harness/ranks/program.mjs";
import { whileStreamsRun } from "../harness/ranks/streams.js";

const MAX_RANKS = 6;
const backends = useBackends(MAX_RANKS);

/** An endless list of choices, which determines the order in which streams run. */
const turns = fc
  .oneof(fc.constant([0]), fc.constant([1000]), fc.array(fc.nat(1000), { minLength: 1, maxLength: 40 }))
  .map((choices) => {
    let next = 0;
    return (): number => choices[next++ % choices.length] as number;
  });

/** The rings of a simulated library for each group size: the order may differ among dtypes, or be unknown. */
const rings = fc
  .record({ f32: fc.nat(), bf16: fc.nat(), f16: fc.nat() })
  .map((ringChoices) => (size: number): Rings => {
    const ringOf = (number: number): readonly number[] | undefined => {
      const otherRanks = Array.from({ length: size - 1 }, (_, i) => i + 1);
      const shift = number % size;
      return [undefined, [0, ...otherRanks], [0, ...otherRanks.slice(shift), ...otherRanks.slice(0, shift)]][
        number % 3
      ];
    };
    const { f32, bf16, f16 } = {
      f32: ringOf(ringChoices.f32),
      bf16: ringOf(ringChoices.bf16),
      f16: ringOf(ringChoices.f16),
    };
    return { ...(f32 && { f32 }), ...(bf16 && { bf16 }), ...(f16 && { f16 }) };
  });

describe("ranks with a device each", () => {
  it("equal the oracle to the bit for any operation, size, dtype, shards, plan, mesh and stream progress", async () => {
    await fc.assert(
      fc.asyncProperty(distributedCase(MAX_RANKS), turns, rings, async (drawnCase, next, ringsOf) => {
        const { programs } = drawnCase;
        const job = new Job(backends.slice(0, programs.length), ringsOf);
        const pendingResults = job.groups.map((group, rank) => {
          const calls = runCalls(
            { empty, add, onSideStream },
            group,
            programs[rank] as (typeof programs)[number],
          );
          for (;;) {
            const { done, value } = calls.next();
            if (done) return value;
          }
        });
        const results = await whileStreamsRun(job.backends, next, Promise.all(pendingResults));
        assertCase(drawnCase, results, "a drawn case");
        job.requireFlows();
      }),
      { numRuns: draws(500), seed: derivedSeed(3) },
    );
  });

  const TYPES = ["f32", "bf16", "f16"] as const;
  const VALUES = [1, -1, 2 ** -12, 3, 1 + 2 ** -7, -(2 ** 11), 2 ** 11, 0.75, -0, 5];

  /** The inputs of all ranks: values whose sums are rounded. */
  function inputs(dtype: WideDType, size: number, count: number): readonly PlainTensor<WideDType>[] {
    return Array.from({ length: size }, (_, rank) => {
      const values = Array.from(
        { length: count },
        (_, i) => VALUES[(i * 7 + rank * (3 + (i % 11))) % VALUES.length] as number,
      );
      return rounded(dtype, [count], values);
    });
  }

  /** Inputs larger than the limit up to which every rank gathers all parts. */
  const largeCases = fc.record({
    size: fc.integer({ min: 1, max: 4 }),
    dtype: fc.constantFrom(...TYPES),
    algorithm: fc.constantFrom("ranked" as const, "ring" as const, "max" as const),
    isMean: fc.boolean(),
    elements: fc.integer({ min: 0, max: 9 }).map((remainder) => 2 ** 13 - 3 + remainder),
    splitShares: fc.array(fc.nat(5), { minLength: 4, maxLength: 4 }),
  });

  it("equal the oracle to the bit for large tensors and splits of any sizes", async () => {
    await fc.assert(
      fc.asyncProperty(
        largeCases,
        turns,
        rings,
        async ({ size, dtype, algorithm, isMean, elements, splitShares }, next, ringsOf) => {
          const count = dtype === "f32" ? elements : 2 * elements;
          const job = new Job(backends.slice(0, size), ringsOf);
          const inputsByRank = inputs(dtype, size, count);
          const firstSplits = splitShares
            .slice(0, size - 1)
            .map((fifth) => Math.floor((count * fifth) / (5 * size)));
          const splits = [...firstSplits, count - firstSplits.reduce((a, b) => a + b, 0)];
          const values = inputsByRank.map(wideValues);
          const sum =
            algorithm === "max"
              ? oracle.maximum(values)
              : algorithm === "ring"
                ? oracle.ringSum(values, [...splits.keys()], splits, roundTo(dtype))
                : oracle.rankedSum(values, roundTo(dtype));
          const reduction = algorithm !== "max" && isMean ? ("mean" as const) : ("sum" as const);
          const result = reduction === "mean" ? oracle.meanOfSums(sum, size, roundTo(dtype)) : sum;
          const expected = rounded(dtype, [count], result);
          const options =
            algorithm === "max" ? { reduction: algorithm } : { reduction, plan: { algorithm, splits } };
          const reads = job.groups.map(async (group, rank) => {
            const x = upload(group, inputsByRank[rank] as PlainTensor<WideDType>);
            const out = group.allReduce(x, options);
            x.dispose();
            const sums = await out.data();
            out.dispose();
            return new PlainTensor(dtype, [count], sums);
          });
          const results = await whileStreamsRun(job.backends, next, Promise.all(reads));
          for (const rankResult of results) expect(differenceOf(rankResult, expected)).toBeUndefined();
        },
      ),
      { numRuns: draws(12), seed: derivedSeed(4) },
    );
  });

  it("combine parts in any number of pieces, with the bits of one piece", async () => {
    const pieces = fc.record({
      size: fc.integer({ min: 2, max: 4 }),
      counts: fc.array(fc.oneof(fc.nat(3), fc.nat(1500)), { minLength: 4, maxLength: 4 }),
      pieces: fc.option(fc.integer({ min: 1, max: 6 }), { nil: undefined }),
      dtype: fc.constantFrom(...TYPES),
    });
    await fc.assert(
      fc.asyncProperty(pieces, turns, async ({ size, counts: drawnCounts, pieces, dtype }, next) => {
        const job = new Job(backends.slice(0, size), () => ({}));
        const counts = drawnCounts.slice(0, size);
        const total = counts.reduce((a, b) => a + b, 0);
        const inputsByRank = inputs(dtype, size, total);
        const expected = oracle.rankedSum(inputsByRank.map(wideValues), roundTo(dtype));
        const order = [...counts.keys()];
        const reads = job.groups.map(async (group, rank) => {
          const x = upload(group, inputsByRank[rank] as PlainTensor<WideDType>);
          const ownCount = counts[rank] as number;
          const out = empty(group.backend, dtype, [ownCount]);
          const { side } = job.communicators[rank] as (typeof job.communicators)[number];
          const sumOptions = { dtype, order, sum: "f32", factor: 1, pieces } as const;
          reduceParts(side, { x: x.address, counts, out: out.address, ...sumOptions });
          x.dispose();
          const sums = await out.data();
          out.dispose();
          const begin = counts.slice(0, rank).reduce((a, b) => a + b, 0);
          expect(
            differenceOf(
              new PlainTensor(dtype, [ownCount], sums),
              rounded(dtype, [ownCount], expected.slice(begin, begin + ownCount)),
            ),
          ).toBeUndefined();
        });
        await whileStreamsRun(job.backends, next, Promise.all(reads));
      }),
      { numRuns: draws(60), seed: derivedSeed(5) },
    );
  });

  it("receive nothing over bytes that a kernel may still read, within bounded memory, whatever the sizes", () => {
    const sizes = fc.record({
      size: fc.integer({ min: 2, max: 4 }),
      counts: fc.array(fc.oneof(fc.nat(2 ** 10), fc.nat(2 ** 30)), { minLength: 4, maxLength: 4 }),
      rank: fc.nat(3),
      pieces: fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined }),
      dtype: fc.constantFrom(...TYPES),
    });
    fc.assert(
      fc.property(sizes, ({ size, counts: drawnCounts, rank: drawnRank, pieces, dtype }) => {
        const [rank, counts] = [drawnRank % size, drawnCounts.slice(0, size)];
        let allocatedBytes = 0;
        /** Byte ranges received since an exchange has waited for the kernels before it. */
        let receivedRanges: (readonly [number, number])[] = [];
        const memory = {
          allocate(bytes: number): number {
            allocatedBytes += bytes;
            return 0;
          },
          free() {},
        };
        const devices = {
          begin() {
            receivedRanges = [];
          },
          receive(begin: number, bytes: number) {
            const end = begin + bytes;
            expect(end).toBeLessThanOrEqual(allocatedBytes);
            for (const [rangeBegin, rangeEnd] of receivedRanges)
              expect(isOverlap(begin, end, rangeBegin, rangeEnd)).toBe(false);
            receivedRanges.push([begin, end]);
          },
          ...{ send() {}, exchange() {}, end() {}, fold() {} },
        };
        const side = { rank, size, devices, backend: { memory } } as never;
        const sumOptions = { dtype, order: [...counts.keys()], sum: "f32", factor: 1, pieces } as const;
        reduceParts(side, { x: 2 ** 40, counts, out: 2 ** 41, ...sumOptions });
        expect(allocatedBytes).toBeLessThanOrEqual(2 ** 28 + 2 ** 20);
      }),
      {
        examples: [[{ size: 2, counts: [2 ** 28, 2 ** 28, 0, 0], rank: 0, pieces: undefined, dtype: "f32" }]],
      },
    );
  });

  it("wait at a barrier for all work that was enqueued before on every rank", async () => {
    const job = new Job(backends.slice(0, 3), () => ({}));
    const [rank0, rank1, rank2] = job.groups as [ProcessGroup, ProcessGroup, ProcessGroup];
    const order: number[] = [];
    const barriers = [rank0, rank1, rank2].map(async (group, rank) => {
      if (rank === 1) job.backends[1]?.stream.push({ run: () => void order.push(1) });
      await group.barrier();
      order.push(10 + rank);
    });
    await whileStreamsRun(job.backends, () => 0, Promise.all(barriers));
    expect(order[0]).toBe(1);
    expect(order).toHaveLength(4);
  });
});

function upload(group: ProcessGroup, { dtype, shape, codes }: PlainTensor<WideDType>): Tensor<WideDType> {
  const plainTensor = fromCodes(dtype, shape, [...codes]);
  return empty(group.backend, dtype, shape).write(plainTensor.data) as Tensor<WideDType>;
}
