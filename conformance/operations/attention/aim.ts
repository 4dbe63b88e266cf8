/** The values from which cases of attention are drawn. */
import type * as fc from "fast-check";
import type { AttentionLayout, AttentionPlan } from "../../../src/backends/ops/attention.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import type { PlainTensor } from "../../values/plain.js";

/** The datapaths with a rule for attention. */
export type CaseDatapath = "hopper" | "ada" | "blackwell" | "fp32";
/** The numbers of visible keys before and behind a query's position; -1 for all. */
export type Window = readonly [left: number, right: number];

/** The sizes, layout and type of a case. */
export interface CaseDimensions {
  readonly layout: AttentionLayout;
  readonly batch: number;
  readonly queries: number;
  readonly keys: number;
  readonly heads: readonly [queries: number, keys: number];
  readonly width: number;
  readonly valueWidth: number;
  readonly dtype: WideDType;
}

/** The values from which cases are drawn. */
export interface CaseAim {
  readonly dimensions: fc.Arbitrary<CaseDimensions>;
  readonly datapaths: fc.Arbitrary<CaseDatapath>;
  readonly windows: fc.Arbitrary<Window>;
  readonly plans: (dimensions: CaseDimensions) => fc.Arbitrary<AttentionPlan>;
  /** The elements of q, k, v and of the bias. */
  readonly elements: (shape: Shape, dtype: WideDType) => fc.Arbitrary<PlainTensor<WideDType>>;
  readonly mask: (shape: Shape) => fc.Arbitrary<PlainTensor<"u8">>;
  readonly pageLengths: readonly number[];
  readonly maxPages: number;
}
