/**
 * Arbitraries of whole matrix products: pairs of operands, shapes one past a kernel's tile, and every valid combination of
 * epilogue options, optionally restricted to what a subject supports.
 */
import * as fc from "fast-check";
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import { isWide } from "../../../src/tensor/shape.js";
import type { Supported } from "../../arbitraries/supported.js";
import { productRule } from "../../oracle/gemm/datapath.js";
import { Aim, isSummable, type Pair, partsOf } from "./aim.js";
import { type GemmCase, resultType } from "./case.js";
import { multiplied } from "./operand.js";

/** Restricts the drawn products. */
export interface GemmDraw {
  /** The datapath of a pair. Default: any. */
  readonly datapaths?: (pair: Pair) => fc.Arbitrary<DatapathFamily>;
  /** The fields that a subject supports. Most drawn products are supported; the caller filters the rest. */
  readonly supported?: Supported;
}

/**
 * Products, with every option.
 *
 * @throws `ArgumentError` if no operands are supported.
 */
export function gemmCase({ datapaths, supported = {} }: GemmDraw = {}): fc.Arbitrary<GemmCase> {
  const aim = new Aim(supported);
  return aim.pairs().chain((pair) =>
    fc
      .tuple(datapaths ? datapaths(pair) : aim.datapath(pair), aim.common())
      .chain(([datapath, { splits, outDtype, ...options }]) =>
        aim.epilogue(pair, outDtype ?? undefined).map((parts): GemmCase => {
          const { a, b } = pair;
          const { addend: c, beta, bias, form, auxDtype, pre } = parts;
          const serving = productRule(datapath, multiplied(b), multiplied(a), options.useSplitAccumulator);
          const wide = isWide(resultType({ b, outDtype: parts.outDtype }));
          const accumulate = parts.accumulate && c !== undefined && wide && aim.accumulates(c.dtype);
          const summable = form === "geluInput" || (form === "linear" && isSummable(b.source));
          const depth = a.codes.matrix[1];
          const choices = aim.parts(serving, depth);
          return {
            ...pair,
            ...options,
            datapath,
            splitK: choices[splits % choices.length] ?? partsOf(serving, depth, splits),
            accumulate,
            gelu: form === "gelu",
            biasGradient: parts.biasGradient && !bias && summable,
            ...(c ? { c, beta } : {}),
            ...(bias ? { bias } : {}),
            ...(form === "gelu" ? { auxDtype } : {}),
            ...(form === "geluInput" ? { geluInput: pre } : {}),
            outDtype: accumulate && c ? c.dtype : parts.outDtype,
          };
        }),
      ),
  );
}
