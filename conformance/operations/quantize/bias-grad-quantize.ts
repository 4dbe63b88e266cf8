/** Fused quantization and column sums of a gradient. */
import * as fc from "fast-check";
import type { BlockFormatName } from "../../../src/formats/block.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import { anyRows } from "../../arbitraries/matrices.js";
import { quantizeSpec } from "../../arbitraries/specs.js";
import { wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/quantize/quantize.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import type { Operation } from "../operation.js";
import { columnSums } from "../rows/norm.js";
import { askOracle, type QuantizeCase, quantizeCaseBy, runQuantizer, type Shapes } from "./quantize.js";

/** A call of `biasGradQuantize`: a gradient, its quantization, and the type of the bias gradient. */
export interface BiasGradQuantizeCase extends Omit<QuantizeCase, "noop"> {
  readonly biasType: WideDType;
}

/**
 * Draws calls of the quantizers `names`, with shapes from `shapes`. The gradients come from `gradients`, or by default
 * from `wideMatrix`, which plants values that are difficult for block scaling.
 */
export function biasGradQuantizeCase(
  names?: readonly BlockFormatName[],
  shapes: Shapes = anyRows,
  gradients?: (shape: Shape, dtype: WideDType) => fc.Arbitrary<PlainTensor<WideDType>>,
): fc.Arbitrary<BiasGradQuantizeCase> {
  return biasGradQuantizeCaseBy(quantizeSpec(names), shapes, gradients);
}

/** As `biasGradQuantizeCase`, with specs that the caller draws. */
export function biasGradQuantizeCaseBy(
  specs: fc.Arbitrary<QuantizeSpec>,
  shapes: Shapes = anyRows,
  gradients?: (shape: Shape, dtype: WideDType) => fc.Arbitrary<PlainTensor<WideDType>>,
): fc.Arbitrary<BiasGradQuantizeCase> {
  return fc.tuple(quantizeCaseBy(specs, shapes), wideType()).chain(([{ noop: _, x, ...how }, biasType]) => {
    const drawn = gradients?.(x.shape, x.dtype) ?? fc.constant(x);
    return drawn.map((grad) => ({ ...how, x: grad, biasType }));
  });
}

export const biasGradQuantizeOperation: Operation<BiasGradQuantizeCase> = {
  arbitrary: biasGradQuantizeCase(),
  run(backend, { x, biasType, ...how }) {
    let sums: PlainTensor | undefined;
    const answer = runQuantizer(backend, how, (quantizer) => {
      const { out, biasGrad } = quantizer.biasGradQuantize(upload(backend, x), biasType);
      sums = download(biasGrad);
      return out;
    });
    return { ...answer, biasGrad: sums as PlainTensor };
  },
  oracle({ x, biasType, ...how }) {
    const source = { data: wideValues(x), shape: x.matrix, dtype: x.dtype };
    const columns = x.matrix[1];
    return {
      ...askOracle(how, x.matrix, (spec) => oracle.quantize(source, spec)),
      biasGrad: rounded(biasType, [columns], columnSums(rowsOf(x), columns)),
    };
  },
};
