/** Compares two dialects on a tensor: scales, codes, values, and errors. */
import { ArgumentError } from "../errors.js";
import { BLOCK_FORMAT_NAMES, type BlockFormatName, blockFormat, type Tile } from "../formats/block.js";
import { factsOf, resolveFormat, valueOfCode } from "../formats/derive.js";
import { ELEMENT_SCALINGS } from "../formats/element-scalings.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { SCALE_RULES } from "../formats/scale-rules.js";
import { castTo } from "../ops/cast/cast.js";
import { anything, integer, named, needed, oneOf, optionsOf } from "../options.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import { requireWide } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { dequantizeAs } from "./dequantize.js";
import { codeText, numberText, type PlainQuantized, plainOf, scaleAt, scaleValue } from "./plain.js";
import { formOf, quantizerOf } from "./quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "./table.js";

/** Options of `diffDialects`. `a` and `b` are required. */
export interface DiffDialectsOptions {
  /** The first dialect. */
  readonly a: DialectName;
  /** The second dialect. */
  readonly b: DialectName;
  /** The quantizer. Default: the first quantizer of `a` that `b` has too. */
  readonly quantizer?: BlockFormatName | undefined;
  /** The element format. Default: the first format of `a` that `b` has too. */
  readonly format?: ScalarFormat | undefined;
  /** The tile. Default: the first tile of `a` that `b` has too. */
  readonly tile?: Tile | undefined;
  /** The maximum number of examples of each kind. Default 2. */
  readonly examples?: number | undefined;
}

/** The distance of a dialect's values from the input, over elements where both are finite. */
export interface DialectError {
  /** The largest |value - x|. */
  readonly max: number;
  /**
   * The signal-to-noise ratio in dB: 10 log10 of the sum of squares of x divided by the sum of squared errors. Infinite if there
   * are no errors.
   */
  readonly sqnr: number;
}

/** How a dialect quantizes an element. */
export interface DialectElement {
  /** The stored scale, as a value. */
  readonly scale: number;
  /** The code, without other bits of its byte. */
  readonly code: number;
  /** The dequantized value. */
  readonly value: number;
}

/** An element on which two dialects differ. */
export interface DialectExample {
  /** The first difference: the scale, the code under equal scales, or the value of equal codes and scales. */
  readonly kind: "scale" | "code" | "value";
  /** The row and the column in the tensor viewed as a matrix. */
  readonly at: readonly [row: number, column: number];
  /** The input element. */
  readonly x: number;
  /** The element under the first dialect. */
  readonly a: DialectElement;
  /** The element under the second dialect. */
  readonly b: DialectElement;
  /** The difference, in one sentence. */
  readonly words: string;
}

/** A number of differing elements. */
export interface DialectCount {
  /** The number of elements that differ. */
  readonly different: number;
  /** The total number of elements. */
  readonly of: number;
}

/** How two dialects differ on a tensor. */
export interface DialectDiff {
  /** The settings of the first dialect. */
  readonly a: QuantizeSpec;
  /** The settings of the second dialect. */
  readonly b: QuantizeSpec;
  /** Block scales that differ. */
  readonly scales: DialectCount;
  /** Codes that differ. */
  readonly codes: DialectCount;
  /** Codes that differ although their scales are equal. */
  readonly codesOfEqualScales: number;
  /** Values by each dialect's dequantization. Two NaN are equal; +0 and -0 are not. */
  readonly values: DialectCount;
  /** The errors of each dialect. */
  readonly errors: { readonly a: DialectError; readonly b: DialectError };
  /** The first differences of each kind (scales, codes, values), at most one for each block. */
  readonly examples: readonly DialectExample[];
}

const checkOptions = optionsOf<DiffDialectsOptions>({
  a: needed(oneOf(DIALECT_NAMES)),
  b: needed(oneOf(DIALECT_NAMES)),
  quantizer: oneOf(BLOCK_FORMAT_NAMES),
  format: anything,
  tile: anything,
  examples: integer(0, 1000),
});

