/** Shards that are rounded stochastically: a quantization of any operation, and where its matrix lies in a larger one. */
import * as fc from "fast-check";
import type { MatrixPart } from "../../../src/backends/ops.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { asMatrix, type Shape } from "../../../src/tensor/shape.js";
import { QUANTIZERS, specsOf } from "../../arbitraries/specs.js";
import type { Inputs } from "../../laws/run-options.js";
import { activationQuantizeCaseBy } from "../../operations/quantize/activation-quantize.js";
import { biasGradQuantizeCaseBy } from "../../operations/quantize/bias-grad-quantize.js";
import { normQuantizeCaseBy } from "../../operations/quantize/norm-quantize.js";
import { type Quantization, quantizeCaseBy, type Shapes } from "../../operations/quantize/quantize.js";

/** Elements that share a draw. All positions are multiples of it. */
const DRAWN = 16;

/** Every spec that rounds stochastically. */
const STOCHASTIC = QUANTIZERS.flatMap(specsOf).filter(({ stochastic }) => stochastic);

/** A multiple of 16: mostly few, some so large that the number of a draw has more than 32 bits. */
const distance = fc
  .oneof({ weight: 5, arbitrary: fc.nat(4) }, { weight: 1, arbitrary: fc.nat(2 ** 24 - 1) })
  .map((n) => DRAWN * n);

/** Where a matrix of that size lies in a larger one: in one piece or in several, of which the last may be shorter. */
function partOf([rows, columns]: readonly [rows: number, columns: number]): fc.Arbitrary<MatrixPart> {
  const width = fc.oneof(
    fc.constant(Math.max(columns, DRAWN)),
    fc.constant(Math.max(DRAWN, Math.floor(columns / 2 / DRAWN) * DRAWN)),
    fc.integer({ min: 1, max: Math.max(1, columns / DRAWN) }).map((n) => DRAWN * n),
  );
  return fc
    .record({ width, apart: distance, row: distance, column: distance, below: distance, right: distance })
    .map(({ width: piece, apart, row, column, below, right }) => {
      const pieces = Math.ceil(columns / piece);
      // few pieces may lie far from each other: rows of the larger matrix have fewer than 2^32 elements
      const stride = piece + (pieces > 4 ? apart % (8 * DRAWN) : apart);
      const end = column + pieces * stride + piece;
      return { rows: row + rows + below, columns: end + right, row, column, width: piece, stride };
    });
}

/** The same cases; their matrices, of the size that `sizeOf` says, are parts of larger ones. */
function inParts<C extends Quantization>(
  cases: fc.Arbitrary<C>,
  sizeOf: (input: C) => Shape,
): fc.Arbitrary<C> {
  return cases.chain((input) => partOf(asMatrix(sizeOf(input))).map((part) => ({ ...input, part })));
}

/** Inputs of every operation that quantizes by one of `choices`, of results with one of `shapes`. */
export function shardInputs(shapes: Shapes, choices: readonly QuantizeSpec[] = STOCHASTIC): Inputs {
  const specs = fc.constantFrom(...choices);
  return {
    quantize: inParts(quantizeCaseBy(specs, shapes), ({ x }) => x.shape),
    biasGradQuantize: inParts(biasGradQuantizeCaseBy(specs, shapes), ({ x }) => x.shape),
    normQuantize: inParts(normQuantizeCaseBy(specs, shapes), ({ x }) => x.shape),
    activationQuantize: inParts(activationQuantizeCaseBy(specs, shapes), ({ x, gated, grad }) =>
      gated && !grad ? [...x.shape.slice(0, -1), (x.shape.at(-1) as number) / 2] : x.shape,
    ),
  };
}
