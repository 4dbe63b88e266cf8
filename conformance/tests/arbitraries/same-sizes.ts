/** Products of the same sizes that differ in all other options. */
import * as fc from "fast-check";
import type { Backend } from "../../../src/backends/backend.js";
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import { batchedGemm } from "../../../src/ops/gemm/batched.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import type { GemmLayout } from "../../../src/ops/gemm/named-operands.js";
import type { GemmPlan } from "../../../src/ops/gemm/plan.js";
import { elementCount, type WideDType } from "../../../src/tensor/shape.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import { words } from "../../arbitraries/random.js";
import { directionsOf } from "../../operations/gemm/case.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { fromCodes, upload } from "../../values/plain.js";
import { gridWideValues, PAIRS, type Pair } from "../harness/gemm/products.js";

/**
 * Rows, columns and depth. The last two have the same hash as the first if a hash multiplies by 31: one number is
 * smaller by one, the next larger by 31.
 */
const SIZES = [
  [128, 128, 128],
  [127, 128, 159],
  [128, 159, 127],
] as const;

/** The kind of an operand: wide values, e4m3 codes without scales, or the quantizer to apply to bf16. */
type Source = Pair[number] | "e4m3";

const fp8 = makeSpec("fp8-current", {});
const block = (tile: "1x128" | "128x128") => makeSpec("fp8-block", { tile, pow2Scales: true });

/** The pairs that tensor cores multiply, and variants with no scales or with power-of-two scales. */
const OPERANDS: Readonly<Record<string, readonly [b: Source, a: Source]>> = {
  ...PAIRS,
  "codes by codes": ["e4m3", "e4m3"],
  "codes by e4m3": ["e4m3", fp8],
  "e4m3 by codes": [fp8, "e4m3"],
  "1x128 by 128x128 of powers": [block("1x128"), block("128x128")],
  "1x128 of powers by 128x128": [block("1x128"), makeSpec("fp8-block", { tile: "128x128" })],
};

/** The names of the pairs. */
export const OPERAND_PAIRS = Object.keys(OPERANDS);

/** The options in which two products of the same size may differ. */
export interface Variant {
  readonly pair: string;
  readonly layout: GemmLayout;
  readonly outDtype: WideDType;
  readonly useSplitAccumulator: boolean;
  readonly bias: WideDType | undefined;
  readonly cType: WideDType | undefined;
  readonly accumulate: boolean;
  readonly gelu: boolean;
  readonly alpha: number;
  readonly splitK: 1 | 2 | "auto";
  readonly datapath: DatapathFamily;
  /** An index into SIZES. */
  readonly size: number;
  /** Whether the call is a batch of two products. */
  readonly batched: boolean;
  readonly seed: number;
}

/** The pairs that support every layout. Block scales along rows only are limited to TN. */
const ANY_LAYOUT = OPERAND_PAIRS.filter((name) => !name.includes("128"));
/** The pairs that support all sizes, batches and split-K. */
const SPLITS = ["bf16", "f16"];
/** The variant with options removed that its operands do not support. */
export function withSupportedOptions(variant: Variant): Variant {
  const { pair, layout, splitK } = variant;
  const wide = SPLITS.includes(pair);
  return {
    ...variant,
    size: wide ? variant.size : 0,
    batched: wide && variant.batched,
    layout: ANY_LAYOUT.includes(pair) ? layout : "TN",
    splitK: splitK === 2 && !(wide && variant.size === 0) ? "auto" : splitK,
  };
}

const WIDE_OR_NONE = [undefined, "bf16", "f32", "f16"] as const;

/** The values of each option, the most frequent first. */
export const CHOICES: { readonly [K in keyof Variant]: readonly Variant[K][] } = {
  pair: ["bf16", "f16", "e4m3 by e4m3", ...OPERAND_PAIRS],
  layout: ["TN", "NN", "NT"],
  outDtype: ["bf16", "f32", "f16"],
  useSplitAccumulator: [false, true],
  bias: WIDE_OR_NONE,
  cType: WIDE_OR_NONE,
  accumulate: [false, true],
  gelu: [false, true],
  alpha: [1, 0.5, -2, 0],
  splitK: [1, 2, "auto"],
  datapath: ["hopper", "hopper", "fp32"],
  size: [0, 1, 2],
  batched: [false, true],
  seed: [1, 2, 3, 4],
};

