/**
 * A corpus of edge cases for encoding and quantization. The arbitraries draw it; the same seed gives the same cases.
 */
import * as fc from "fast-check";
import { BLOCK_FORMATS } from "../../src/formats/block.js";
import { factsOf, SCALAR_FORMAT_NAMES } from "../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../src/formats/scalar.js";
import { integer, needed, oneOf, optionsOf } from "../../src/options.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../../src/tensor/quantized.js";
import { elementCount, type Shape, type WideDType } from "../../src/tensor/shape.js";
import { requireSpec } from "../../src/tensor/spec.js";
import { drawnBlock, matrixShape, wideMatrix } from "../arbitraries/matrices.js";
import { narrowed, patternFor } from "../arbitraries/patterns.js";
import { fromCodes, type PlainTensor } from "../values/plain.js";

/** The number of cases to draw, and the seed. */
export interface CorpusDraw {
  /** The number of cases, at least 0. */
  readonly cases: number;
  /** An integer of 32 bits. */
  readonly seed: number;
}

export const checkDraw = optionsOf<CorpusDraw>(
  {
    cases: needed(integer(0, 2 ** 31 - 1)),
    // fast-check distinguishes seeds of 32 bits.
    seed: needed(integer(-(2 ** 31), 2 ** 31 - 1)),
  },
  "draw",
);

const scalarFormat = oneOf(SCALAR_FORMAT_NAMES);

/** The settings with which a quantized tensor of the corpus is described. */
export interface CorpusRecipe {
  /** The quantizer and its options. */
  readonly spec: QuantizeSpec;
  /** The shape and type before quantization. */
  readonly shape: Shape;
  /** The type before quantization. */
  readonly dtype: WideDType;
  /** The layout of the scales. */
  readonly scales: ScaleLayout;
  /** Which copies exist. */
  readonly usage: readonly Direction[];
}

/** The inputs of one case. The keys are appended to the name of the case. */
export interface CorpusCase {
  /** The tensors by key. */
  readonly tensors: Readonly<Record<string, PlainTensor>>;
  /** The settings of each quantized tensor, by key. Absent if none is quantized. */
  readonly recipes?: Readonly<Record<string, CorpusRecipe>>;
}

/** The approximate maximum number of elements of a tensor. */
const MAX_ELEMENTS = 2048;

const anyWide: fc.Arbitrary<WideDType> = fc.constantFrom("f32", "f32", "bf16", "f16");

/**
 * Tensors to encode to `format`: ties and their neighbours, subnormal and overflow limits, specials, shapes down to
 * empty. Throws `ArgumentError` for an unknown format or an invalid draw.
 */
export function encodeCases(format: ScalarFormat, draw: CorpusDraw): readonly PlainTensor<WideDType>[] {
  scalarFormat("encodeCases", "format", format);
  const ownDraw = checkDraw("encodeCases", draw);
  const { cases, seed } = ownDraw;
  const pattern = patternFor(SCALAR_FORMATS[format]);
  const multiple = factsOf(format).storageBits === 4 ? 2 : 1;
  const drawn = fc.tuple(anyWide, matrixShape(multiple, 16, MAX_ELEMENTS)).chain(([dtype, shape]) => {
    const length = elementCount(shape);
    const patterns = fc.array(pattern, { minLength: length, maxLength: length });
    return patterns.map((bits) =>
      fromCodes(
        dtype,
        shape,
        bits.map((each) => narrowed(each, dtype)),
      ),
    );
  });
  return fc.sample(drawn, { numRuns: cases, seed });
}

/**
 * Matrices to quantize by `spec`: amaxes at which the scale changes, blocks of zeros, specials, and shapes one past a tile if the
 * quantizer accepts them. Throws `ArgumentError` for an invalid spec or draw.
 */
export function quantizeCases(spec: QuantizeSpec, draw: CorpusDraw): readonly PlainTensor<WideDType>[] {
  requireSpec(spec);
  const ownDraw = checkDraw("quantizeCases", draw);
  const { cases, seed } = ownDraw;
  const block = drawnBlock(spec.tile);
  const { multiple } = BLOCK_FORMATS[spec.quantizer];
  const { max } = factsOf(spec.format);
  const type = spec.rht ? fc.constant<WideDType>("bf16") : anyWide;
  const drawn = fc
    .tuple(type, matrixShape(multiple, block, MAX_ELEMENTS))
    .chain(([dtype, shape]) => wideMatrix({ dtype, shape, block, max }));
  return fc.sample(drawn, { numRuns: cases, seed });
}
