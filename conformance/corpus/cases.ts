/** A corpus of edge cases to encode and to quantize: drawn from the arbitraries, the same for the same seed. */
import * as fc from "fast-check";
import { BLOCK_FORMATS, tileSize } from "../../src/formats/block.js";
import { factsOf, SCALAR_FORMAT_NAMES } from "../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../src/formats/scalar.js";
import { integer, needed, oneOf, optionsOf } from "../../src/options.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../../src/tensor/quantized.js";
import { elementCount, type Shape, type WideDType } from "../../src/tensor/shape.js";
import { requireSpec } from "../../src/tensor/spec.js";
import { matrixShape, wideMatrix } from "../arbitraries/matrices.js";
import { narrowed, patternFor } from "../arbitraries/patterns.js";
import { fromCodes, type PlainTensor } from "../values/plain.js";

/** How many cases to draw, and by which seed. */
export interface CorpusDraw {
  /** How many, from 0. */
  readonly cases: number;
  /** An integer of 32 bits. */
  readonly seed: number;
}

export const checkDraw = optionsOf<CorpusDraw>({
  cases: needed(integer(0, 2 ** 31 - 1)),
  // seeds that fast-check keeps apart
  seed: needed(integer(-(2 ** 31), 2 ** 31 - 1)),
});

const scalarFormat = oneOf(SCALAR_FORMAT_NAMES);

/** What the codes and scales of a quantized tensor mean. */
export interface CorpusRecipe {
  /** How it was quantized. */
  readonly spec: QuantizeSpec;
  /** The shape and type before quantization. */
  readonly shape: Shape;
  /** The type before quantization. */
  readonly dtype: WideDType;
  /** How the scales lie. */
  readonly scales: ScaleLayout;
  /** Which copies there are. */
  readonly usage: readonly Direction[];
}

/** The inputs of one case: tensors, and the recipes of quantized ones, by what follows the case's name. */
export interface CorpusCase {
  /** The tensors, by what follows the case's name. */
  readonly tensors: Readonly<Record<string, PlainTensor>>;
  /** How the quantized ones were made. Absent: none is. */
  readonly recipes?: Readonly<Record<string, CorpusRecipe>>;
}

/** Elements of a tensor, about. */
const MAX_ELEMENTS = 2048;

const anyWide: fc.Arbitrary<WideDType> = fc.constantFrom("f32", "f32", "bf16", "f16");

/**
 * Tensors to encode to `format`: ties and their neighbours, subnormal and overflow edges, specials, shapes down to none. Throws
 * `ArgumentError` for a format or a draw that is none.
 */
export function encodeCases(format: ScalarFormat, draw: CorpusDraw): readonly PlainTensor<WideDType>[] {
  scalarFormat("encodeCases", "format", format);
  checkDraw("encodeCases", draw);
  const { cases, seed } = draw;
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
 * Matrices to quantize by `spec`: scale boundaries, dead blocks, specials, shapes one past a tile where it takes them. Throws
 * `ArgumentError` for no spec and for a draw that is none.
 */
export function quantizeCases(spec: QuantizeSpec, draw: CorpusDraw): readonly PlainTensor<WideDType>[] {
  requireSpec(spec);
  checkDraw("quantizeCases", draw);
  const { cases, seed } = draw;
  const block = tileSize(spec.tile)[1];
  const { multiple } = BLOCK_FORMATS[spec.quantizer];
  const { max } = factsOf(spec.format);
  const type = spec.rht ? fc.constant<WideDType>("bf16") : anyWide;
  const drawn = fc
    .tuple(type, matrixShape(multiple, block, MAX_ELEMENTS))
    .chain(([dtype, shape]) => wideMatrix({ dtype, shape, block, max }));
  return fc.sample(drawn, { numRuns: cases, seed });
}