/** The first value of each option. */
export const SIMPLEST: Variant = {
  pair: "bf16",
  layout: "TN",
  outDtype: "bf16",
  useSplitAccumulator: false,
  bias: undefined,
  cType: undefined,
  accumulate: false,
  gelu: false,
  alpha: 1,
  splitK: 1,
  datapath: "hopper",
  size: 0,
  batched: false,
  seed: 1,
};

/** Any supported variant. */
export const variant: fc.Arbitrary<Variant> = fc
  .record({
    pair: fc.constantFrom(...CHOICES.pair),
    layout: fc.constantFrom(...CHOICES.layout),
    outDtype: fc.constantFrom(...CHOICES.outDtype),
    useSplitAccumulator: fc.constantFrom(...CHOICES.useSplitAccumulator),
    bias: fc.constantFrom(...CHOICES.bias),
    cType: fc.constantFrom(...CHOICES.cType),
    accumulate: fc.constantFrom(...CHOICES.accumulate),
    gelu: fc.constantFrom(...CHOICES.gelu),
    alpha: fc.constantFrom(...CHOICES.alpha),
    splitK: fc.constantFrom(...CHOICES.splitK),
    datapath: fc.constantFrom(...CHOICES.datapath),
    size: fc.constantFrom(...CHOICES.size),
    batched: fc.constantFrom(...CHOICES.batched),
    seed: fc.constantFrom(...CHOICES.seed),
  })
  .map(withSupportedOptions);

function operand(backend: Backend, source: Source, shape: readonly number[], seed: number) {
  if (source === "e4m3") {
    const codes = words(seed, elementCount(shape)).map((bits) => (bits & 0x87) | (((bits >>> 8) % 12) << 3));
    return upload(backend, fromCodes("e4m3", shape, codes));
  }
  const x = upload(backend, gridWideValues(typeof source === "string" ? source : "bf16", shape, seed));
  if (typeof source === "string") return x;
  return new SpecQuantizer(source, { rowwise: true, columnwise: true, scaleLayout: "logical" }).quantize(x);
}

/** A batch of two products with operands of the pair's types. */
function multiplyBatch(backend: Backend, input: Variant, plan: GemmPlan | undefined) {
  const { pair, layout, outDtype, alpha, datapath, seed, size } = input;
  const [rows, columns, depth] = SIZES[size] as (typeof SIZES)[number];
  const type = pair as WideDType;
  const shape = (lines: number, isAlong: boolean) => [2, ...(isAlong ? [lines, depth] : [depth, lines])];
  const { a, b } = directionsOf(layout);
  return batchedGemm({
    a: upload(backend, gridWideValues(type, shape(columns, a === "rowwise"), seed)),
    b: upload(backend, gridWideValues(type, shape(rows, b === "rowwise"), seed + 1)),
    layout,
    outDtype,
    alpha,
    ...(plan ? { plan } : { datapath }),
  });
}

/** Runs the product on a backend, with the given plan if there is one. */
export function multiply(backend: Backend, input: Variant, plan?: GemmPlan) {
  if (input.batched) return multiplyBatch(backend, input, plan);
  const { pair, layout, outDtype, useSplitAccumulator, bias, cType, accumulate, gelu, ...rest } = input;
  const { alpha, splitK, datapath, seed, size } = rest;
  const [ofB, ofA] = OPERANDS[pair] as readonly [Source, Source];
  const [rows, columns, depth] = SIZES[size] as (typeof SIZES)[number];
  const wide = (type: WideDType, shape: readonly number[], extra: number) =>
    upload(backend, gridWideValues(type, shape, seed + extra));
  const { a, b } = directionsOf(layout);
  return gemm({
    a: operand(backend, ofA, a === "rowwise" ? [columns, depth] : [depth, columns], seed),
    b: operand(backend, ofB, b === "rowwise" ? [rows, depth] : [depth, rows], seed + 1),
    layout,
    useSplitAccumulator,
    alpha,
    gelu,
    ...(plan ? { plan } : { datapath, splitK }),
    ...(accumulate
      ? { out: wide(outDtype, [rows, columns], 4), accumulate }
      : { outDtype, ...(cType && { c: wide(cType, [rows, columns], 3) }) }),
    ...(bias && { bias: wide(bias, [columns], 2) }),
  });
}