/** The requested value, or the first of `a` that `b` has too. Throws `ArgumentError` if there is none. */
function shared<T extends string>(
  label: string,
  options: DiffDialectsOptions,
  [ofA, ofB]: readonly [readonly T[], readonly T[]],
  requested: T | undefined,
): T {
  const both = ofA.filter((each) => ofB.includes(each));
  const match = requested === undefined ? both[0] : both.find((each) => each === requested);
  if (match !== undefined) return match;
  const request = requested === undefined ? "" : ` ${named(requested)}`;
  throw new ArgumentError(
    `diffDialects: ${options.a} and ${options.b} do not both have a ${label}${request}; ${options.a} has ${ofA.join(", ")}, ${options.b} has ${ofB.join(", ")}`,
  );
}

/** The quantizer, format and tile that both dialects have. */
function commonSettings(options: DiffDialectsOptions) {
  const { a, b } = options;
  const namesOf = (name: DialectName): readonly BlockFormatName[] => {
    const { forms }: Dialect = DIALECTS[name];
    return forms.map((form) => form.quantizer);
  };
  const quantizer = shared("quantizer", options, [namesOf(a), namesOf(b)], options.quantizer);
  const row = blockFormat(quantizer);
  const [formA, formB] = [formOf(a, quantizer), formOf(b, quantizer)];
  const format = options.format === undefined ? undefined : resolveFormat(options.format);
  const formats = [formA.formats ?? row.elements, formB.formats ?? row.elements] as const;
  const tiles = [formA.tiles ?? row.tiles, formB.tiles ?? row.tiles] as const;
  return {
    quantizer,
    format: shared("format", options, formats, format),
    tile: shared("tile", options, tiles, options.tile),
  };
}

/** One side of the comparison: the dialect, its spec, codes and scales, and its values in f32. */
interface Side {
  readonly name: DialectName;
  readonly spec: QuantizeSpec;
  readonly plain: PlainQuantized;
  readonly values: Float32Array;
}

function sideOf(
  x: Tensor<WideDType>,
  dialect: DialectName,
  settings: ReturnType<typeof commonSettings>,
): Side {
  using _scope = new Scope();
  const quantized = quantizerOf({ dialect, ...settings }).quantize(x);
  const values = dequantizeAs(quantized, { dialect, dtype: "f32" });
  return {
    name: dialect,
    spec: quantized.spec,
    plain: plainOf(quantized),
    values: values.dataSync() as Float32Array,
  };
}

/**
 * Quantizes `x` (f32, bf16 or f16) under two dialects and reports how the results differ: the number of differing scales, codes
 * and values, the error of each dialect against `x`, and the first differing elements of each kind in words. An empty tensor has
 * no differences.
 *
 * @throws `ArgumentError` for dialects without a common quantizer, format or tile, `DTypeError` for a tensor that is not f32,
 * bf16 or f16, `ShapeError` for a shape that the blocks do not divide, `DisposedError` for a disposed tensor.
 */
export function diffDialects(x: Tensor, options: DiffDialectsOptions): DialectDiff {
  const ownOptions = checkOptions("diffDialects", options);
  const source = requireWide("diffDialects", "x", x);
  using _scope = new Scope();
  const settings = commonSettings(ownOptions);
  const [a, b] = [sideOf(source, ownOptions.a, settings), sideOf(source, ownOptions.b, settings)];
  const inputs = castTo(source, "f32").dataSync() as Float32Array;
  return { a: a.spec, b: b.spec, ...countsOf(inputs, a, b, ownOptions.examples ?? 2) };
}

function countsOf(x: Float32Array, a: Side, b: Side, limit: number): Omit<DialectDiff, "a" | "b"> {
  const { columns, codes } = a.plain;
  const at = scaleAt(a.spec, columns);
  const count = { codes: 0, equalScales: 0, values: 0 };
  const examples: Record<DialectExample["kind"], DialectExample[]> = { scale: [], code: [], value: [] };
  const scaleSeen = new Set<number>();
  for (let i = 0; i < codes.length; i++) {
    const scale = at(Math.floor(i / columns), i % columns);
    const sameCode = codes[i] === b.plain.codes[i];
    const sameScale =
      Object.is(a.plain.scales[scale], b.plain.scales[scale]) && Object.is(a.plain.whole, b.plain.whole);
    const sameValue = Object.is(a.values[i], b.values[i]);
    if (!sameCode) count.codes++;
    if (!sameCode && sameScale) count.equalScales++;
    if (!sameValue) count.values++;
    if (sameCode && sameValue && sameScale) continue;
    const kind = sameScale ? (sameCode ? "value" : "code") : "scale";
    if (examples[kind].length >= limit || scaleSeen.has(scale) || (sameCode && sameValue)) continue;
    scaleSeen.add(scale);
    examples[kind].push(exampleOf(kind, i, scale, x[i] as number, a, b));
  }
  const scales = Array.from(a.plain.scales, (each, i) => Object.is(each, b.plain.scales[i]));
  return {
    scales: { different: scales.filter((same) => !same).length, of: scales.length },
    codes: { different: count.codes, of: codes.length },
    codesOfEqualScales: count.equalScales,
    values: { different: count.values, of: codes.length },
    errors: { a: errorOf(x, a.values), b: errorOf(x, b.values) },
    examples: [...examples.scale, ...examples.code, ...examples.value],
  };
}

