/**
 * Products whose results are recorded as hashes: one for each pair of operand kinds, under the plan that the GPU chose when they
 * were recorded, and batches of products.
 */
import type { Backend } from "../../../../src/backends/backend.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import type { GemmOptions } from "../../../../src/ops/gemm/options.js";
import type { GemmPlan } from "../../../../src/ops/gemm/plan.js";
import { download, upload } from "../../../values/plain.js";
import { operandOf, PAIRS, stepOf, wideValuesOf } from "../gemm/products.js";
import { type FrozenCase, frozenCase, type Hashes, hashesOf } from "./case.js";

/** A product of one pair of operands. */
export interface FrozenProduct {
  readonly name: string;
  readonly pair: string;
  readonly size: readonly [m: number, n: number, k: number];
  readonly seed: number;
  readonly options: Pick<GemmOptions, "alpha" | "beta" | "useSplitAccumulator" | "splitK" | "outDtype">;
  readonly bias: boolean;
}

/** Rows, columns and depth: aligned, ragged, and deep enough for split-K. */
const SIZES: readonly (readonly [number, number, number])[] = [
  [64, 128, 256],
  [37, 75, 131],
  [128, 64, 384],
  [16, 48, 8192],
];

export const FROZEN_PRODUCTS: readonly FrozenProduct[] = Object.entries(PAIRS).flatMap(([pair, sources], p) =>
  SIZES.map((size, i) => {
    const step = stepOf(sources);
    const [m, n, k] = size.map((length) => Math.max(step, length - (length % step))) as [
      number,
      number,
      number,
    ];
    const deep = k > 4096;
    return {
      name: `${pair} ${m}x${n}x${k}${deep ? " split as the GPU chose" : ""}`,
      pair,
      size: [m, n, k] as const,
      seed: 1000 + 10 * p + i,
      bias: i === 1,
      options: {
        alpha: i === 2 ? 0.3 : 1,
        useSplitAccumulator: i % 2 === 1,
        splitK: deep ? ("auto" as const) : 1,
        outDtype: i === 0 ? ("bf16" as const) : ("f32" as const),
        ...(i === 2 ? { beta: -0.7 } : {}),
      },
    };
  }),
);

/** Computes the product, under `plan` if there is one. Also returns the plan. */
export function frozenProduct(
  backend: Backend,
  { pair, size, seed, options, bias }: FrozenProduct,
  plan?: GemmPlan,
): { readonly hashes: Hashes; readonly plan: GemmPlan } {
  const [m, n, k] = size;
  const [ofB, ofA] = PAIRS[pair] as (typeof PAIRS)[string];
  const { splitK, useSplitAccumulator, ...rest } = options;
  const result = gemm({
    ...rest,
    ...(plan ? { plan } : { splitK, useSplitAccumulator, datapath: backend.datapath }),
    b: operandOf(backend, ofB, [m, k], seed),
    a: operandOf(backend, ofA, [n, k], seed + 1),
    ...(options.beta === undefined ? {} : { c: upload(backend, wideValuesOf("bf16", [m, n], seed + 2)) }),
    ...(bias ? { bias: upload(backend, wideValuesOf("bf16", [n], seed + 3)) } : {}),
  });
  return { hashes: hashesOf({ out: download(result.out) }), plan: result.plan };
}

/** Batches with the sizes of attention, ragged ones, and one with a large K. */
export const BATCHED_CASES: readonly FrozenCase[] = (["bf16", "f16"] as const).flatMap((format, f) =>
  (["TN", "NN", "NT"] as const).flatMap((layout, l) =>
    [
      { batch: 4, rows: 64, columns: 64, depth: 32 },
      { batch: 3, rows: 37, columns: 75, depth: 131 },
      { batch: 2, rows: 48, columns: 16, depth: 1024 },
    ].map((size, s) => {
      const { batch, rows, columns, depth } = size;
      const seed = 2000 + 100 * f + 30 * l + 10 * s;
      const operand = (lines: number, of: number) => ({
        source: { kind: "plain", format } as const,
        codes: wideValuesOf(format, [lines, depth], of),
        lead: 1,
      });
      return frozenCase("batchedGemm", `${format} ${layout} ${batch}x${rows}x${columns}x${depth}`, {
        format,
        size,
        layout,
        items: Array.from({ length: batch }, (_, i) => ({
          a: operand(columns, seed + 2 * i),
          b: operand(rows, seed + 2 * i + 1),
        })),
        datapath: "hopper",
        alpha: 0.3,
        intoOut: false,
        outDtype: s === 2 ? "f32" : undefined,
      });
    }),
  ),
);
