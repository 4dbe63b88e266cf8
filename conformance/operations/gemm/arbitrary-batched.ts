/** Arbitraries of batched products: few and many items, sizes one past a kernel's tile, and attention sizes. */
import * as fc from "fast-check";
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import { WIDE_DTYPES, type WideDType } from "../../../src/tensor/shape.js";
import { among, oneAmong, type Supported } from "../../arbitraries/supported.js";
import { wideType } from "../../arbitraries/wide.js";
import { operandCase } from "./arbitrary-operands.js";
import type { BatchedCase } from "./case.js";

const LINES = [0, 2, 8, 16, 17, 32, 64, 65];
const DEPTHS = [0, 8, 16, 32, 33, 64, 96, 128, 129];
const BATCHES = [0, 17];
const LAYOUTS = ["TN", "NN", "NT"] as const;
const ALPHAS = [1, 1, 0.3, -2, 0, 2 ** -100];

/** The datapaths that multiply the type, by weight. Tensor cores do not take f32. */
function datapathsOf(format: WideDType): readonly DatapathFamily[] {
  const definitions = ["exact", "fp32"] as const;
  return format === "f32" ? definitions : ["hopper", "hopper", "ada", "blackwell", ...definitions];
}

const upTo = (max: number): readonly number[] => Array.from({ length: max }, (_, i) => i + 1);

/** Restricts the drawn products. */
export interface BatchedDraw {
  /** The datapath of a type. Default: any that multiplies it. */
  readonly datapaths?: (format: WideDType) => fc.Arbitrary<DatapathFamily>;
  /** The fields that a subject supports. Most drawn products are supported; the caller filters the rest. */
  readonly supported?: Supported;
}

export function batchedCase({ datapaths, supported = {} }: BatchedDraw = {}): fc.Arbitrary<BatchedCase> {
  const one = <T>(path: string, values: readonly T[], usual?: fc.Arbitrary<T>): fc.Arbitrary<T> =>
    oneAmong(supported, path, values, usual);
  const size = (path: string, max: number, edges: readonly number[], weight = 1): fc.Arbitrary<number> =>
    one(
      `size.${path}`,
      [...upTo(max), ...edges],
      fc.oneof({ weight, arbitrary: fc.integer({ min: 1, max }) }, fc.constantFrom(...edges)),
    );
  const sizes = fc.record({
    batch: size("batch", 5, BATCHES, 9),
    rows: size("rows", 20, LINES),
    columns: size("columns", 20, LINES),
    depth: size("depth", 72, DEPTHS),
  });
  const isServed = (each: WideDType): boolean => among(supported, "datapath", datapathsOf(each)).length > 0;
  const formats = among(supported, "format", WIDE_DTYPES).filter(isServed);
  const format = formats.length > 0 ? fc.constantFrom(...formats) : wideType();
  return fc.tuple(format, sizes).chain(([format, { batch, rows, columns, depth }]) => {
    const source = { kind: "plain", format } as const;
    const item = fc.record({
      a: operandCase(source, columns, depth),
      b: operandCase(source, rows, depth),
    });
    return fc.record({
      format: fc.constant(format),
      size: fc.constant({ batch, rows, columns, depth }),
      items: fc.array(item, { minLength: batch, maxLength: batch }),
      layout: one("layout", LAYOUTS),
      datapath: datapaths?.(format) ?? one("datapath", datapathsOf(format)),
      alpha: one("alpha", ALPHAS),
      outDtype: one("outDtype", [undefined, ...WIDE_DTYPES], fc.option(wideType(), { nil: undefined })),
      intoOut: one("intoOut", [false, true], fc.boolean()),
    });
  });
}
