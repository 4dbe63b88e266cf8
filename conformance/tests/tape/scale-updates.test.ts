/**
 * The updates at the end of a region or a backward pass: each scale is updated once, after a reduction over its own
 * group.
 */
import fc from "fast-check";
import { expect, it } from "vitest";
import type { AmaxReductionGroup } from "../../../src/quantizers/shard.js";
import { type DelayedScales, ScaleUpdates } from "../../../src/tape/scale-updates.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { untyped } from "../harness/refusals.js";

/** A state that has recorded amaxes or does not share them, and the group that reduces it, if any. */
interface Drawn {
  readonly records: boolean;
  readonly group: number;
}

/** The sizes of the drawn groups. A group of one needs no reduction. */
const SIZES = [1, 2, 3];

/** A state is used in a region with a group and then in one without, and another state in regions with two groups. */
const TWO_GROUPS: [Drawn[], { which: number; group: number }[]] = [
  [
    { records: true, group: 1 },
    { records: true, group: 2 },
  ],
  [
    { which: 0, group: -1 },
    { which: 1, group: 1 },
  ],
];

it("reduces the amaxes of each group of several in one call, then updates everything once, in the order of its first use", () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ records: fc.boolean(), group: fc.integer({ min: -1, max: 2 }) }), {
        maxLength: 6,
      }),
      fc.array(fc.record({ which: fc.nat(5), group: fc.integer({ min: -1, max: 2 }) }), { maxLength: 6 }),
      (drawnUpdates, again) => {
        const log: unknown[] = [];
        const groups = SIZES.map(
          (size, index): AmaxReductionGroup => ({
            size,
            reduceMax: (tensors) => void log.push({ group: index, tensors: [...tensors] }),
          }),
        );
        const rows = drawnUpdates.map((_, i) => untyped({ row: i }) as Tensor<"f32">);
        const scales = drawnUpdates.map(
          ({ records }, i): DelayedScales => ({
            recorded: () => (records ? rows[i] : undefined),
            update: () => void log.push(i),
          }),
        );
        const updates = new ScaleUpdates();
        for (const [i, { group }] of drawnUpdates.entries())
          updates.add(scales[i] as DelayedScales, groups[group]);
        // a second use changes neither the order nor the group
        for (const { which, group } of again) if (scales[which]) updates.add(scales[which], groups[group]);
        updates.run();
        const order = [...new Set(drawnUpdates.map(({ group }) => group))];
        const reducedIndices = order.flatMap((group) => {
          const tensors = drawnUpdates.flatMap((drawnUpdate, i) =>
            drawnUpdate.group === group && drawnUpdate.records ? [rows[i]] : [],
          );
          return (SIZES[group] ?? 0) > 1 && tensors.length > 0 ? [{ group, tensors }] : [];
        });
        expect(log).toEqual([...reducedIndices, ...drawnUpdates.map((_, i) => i)]);
        updates.run();
        expect(log.length).toBe(reducedIndices.length + drawnUpdates.length);
      },
    ),
    { numRuns: draws(300, 100), examples: [TWO_GROUPS] },
  );
});
