/**
 * Codes of 4 bits, two of which share a byte: rows that fill whole bytes are exchanged as in any dtype, other rows are refused
 * before anything is sent, and the group remains usable.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import { ShapeError } from "../../../../src/errors.js";
import { empty } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { DTYPES, type DType, storageBits } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { draws } from "../../harness/draws.js";
import { useBackends } from "../../harness/ranks/backends.js";

const MOST = 4;
const backends = useBackends(MOST);
const PACKED = DTYPES.filter((dtype) => storageBits(dtype) < 8);
const sum = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);

/** Codes whose bytes are all `rank`. */
function codes({ backend, rank }: ProcessGroup, dtype: DType, count: number): Tensor {
  return empty(backend, dtype, [count]).write(new Uint8Array((count * storageBits(dtype)) / 8).fill(rank));
}

/** Expects that every rank refuses its call, and that the group then gathers as before. */
async function expectRefused(
  groups: readonly ProcessGroup[],
  dtype: DType,
  call: (group: ProcessGroup) => Tensor,
): Promise<void> {
  using _ = new Scope();
  for (const group of groups) expect(() => call(group)).toThrow(ShapeError);
  const gathers = groups.map((group) => group.allGather(codes(group, dtype, 2)).data());
  for (const data of await Promise.all(gathers)) expect([...data]).toEqual(groups.map(({ rank }) => rank));
}

const cases = fc.integer({ min: 1, max: MOST }).chain((size) =>
  fc.record({
    dtype: fc.constantFrom(...PACKED),
    /** Numbers of codes that ranks send to each other. The test uses twice these numbers, or twice plus one. */
    halves: fc.array(fc.array(fc.nat(3), { minLength: size, maxLength: size }), {
      minLength: size,
      maxLength: size,
    }),
  }),
);

describe("codes of which two share a byte", () => {
  it("are exchanged by allToAll if those for each rank fill whole bytes, else refused", async () => {
    await fc.assert(
      fc.asyncProperty(cases, fc.boolean(), async ({ dtype, halves }, isOddLength) => {
        const size = halves.length;
        const groups = loopbackOver(backends.slice(0, size), 5000);
        // for an even number of ranks, odd numbers add up to tensors that fill whole bytes
        const isOdd = isOddLength && size % 2 === 0;
        const table = halves.map((row) => row.map((pairIndex) => 2 * pairIndex + (isOdd ? 1 : 0)));
        const exchange = (group: ProcessGroup): Tensor => {
          const sentCounts = table[group.rank] as readonly number[];
          const receivedCounts = table.map((row) => row[group.rank] as number);
          return group.allToAll(codes(group, dtype, sum(sentCounts)), {
            sent: sentCounts,
            received: receivedCounts,
          });
        };
        if (isOdd) return expectRefused(groups, dtype, exchange);
        using _ = new Scope();
        const results = await Promise.all(groups.map((group) => exchange(group).data()));
        const expected = groups.map(({ rank }) => halves.flatMap((row, from) => Array(row[rank]).fill(from)));
        expect(results.map((data) => [...data])).toEqual(expected);
      }),
      { numRuns: draws(60) },
    );
  });

  it.each(PACKED)(
    "are refused by allToAll if an even division gives a rank half a byte: %s",
    async (dtype) => {
      const groups = loopbackOver(backends.slice(0, 2), 5000);
      await expectRefused(groups, dtype, (group) => group.allToAll(codes(group, dtype, 2)));
    },
  );

  it.each(PACKED)("are refused by allGather if rows give another rank half a byte: %s", async (dtype) => {
    const groups = loopbackOver(backends.slice(0, 3), 5000);
    await expectRefused(groups, dtype, (group) =>
      group.allGather(codes(group, dtype, 2), {
        rows: [0, 1, 2].map((rank) => (rank === group.rank ? 2 : 1)),
      }),
    );
  });
});
