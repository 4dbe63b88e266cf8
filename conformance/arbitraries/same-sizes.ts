/** Products of one size, which differ in everything else that a product can differ in. */
import * as fc from "fast-check";
import type { Backend } from "../../src/backends/backend.js";
import type { DatapathFamily } from "../../src/formats/datapath.js";
import type { GemmLayout, GemmOptions } from "../../src/ops/gemm.js";
import type { WideDType } from "../../src/tensor/shape.js";
import { upload } from "../harness/plain.js";
import { PAIRS, type Pair, wideValuesOf } from "../harness/products.js";
import { SpecQuantizer } from "../harness/quantized.js";

/** Rows, columns and depth. */
export const SIZE = 128;

/** What two products of one size may differ in. */
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
  readonly seed: number;
}

/** The pairs that any layout takes: block scales along rows alone go with TN. */
const ANY_LAYOUT = Object.keys(PAIRS).filter((name) => !name.includes("128"));
/** The pairs whose K has two parts to be cut in. */
const SPLITS = ["bf16", "f16"];
const types = fc.constantFrom<WideDType>("bf16", "f32", "f16");

/** The product, with choices that its operands have. */
export function fitted(drawn: Variant): Variant {
  const { pair, layout, splitK } = drawn;
  return {
    ...drawn,
    layout: ANY_LAYOUT.includes(pair) ? layout : "TN",
    splitK: splitK === 2 && !SPLITS.includes(pair) ? "auto" : splitK,
  };
}

/** A product; half of them of the pairs that tensor cores multiply as they lie. */
export const variant: fc.Arbitrary<Variant> = fc
  .record({
    pair: fc.oneof(
      fc.constantFrom(...Object.keys(PAIRS)),
      fc.constantFrom("bf16", "f16", "e4m3 by e4m3", "e5m2 by e4m3"),
    ),
    layout: fc.constantFrom<GemmLayout>("TN", "NN", "NT"),
    outDtype: types,
    useSplitAccumulator: fc.boolean(),
    bias: fc.option(types, { nil: undefined, freq: 1 }),
    cType: fc.option(types, { nil: undefined, freq: 1 }),
    accumulate: fc.boolean(),
    gelu: fc.boolean(),
    alpha: fc.constantFrom(1, 1, 0.5, -2, 0),
    splitK: fc.constantFrom<1 | 2 | "auto">(1, 1, 2, "auto"),
    datapath: fc.constantFrom<DatapathFamily>("hopper", "hopper", "hopper", "fp32"),
    seed: fc.nat({ max: 1000 }),
  })
  .map(fitted);

function operand(backend: Backend, source: Pair[number], seed: number) {
  const x = upload(backend, wideValuesOf(typeof source === "string" ? source : "bf16", [SIZE, SIZE], seed));
  if (typeof source === "string") return x;
  return new SpecQuantizer(source, { rowwise: true, columnwise: true, scaleLayout: "logical" }).quantize(x);
}

/** The product on a backend. */
export function optionsFor(backend: Backend, input: Variant): GemmOptions {
  const { pair, layout, outDtype, useSplitAccumulator, bias, cType, accumulate, gelu, ...rest } = input;
  const { alpha, splitK, datapath, seed } = rest;
  const [ofB, ofA] = PAIRS[pair] as Pair;
  const wide = (type: WideDType, shape: readonly number[], more: number) =>
    upload(backend, wideValuesOf(type, shape, seed + more));
  return {
    a: operand(backend, ofA, seed),
    b: operand(backend, ofB, seed + 1),
    layout,
    useSplitAccumulator,
    alpha,
    splitK,
    datapath,
    gelu,
    ...(accumulate
      ? { out: wide(outDtype, [SIZE, SIZE], 4), accumulate }
      : { outDtype, ...(cType && { c: wide(cType, [SIZE, SIZE], 3) }) }),
    ...(bias && { bias: wide(bias, [SIZE], 2) }),
  };
}
