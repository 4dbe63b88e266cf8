/** Meshes, and plans of sums, as plain data. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { coordinatesOf, MESH_AXES, membersAlong, requireMesh } from "../../../src/collectives/mesh.js";
import {
  completePlan,
  evenSplits,
  orderOf,
  type SumPlanOptions,
  supportsPlan,
} from "../../../src/collectives/plan.js";
import { supportsCollective } from "../../../src/collectives/supports.js";
import { ArgumentError } from "../../../src/errors.js";
import { WIDE_DTYPES } from "../../../src/tensor/shape.js";
import { draws } from "../harness/draws.js";

const size = fc.integer({ min: 1, max: 8 });
const total = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);

/** A complete plan for a group. */
const plansAndSettings = size.chain((ranks) =>
  fc
    .record({
      algorithm: fc.constantFrom("ranked" as const, "ring" as const),
      order: fc.shuffledSubarray([...Array(ranks).keys()], { minLength: ranks }),
      dtype: fc.constantFrom(...WIDE_DTYPES),
      splits: fc.array(fc.nat(9), { minLength: ranks, maxLength: ranks }),
    })
    .map(({ algorithm, order, dtype, splits }) => {
      const settings = { size: ranks, dtype, splits, fixed: true };
      const plan = completePlan(
        "test",
        algorithm === "ring" ? { algorithm, order } : { algorithm },
        settings,
      );
      return { plan, settings };
    }),
);

describe("a plan", () => {
  it("is unchanged after it is saved as JSON, read and passed again", () => {
    fc.assert(
      fc.property(plansAndSettings, ({ plan, settings }) => {
        const parsedPlan = JSON.parse(JSON.stringify(plan)) as SumPlanOptions;
        expect(completePlan("test", parsedPlan, settings)).toEqual(plan);
      }),
    );
  });

  it("contains every rank once, and a ring ends at the owner of the elements", () => {
    fc.assert(
      fc.property(plansAndSettings, ({ plan, settings }) => {
        for (let owner = 0; owner < settings.size; owner++) {
          const order = orderOf(plan, owner);
          expect([...order].sort()).toEqual([...Array(settings.size).keys()]);
          if (plan.algorithm === "ring") expect(order.at(-1)).toBe(owner);
          else expect(order[0]).toBe(0);
        }
      }),
    );
  });

  it.each<[string, SumPlanOptions]>([
    ["a rank twice", { algorithm: "ring", order: [0, 1, 1] }],
    ["a rank that is none", { algorithm: "ring", order: [0, 1, 3] }],
    ["a rank left out", { algorithm: "ring", order: [0, 1] }],
    ["ranked in another order", { algorithm: "ranked", order: [1, 0, 2] }],
    ["ranked in bf16", { algorithm: "ranked", sum: "bf16" }],
    ["a ring in f32 of bf16", { algorithm: "ring", sum: "f32" }],
    ["splits of another sum", { algorithm: "ring", splits: [1, 1, 1] }],
    ["splits of other ranks", { algorithm: "ring", splits: [5, 5] }],
    ["other splits than the results", { algorithm: "ring", splits: [4, 3, 3] }],
  ])("is refused with %s", (_what, plan) => {
    const settings = { size: 3, dtype: "bf16", splits: [3, 3, 4], fixed: true } as const;
    expect(() => completePlan("test", plan, settings)).toThrowError(ArgumentError);
  });

  it("takes splits with a count for each rank that add up to the elements, and no others", () => {
    const counts = fc.array(fc.nat(5), { maxLength: 6 });
    fc.assert(
      fc.property(size, counts, fc.nat(20), (ranks, splits, elements) => {
        const settings = {
          size: ranks,
          dtype: "f32",
          splits: evenSplits(elements, ranks),
          fixed: false,
        } as const;
        const make = () => completePlan("test", { algorithm: "ranked", splits }, settings);
        if (splits.length === ranks && total(splits) === elements) expect(make().splits).toEqual(splits);
        else expect(make).toThrowError(ArgumentError);
      }),
      {
        examples: [
          [2, [3, 4], 7],
          [2, [3, 4, 0], 7],
          [3, [3, 4], 7],
        ],
      },
    );
  });

  it("is unverified for rings whose order was not measured", () => {
    const ringPlan = (order: readonly number[]) =>
      completePlan(
        "test",
        { algorithm: "ring", order },
        { size: order.length, dtype: "f16", splits: order.map(() => 1), fixed: true },
      );
    expect(supportsPlan(ringPlan([0, 1, 2, 3]))).toEqual({ ok: true, agrees: "bits" });
    expect(supportsPlan(ringPlan([1, 0]))).toEqual({ ok: true, agrees: "bits" });
    // a mean is a sum that is divided
    for (const reduction of ["sum", "mean"] as const)
      expect(
        supportsCollective("allReduce", { reduction: { reduction, plan: ringPlan([0, 2, 1, 3]) } } as never),
      ).toEqual(supportsPlan(ringPlan([0, 2, 1, 3])));
    expect(supportsPlan(ringPlan([0, 2, 1, 3]))).toMatchObject({
      ok: true,
      unverified: expect.stringContaining("[0,2,1,3]"),
    });
  });

  it("gives each rank as many elements as the first until none are left", () => {
    fc.assert(
      fc.property(fc.nat(1000), size, (elements, ranks) => {
        const splits = evenSplits(elements, ranks);
        expect([splits.length, total(splits)]).toEqual([ranks, elements]);
        // NCCL divides with padding: each part begins at a multiple of the first part's length
        expect(splits.every((split) => split <= Math.ceil(elements / ranks))).toBe(true);
        expect(splits.findIndex((split) => split < (splits[0] as number))).not.toBe(0);
      }),
    );
    expect(evenSplits(10, 4)).toEqual([3, 3, 3, 1]);
    expect(evenSplits(2, 4)).toEqual([1, 1, 0, 0]);
  });
});