function errorOf(x: Float32Array, values: Float32Array): DialectError {
  let [max, signal, noise] = [0, 0, 0];
  for (let i = 0; i < x.length; i++) {
    const [want, got] = [x[i] as number, values[i] as number];
    if (!Number.isFinite(want) || !Number.isFinite(got)) continue;
    const error = Math.abs(got - want);
    if (error > max) max = error;
    signal += want * want;
    noise += error * error;
  }
  return { max, sqnr: noise === 0 ? Number.POSITIVE_INFINITY : 10 * Math.log10(signal / noise) };
}

function elementOf({ spec, plain, values }: Side, i: number, scale: number): DialectElement {
  const type = blockFormat(spec.quantizer).scale;
  return {
    scale: scaleValue(type, plain.scales[scale] as number),
    code: plain.codes[i] as number,
    value: values[i] as number,
  };
}

function exampleOf(
  kind: DialectExample["kind"],
  i: number,
  scale: number,
  x: number,
  a: Side,
  b: Side,
): DialectExample {
  const { columns } = a.plain;
  const at = [Math.floor(i / columns), i % columns] as const;
  const sides = [elementOf(a, i, scale), elementOf(b, i, scale)] as const;
  const words = WORDS[kind](x, at, [a, b], sides);
  return { kind, at, x, a: sides[0], b: sides[1], words };
}

type Words = (
  x: number,
  at: readonly [number, number],
  sides: readonly [Side, Side],
  elements: readonly [DialectElement, DialectElement],
) => string;

const elementText = ([row, column]: readonly [number, number], x: number): string =>
  `[${row}, ${column}]: x = ${numberText(x)}`;

function outcome({ spec: { format } }: Side, { code, value }: DialectElement): string {
  const { maxCode } = factsOf(format);
  const saturates =
    Math.abs(valueOfCode(format, code)) === valueOfCode(format, maxCode) ? ", the largest" : "";
  return `code ${codeText(code)}${saturates}, value ${numberText(value)}`;
}

/** The sentence of an example, by the kind of difference. */
const WORDS: Readonly<Record<DialectExample["kind"], Words>> = {
  scale: (x, at, sides, elements) => {
    const [first, second] = sides.map(({ name, spec, plain }, i) => {
      const element = elements[i as 0 | 1];
      const tensorScale = plain.whole === undefined ? "" : ` under ${numberText(plain.whole)} of the tensor`;
      return `${name} has the scale ${numberText(element.scale)}${tensorScale} (${SCALE_RULES[spec.scaleRule].formula}): ${outcome(sides[i as 0 | 1], element)}`;
    });
    return `${elementText(at, x)}; ${first}; ${second}`;
  },
  code: (x, at, sides, elements) => {
    const [first, second] = sides.map(
      ({ name, spec }, i) =>
        `${name} rounds ${ELEMENT_SCALINGS[spec.elementScaling].formula}: ${outcome(sides[i as 0 | 1], elements[i as 0 | 1])}`,
    );
    return `${elementText(at, x)}, both scales are ${numberText(elements[0].scale)}; ${first}; ${second}`;
  },
  value: (x, at, sides, elements) =>
    `${elementText(at, x)}, both codes are ${codeText(elements[0].code)} and both scales ${numberText(elements[0].scale)}; ${sides[0].name} reads ${numberText(elements[0].value)}, ${sides[1].name} reads ${numberText(elements[1].value)}`,
};
