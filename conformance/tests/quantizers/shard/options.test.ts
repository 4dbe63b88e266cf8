/** Invalid shards, and shards of quantizers that do not support them, are refused with the quantizer's name. */
import { expect, it } from "vitest";
import { ArgumentError } from "../../../../src/errors.js";
import { Float8RowQuantizer } from "../../../../src/quantizers/float8-row.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { Quantizer, type QuantizerOptions } from "../../../../src/quantizers/quantizer.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { type Refusal, refusals } from "../../harness/refusals.js";

/** A third-party quantizer that checks nothing itself. */
class Theirs extends Quantizer {
  constructor(options: QuantizerOptions) {
    super(makeSpec("mxfp8", {}), options);
  }
}

const GROUP = { rank: 1, size: 2, reduceMax: () => undefined };
const NO_GROUPS: Readonly<Record<string, unknown>> = {
  "that is undefined": undefined,
  "that is null": null,
  "that is a number": 2,
  "whose rank is below 0": { ...GROUP, rank: -1 },
  "whose rank is its size": { ...GROUP, rank: 2 },
  "whose rank is no integer": { ...GROUP, rank: 0.5 },
  "whose size is no integer": { ...GROUP, size: 2.5 },
  "whose rank is a text": { ...GROUP, rank: "1" },
  "without a size": { ...GROUP, size: undefined },
  "that reduces nothing": { ...GROUP, reduceMax: undefined },
};
const SHARDS: Readonly<Record<string, unknown>> = {
  "that is a number": 1,
  "of a dimension that there is not": { group: GROUP, dimension: "heads" },
  "of no dimension": { group: GROUP },
  "in no pieces": { group: GROUP, dimension: "columns", pieces: 0 },
  "in half a piece": { group: GROUP, dimension: "columns", pieces: 1.5 },
};
refusals("a shard is refused", [
  ...Object.entries(NO_GROUPS).map(
    ([description, group]): Refusal => [
      `of a group ${description}`,
      () => new MXFP8Quantizer({ shard: { group, dimension: "rows" } as never }),
      ArgumentError,
      ["MXFP8Quantizer", "group"],
    ],
  ),
  ...Object.entries(SHARDS).map(
    ([description, shard]): Refusal => [
      description,
      () => new MXFP8Quantizer({ shard } as never),
      ArgumentError,
      ["MXFP8Quantizer", "shard"],
    ],
  ),
  [
    "by a class that checks nothing",
    () => new Theirs({ shard: { group: {}, dimension: "rows" } as never }),
    ArgumentError,
    ["Theirs", "group"],
  ],
  [
    "with scales of rows",
    () => new Float8RowQuantizer({ shard: { group: GROUP, dimension: "rows" } }),
    ArgumentError,
    ["fp8-row", "shard"],
  ],
]);

it("a group of one has whole tensors, of rows too", () => {
  const group = { rank: 0, size: 1, reduceMax: () => undefined };
  expect(new Float8RowQuantizer({ shard: { group, dimension: "rows" } }).shard).toBe(undefined);
});
