/**
 * Products whose results are recorded as hashes: one for each pair of operand kinds, under the plan that the GPU chose when they
 * were recorded, and batches of products.
 */
import type { Backend } from "../../../../src/backends/backend.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import type { GemmOptions } from "../../../../src/ops/gemm/options.js";
import type { GemmPlan } from "../../../../src/ops/gemm/plan.js";
import { download, upload } from "../../../values/plain.js";
import { drawOperand, gridWideValues, PAIRS, sizeMultiple } from "../gemm/products.js";
import { type FrozenCase, frozenCase, type Hashes, hashAnswer } from "./case.js";

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
    const multiple = sizeMultiple(sources);
    const [m, n, k] = size.map((length) => Math.max(multiple, length - (length % multiple))) as [
      number,
      number,
      number,
    ];
    const isDeep = k > 4096;
    return {
      name: `${pair} ${m}x${n}x${k}${isDeep ? " split as the GPU chose" : ""}`,
      pair,
      size: [m, n, k] as const,
      seed: 1000 + 10 * p + i,
      bias: i === 1,
      options: {
        alpha: i === 2 ? 0.3 : 1,
        useSplitAccumulator: i % 2 === 1,
        splitK: isDeep ? ("auto" as const) : 1,
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
  const [bSource, aSource] = PAIRS[pair] as (typeof PAIRS)[string];
  const { splitK, useSplitAccumulator, ...scaleOptions } = options;
  const result = gemm({
    ...scaleOptions,
    ...(plan ? { plan } : { splitK, useSplitAccumulator, datapath: backend.datapath }),
    b: drawOperand(backend, bSource, [m, k], seed),
    a: drawOperand(backend, aSource, [n, k], seed + 1),
    ...(options.beta === undefined ? {} : { c: upload(backend, gridWideValues("bf16", [m, n], seed + 2)) }),
    ...(bias ? { bias: upload(backend, gridWideValues("bf16", [n], seed + 3)) } : {}),
  });
  return { hashes: hashAnswer({ out: download(result.out) }), plan: result.plan };
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
      const operand = (operandRows: number, operandSeed: number) => ({
        source: { kind: "plain", format } as const,
        codes: gridWideValues(format, [operandRows, depth], operandSeed),
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
