/** Fused norm and quantization. */
import * as fc from "fast-check";
import { BLOCK_FORMATS, type BlockFormatName } from "../../../src/formats/block.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { anyRows, drawnBlock } from "../../arbitraries/matrices.js";
import { quantizeSpec, sourceType } from "../../arbitraries/specs.js";
import { wideTensor } from "../../arbitraries/wide.js";
import { quantizeNormed } from "../../oracle/quantize/computed.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import type { Operation } from "../operation.js";
import { type NormCase, normAnswer, parameters, smallTerms } from "../rows/norm.js";
import { askOracle, type Quantization, quantizationBy, runQuantizer, type Shapes } from "./quantize.js";

/** A LayerNorm, or an RMSNorm without beta, and the quantization of its result. */
export interface NormQuantizeCase extends Quantization, Omit<NormCase, "outDtype"> {}

/** Draws fused calls of the quantizers `names` whose results have one of `shapes`. */
export function normQuantizeCase(
  names?: readonly BlockFormatName[],
  shapes: Shapes = anyRows,
): fc.Arbitrary<NormQuantizeCase> {
  return normQuantizeCaseBy(quantizeSpec(names), shapes);
}

/** As `normQuantizeCase`, with specs that the caller draws. */
export function normQuantizeCaseBy(
  specs: fc.Arbitrary<QuantizeSpec>,
  shapes: Shapes = anyRows,
): fc.Arbitrary<NormQuantizeCase> {
  return specs.chain((spec) => {
    const { multiple } = BLOCK_FORMATS[spec.quantizer];
    // quantizers read values rounded to the type of x
    return fc
      .tuple(shapes(multiple, drawnBlock(spec.tile)), sourceType(spec))
      .chain(([shape, dtype]) =>
        fc
          .tuple(wideTensor(shape, { dtype }), parameters(shape), smallTerms, quantizationBy(spec))
          .map(([x, norm, eps, how]) => ({ ...how, ...norm, x, eps })),
      );
  });
}

export const normQuantizeOperation: Operation<NormQuantizeCase> = {
  arbitrary: normQuantizeCase(),
  run(backend, { x, gamma, beta, eps, zeroCenteredGamma, ...how }) {
    const parts = { gamma: upload(backend, gamma), beta: beta && upload(backend, beta) };
    const statistics: Record<string, PlainTensor> = {};
    const answer = runQuantizer(backend, how, (quantizer) => {
      const { out, mean, rstd } = quantizer.normQuantize(upload(backend, x), {
        ...parts,
        eps,
        zeroCenteredGamma,
      });
      statistics.rstd = download(rstd);
      if (mean) statistics.mean = download(mean);
      return out;
    });
    return { ...answer, ...statistics };
  },
  oracle({ x, gamma, beta, eps, zeroCenteredGamma, ...how }) {
    const { out, ...statistics } = normAnswer({ x, gamma, beta, eps, zeroCenteredGamma, outDtype: "f32" });
    const source = { data: wideValues(out as PlainTensor<"f32">), shape: x.matrix, dtype: x.dtype };
    return { ...askOracle(how, source.shape, (spec) => quantizeNormed(source, spec)), ...statistics };
  },
};
