/** The table of large shapes of attention that are tested on a GPU. */
import type { AttentionPlan } from "../../../../../src/backends/ops/attention.js";
import { HEAD_WIDTHS, type HeadWidths } from "../../../arbitraries/attention-heads.js";

export interface LargeShape {
  readonly layout: "bshd" | "sbhd";
  readonly dtype: "bf16" | "f16";
  readonly batch: number;
  readonly queries: number;
  readonly keys: number;
  readonly heads: readonly [queries: number, keys: number];
  readonly widths: HeadWidths;
  /** Whether to test the gradient. It needs as many queries as keys where a position matters. */
  readonly backward: boolean;
  readonly causal: boolean;
  readonly align: "start" | "end";
  readonly window: readonly [left: number, right: number];
  readonly plan?: AttentionPlan;
  /** The keys of a page. The lengths of sequences of keys then differ. */
  readonly pageLength?: number;
  readonly softcap?: number;
  readonly mask?: boolean;
  readonly bias?: boolean;
  readonly alibi?: boolean;
  readonly sinks?: boolean;
  readonly dropout?: boolean;
}

const { "64": W64, "96": W96, "128": W128, "192, values of 128": W192, "256": W256 } = HEAD_WIDTHS;

const SELF_ATTENTION: LargeShape = {
  layout: "bshd",
  dtype: "bf16",
  batch: 1,
  queries: 2048,
  keys: 2048,
  heads: [8, 2],
  widths: W128,
  backward: true,
  causal: false,
  align: "start",
  window: [-1, -1],
};

const LONG_SELF_ATTENTION: LargeShape = { ...SELF_ATTENTION, queries: 8192, keys: 8192 };

const DECODE: LargeShape = {
  ...SELF_ATTENTION,
  queries: 1,
  keys: 131_072,
  backward: false,
  causal: true,
  align: "end",
};

const OPTION_SETS: readonly Partial<LargeShape>[] = [
  { window: [200, 60] },
  { causal: true, window: [100, -1] },
  { softcap: 30 },
  { causal: true, alibi: true },
  { causal: true, sinks: true },
  { causal: true, dropout: true },
  { mask: true },
  { bias: true },
  { causal: true, plan: { blockKeys: 128, splitKeys: 512 } },
  { causal: true, layout: "sbhd", batch: 2 },
];

const BOOLEANS = [true, false] as const;

export const LARGE_SHAPES: readonly LargeShape[] = [
  ...[W64, W96, W128, W192, W256].flatMap((widths) =>
    (["bf16", "f16"] as const).flatMap((dtype) =>
      BOOLEANS.map((causal) => ({ ...SELF_ATTENTION, widths, dtype, causal })),
    ),
  ),
  ...[W64, W128].flatMap((widths) =>
    OPTION_SETS.map((options) => ({ ...SELF_ATTENTION, widths, ...options })),
  ),
  ...BOOLEANS.map((causal) => ({ ...LONG_SELF_ATTENTION, heads: [32, 8] as const, causal })),
  { ...LONG_SELF_ATTENTION, heads: [32, 8], causal: true, window: [1024, -1] },
  { ...LONG_SELF_ATTENTION, heads: [16, 16], widths: W64, causal: true },
  { ...LONG_SELF_ATTENTION, heads: [16, 2], widths: W96, dtype: "f16" },
  { ...LONG_SELF_ATTENTION, heads: [16, 4], widths: W192, causal: true },
  { ...LONG_SELF_ATTENTION, heads: [8, 4], widths: W256, causal: true },
  ...[1, 16].flatMap((queries) =>
    [undefined, 16, 128, 256].map((pageLength) => ({
      ...DECODE,
      queries,
      ...(pageLength && { pageLength }),
    })),
  ),
  { ...DECODE, heads: [8, 4], widths: W64, pageLength: 128 },
  { ...DECODE, widths: W96, pageLength: 64 },
  { ...DECODE, heads: [4, 1], widths: W192, pageLength: 128 },
  { ...DECODE, heads: [4, 1], widths: W256, pageLength: 64 },
  ...[1, 16].map((queries) => ({ ...DECODE, queries, plan: { blockKeys: 128, splitKeys: 8192 } })),
  ...[1, 4].map((queries) => ({
    ...DECODE,
    ...{ queries, batch: 4, keys: 8192, heads: [32, 8] as const, pageLength: 128 },
  })),
];

/** A name of a shape for messages. */
export function describeShape(shape: LargeShape): string {
  const { batch, queries, keys, heads, widths, layout, dtype, window, plan, pageLength, softcap } = shape;
  const options = ["causal", "mask", "bias", "alibi", "sinks", "dropout"] as const;
  return [
    `${batch} x ${queries} queries, ${keys} keys, ${heads.join("/")} heads of ${widths.join("/")}`,
    dtype,
    ...(layout === "sbhd" ? [layout] : []),
    ...options.filter((name) => shape[name]),
    ...(window.some((limit) => limit >= 0) ? [`window ${window.join(" ")}`] : []),
    ...(plan ? [`splits of ${plan.splitKeys}`] : []),
    ...(pageLength ? [`pages of ${pageLength}`] : []),
    ...(softcap ? [`softcap ${softcap}`] : []),
  ].join(", ");
}
