/** Compares quantized tensors in two files by their values: codes multiplied by scales. */

import { type DialectValues, factorSteps, valueType } from "../../explain/dequantized.js";
import { mul, roundedTo } from "../../explain/steps.js";
import { tileSize } from "../../formats/block.js";
import { isScalarFormat, valueOfCode } from "../../formats/derive.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { tensorScaleRole } from "../../formats/scale-rules.js";
import { allMembers } from "../../io/quantized/quantized-file.js";
import type { Recipe } from "../../io/quantized/recipe.js";
import type { TensorSource } from "../../io/source.js";
import { alignBytes, viewAs } from "../../tensor/data.js";
import { type CopyGeometry, copyGeometry } from "../../tensor/geometry.js";
import { unpackFour } from "../../tensor/packed.js";
import { linePlace, scaleIndex } from "../../tensor/places.js";
import type { Direction, QuantizeSpec } from "../../tensor/quantized.js";
import { asMatrix, sameShape, storageBits, type WideDType } from "../../tensor/shape.js";
import {
  type ChunkScales,
  Comparison,
  type ComparisonOptions,
  type ValueUnder,
} from "../../tensor/statistics/comparison.js";
import type { ElementType } from "../../tensor/statistics/elements.js";
import type { Follower } from "./tensor-diff.js";

/** The scales in one of the two files: the stored bits, and the factors of codes. */
export interface Scales {
  readonly bits: ArrayLike<number>;
  readonly factors: Float32Array | Float64Array;
}

/** One copy of a quantized tensor, in both files. */
export interface QuantizedPair {
  readonly name: string;
  readonly recipe: Recipe;
  readonly direction: Direction;
  readonly geometry: CopyGeometry;
  /** The dequantization of the chosen dialect; absent without a dialect. */
  readonly values?: DialectValues | undefined;
  readonly a: Scales;
  readonly b: Scales;
}

/** The bytes of a member of the right type and shape; undefined if the file has none. */
async function bytesOf(
  file: TensorSource,
  {
    name,
    dtype,
    shape,
  }: { readonly name: string; readonly dtype: string; readonly shape: readonly number[] },
): Promise<Uint8Array | undefined> {
  const entry = file.tensors.get(name);
  if (!entry || entry.dtype !== dtype || !sameShape(entry.shape, shape)) return undefined;
  const bytes = await file.read(entry);
  return alignBytes(bytes, 4);
}

async function scalesIn(
  file: TensorSource,
  { name, recipe, direction, geometry, values }: Omit<QuantizedPair, "a" | "b">,
): Promise<Scales | undefined> {
  const members = allMembers(name, recipe).filter((each) => each.direction === direction);
  const planOf = (field: string) => members.find((each) => each.field === field)?.plan;
  const [scalePlan, amaxPlan] = [planOf("scaleInv"), planOf("amax")];
  const bytes = scalePlan && (await bytesOf(file, scalePlan));
  if (!bytes) return undefined;
  const amax = amaxPlan && (await bytesOf(file, amaxPlan));
  if (amaxPlan && !amax) return undefined;
  const { scaleType } = geometry;
  if (scaleType !== "f32" && !isScalarFormat(scaleType)) return undefined;
  const amaxes = amax ? viewAs("f32", amax) : [];
  const { spec } = recipe;
  const type = valueType(values, recipe.dtype);
  const factorOf = (scale: number, line = 0): number => {
    const lineAmax = amaxes[line] ?? 0;
    const ofTensor =
      tensorScaleRole(spec.scaleRule) === "amax"
        ? { tensorAmax: lineAmax }
        : { tensorAmax: 0, ...(amax ? { tensorScale: lineAmax } : {}) };
    return factorSteps(spec, { scale, ...ofTensor }, values, type).at(-1)?.value ?? scale;
  };
  if (scaleType === "f32")
    return { bits: viewAs("u32", bytes), factors: viewAs("f32", bytes).map((scale) => factorOf(scale)) };
  if (spec.rowScaled)
    return { bits: bytes, factors: factorsOfLines(spec, geometry, bytes, scaleType, factorOf) };
  // the sign of a narrow scale is ignored; 2^128 overflows f32
  const ofCodes = Float64Array.from({ length: 256 }, (_, code) =>
    factorOf(Math.abs(valueOfCode(scaleType, code))),
  );
  return {
    bits: bytes,
    factors: new Float64Array(bytes.length).map((_, i) => ofCodes[bytes[i] as number] as number),
  };
}