describe("a mesh", () => {
  const axis = fc.integer({ min: 1, max: 4 });
  const mesh = fc.record({ tp: axis, cp: axis, dp: axis, pp: axis });

  it("has one group along each axis for every rank, ordered by coordinate", () => {
    fc.assert(
      fc.property(mesh, (sizes) => {
        const ranks = sizes.tp * sizes.cp * sizes.dp * sizes.pp;
        for (const meshAxis of MESH_AXES) {
          for (let rank = 0; rank < ranks; rank++) {
            const members = membersAlong(sizes, rank, meshAxis);
            expect(members).toHaveLength(sizes[meshAxis]);
            expect(members).toContain(rank);
            expect(members.map((member) => coordinatesOf(sizes, member)[meshAxis])).toEqual([
              ...Array(sizes[meshAxis]).keys(),
            ]);
            expect(membersAlong(sizes, members[0] as number, meshAxis)).toEqual(members);
          }
        }
      }),
      { numRuns: draws(30) },
    );
  });

  it("numbers neighbours along tp first, then cp, dp and pp", () => {
    const sizes = { tp: 2, cp: 2, dp: 2, pp: 2 };
    expect(MESH_AXES.map((meshAxis) => membersAlong(sizes, 0, meshAxis)[1])).toEqual([1, 2, 4, 8]);
    expect(coordinatesOf(sizes, 13)).toEqual({ tp: 1, cp: 0, dp: 1, pp: 1 });
  });

  it("is refused unless its sizes multiply to the size of the group", () => {
    expect(requireMesh("split", { shard: 2, replicate: 3 }, 6)).toBe("shard 2 x replicate 3");
    expect(() => requireMesh("split", { tp: 3, dp: 1 }, 4)).toThrowError(
      /^split: tp 3 x dp 1 is 3 ranks; the group has 4$/,
    );
  });
});
