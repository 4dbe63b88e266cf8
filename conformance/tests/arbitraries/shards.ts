/** Shards that are rounded stochastically: a quantization of any operation, and the position of its matrix in a larger one. */
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
  .map((count) => DRAWN * count);

/** The same for rows, which are divided between blocks. */
const blocks = distance.map((size) => 2 * size);

/**
 * The position of a matrix of that size in a larger one: in one piece or in several, of which the last may be shorter. A number
 * of rows that is not a multiple of 16 is not divided.
 */
function partOf(size: readonly [rows: number, columns: number]): fc.Arbitrary<MatrixPart> {
  if (size[0] % DRAWN !== 0) return pieces(size).map((part) => ({ ...part, rows: size[0], row: 0 }));
  return fc.oneof({ weight: 7, arbitrary: pieces(size) }, { weight: 1, arbitrary: atLastDraw(size) });
}

/**
 * A position at which the first draw of the first row, or column, is the last draw whose number has 32 bits: 16 (2^28 - 2) + 31.
 */
function atLastDraw([rows, columns]: readonly [rows: number, columns: number]): fc.Arbitrary<MatrixPart> {
  const [pitch, firstOffset, line] = [2 ** 32 - 2 * DRAWN, 31 * DRAWN, 16];
  const wholeWidth = { width: Math.max(columns, DRAWN), stride: Math.max(columns, DRAWN) };
  return fc.constantFrom(
    { ...wholeWidth, rows: 2 * line + rows, columns: pitch, row: line, column: firstOffset },
    { ...wholeWidth, rows: pitch, columns: line + columns, row: firstOffset, column: line },
  );
}

function pieces([rows, columns]: readonly [rows: number, columns: number]): fc.Arbitrary<MatrixPart> {
  const width = fc.oneof(
    fc.constant(Math.max(columns, DRAWN)),
    fc.constant(Math.max(DRAWN, Math.floor(columns / 2 / DRAWN) * DRAWN)),
    fc.integer({ min: 1, max: Math.max(1, columns / DRAWN) }).map((count) => DRAWN * count),
  );
  return fc
    .record({ width, apart: distance, row: blocks, column: distance, below: blocks, right: distance })
    .map(({ width: piece, apart: areSeparate, row, column, below, right: columnsRight }) => {
      const count = Math.ceil(columns / piece);
      // only few pieces may be far apart: rows of the larger matrix have fewer than 2^32 elements
      const stride = piece + (count > 4 ? areSeparate % (8 * DRAWN) : areSeparate);
      const end = column + count * stride + piece;
      return { rows: row + rows + below, columns: end + columnsRight, row, column, width: piece, stride };
    });
}

/** The same cases, with matrices that are parts of larger ones. `sizeOf` returns the size of a matrix. */
function inParts<C extends Quantization>(
  cases: fc.Arbitrary<C>,
  sizeOf: (input: C) => Shape,
): fc.Arbitrary<C> {
  return cases.chain((input) => partOf(asMatrix(sizeOf(input))).map((part) => ({ ...input, part })));
}

/** Inputs of every operation that quantizes by one of `choices` and has results with one of `shapes`. */
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