/** The factors where each line also has an amax; 0 in padding. */
function factorsOfLines(
  spec: QuantizeSpec,
  geometry: CopyGeometry,
  bits: Uint8Array,
  scaleType: ScalarFormat,
  factorOf: (scale: number, line: number) => number,
): Float64Array {
  const factors = new Float64Array(bits.length);
  const { lines, blocks } = geometry.placement;
  const [, length] = tileSize(spec.tile);
  for (let line = 0; line < lines; line++)
    for (let block = 0; block < blocks; block++) {
      const index = scaleIndex(spec, geometry, { line, along: block * length });
      factors[index] = factorOf(Math.abs(valueOfCode(scaleType, bits[index] as number)), line);
    }
  return factors;
}

/** Reads the scales of a copy from both files. Returns undefined if a file lacks them. */
export async function readPair(
  a: TensorSource,
  b: TensorSource,
  name: string,
  recipe: Recipe,
  direction: Direction,
  values: DialectValues | undefined,
): Promise<QuantizedPair | undefined> {
  const geometry = copyGeometry(recipe.spec, asMatrix(recipe.shape), direction, recipe.scales);
  const copy = { name, recipe, direction, geometry, values };
  const [ofA, ofB] = [await scalesIn(a, copy), await scalesIn(b, copy)];
  return ofA && ofB ? { ...copy, a: ofA, b: ofB } : undefined;
}

/** Compares the codes of a copy while its bytes are read. */
export class QuantizedFollower implements Follower {
  readonly comparison: Comparison;
  readonly #places: ScalePlaces;

  constructor(
    private readonly pair: QuantizedPair,
    options: ComparisonOptions,
  ) {
    const { recipe, values } = pair;
    this.comparison = new Comparison(recipe.spec.format as ElementType, {
      ...options,
      ...(values ? { valueUnder: valuesBy(values, valueType(values, recipe.dtype)) } : {}),
    });
    this.#places = new ScalePlaces(pair);
  }

  /** The index of the scale of a stored code. */
  scaleIndexOf(index: number): number {
    return this.#places.indices(index, 1)[0] as number;
  }

  chunk(a: Uint8Array, b: Uint8Array, offset: number): void {
    const { pair } = this;
    const isPacked = storageBits(pair.recipe.spec.format) === 4;
    const [x, y] = isPacked ? [unpackFour(a), unpackFour(b)] : [a, b];
    const index = this.#places.indices(isPacked ? offset * 2 : offset, x.length);
    const scales: ChunkScales = { index, a: pair.a.factors, b: pair.b.factors };
    this.comparison.add(x, y, scales);
  }
}

/** The values of codes under factors, as a dialect's library computes them. */
function valuesBy({ plusZero }: DialectValues, type: WideDType): ValueUnder {
  return (code, factor) => roundedTo(mul(plusZero && code === 0 ? 0 : code, factor), type);
}

/** The indices of the scales of consecutive codes. Rows that share scales also share their computed indices. */
export class ScalePlaces {
  readonly #columns: number;
  #indices = new Uint32Array(0);
  #cachedRow: { readonly key: number; readonly row: Uint32Array } | undefined;

  constructor(private readonly pair: Pick<QuantizedPair, "recipe" | "geometry">) {
    this.#columns = pair.geometry.dataShape[1] as number;
  }

  /** The scale indices of codes `first` to `first + count - 1`, in order. The next call overwrites the result. */
  indices(first: number, count: number): Uint32Array {
    if (this.#indices.length < count) this.#indices = new Uint32Array(count);
    const index = this.#indices.subarray(0, count);
    const columns = this.#columns;
    for (let i = 0; i < count; ) {
      const [row, column] = [Math.floor((first + i) / columns), (first + i) % columns];
      const length = Math.min(columns - column, count - i);
      index.set(this.#rowOf(row).subarray(column, column + length), i);
      i += length;
    }
    return index;
  }

  #rowOf(row: number): Uint32Array {
    const { recipe, geometry } = this.pair;
    // rows in different blocks of lines have different scales
    const isLine = geometry.direction === "rowwise" || geometry.data === "transposed";
    const [, length] = tileSize(recipe.spec.tile);
    const key = length === 0 ? 0 : isLine ? row : Math.floor(row / length);
    if (this.#cachedRow?.key === key) return this.#cachedRow.row;
    const indices = new Uint32Array(this.#columns);
    // along a line, the codes of a block share a scale
    const step = isLine && length > 0 ? length : 1;
    for (let column = 0; column < indices.length; column += step) {
      const [r, c] = geometry.data === "transposed" ? [column, row] : [row, column];
      indices.fill(scaleIndex(recipe.spec, geometry, linePlace(geometry, r, c)), column, column + step);
    }
    this.#cachedRow = { key, row: indices };
    return indices;
  }
}
