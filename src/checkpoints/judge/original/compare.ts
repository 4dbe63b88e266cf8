/** Compares a quantized weight with what it was made from, under its own reading and under common wrong ones. */
import { sameShape } from "../../../tensor/shape.js";
import type { Kernels } from "../../kernels/kernels.js";
import { codeRows } from "../../stored/code-rows.js";
import { CODE_TYPES } from "../../stored/code-types.js";
import { conventionOf } from "../../stored/conventions.js";
import { readFloats, type Scales } from "../../stored/scales.js";
import { transposedShape } from "../../stored/transpose.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import { numbersOf, type Source, transposedSource } from "../../values/source.js";
import { type Finding, finding } from "../findings.js";
import { Deviation } from "./deviation.js";
import type { OriginalError } from "./error.js";
import { FILE_READING, READINGS, type Reading, scaled } from "./readings.js";

/** The weights of a checkpoint by name, by their values: quantized ones too. */
export interface Original {
  readonly path: string;
  readonly sources: ReadonlyMap<string, Source>;
}

/** Another reading explains the original if it leaves at most this share of the elements that are not near. */
const EXPLAINS = 0.1;
/** The largest relative error that rounding to codes of so many bits explains. */
const EXPLAINED: Readonly<Record<number, number>> = { 8: 0.1, 6: 0.15, 4: 0.3 };
/** Fewer codes than this share that are far off are damage of some elements. */
const LOCAL = 0.01;
/** How much larger than the nearest codes' an error may be where codes compensate each other's errors. */
const COMPENSATED = 2;

/** What a comparison says. There is no error if the original does not have the weight. */
export interface Comparison {
  readonly error?: OriginalError;
  readonly findings: readonly Finding[];
}

/** The error of a weight, and the one reading that explains it. */
export async function compareOriginal(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales,
  original: Original,
): Promise<Comparison> {
  const known = original.sources.get(weight.name);
  const isTransposed =
    conventionOf(weight.convention).transposedWide === true &&
    known !== undefined &&
    sameShape(known.shape, transposedShape(weight.shape));
  if (!known || !(isTransposed || sameShape(known.shape, weight.shape))) {
    const what = known ? `has the shape [${known.shape}]` : "is not there, or has no values";
    return { findings: [finding("original-absent", weight.name, `${original.path}: ${what}`)] };
  }
  const source = isTransposed ? transposedSource(known) : known;
  const measure = (readings: readonly Reading[]): Promise<readonly Deviation[]> =>
    measured(kernels, weight, scales, source, readings);
  const [own] = (await measure([FILE_READING])) as [Deviation];
  const error = { relative: own.relative, max: own.max };
  if (own.beyondHalf === 0) return { error, findings: [] };
  // other FP8 has other codes of NaN; codes that are all within a step are rounded to a side, which is about a factor
  const possible = READINGS.filter(({ finding: name }) => name !== "codes-fnuz" || own.nans > 0);
  const others = await measure(own.beyondStep > 0 ? [...possible, scaled(own.factor)] : possible);
  const [best] = others.toSorted((a, b) => a.beyondHalf - b.beyondHalf);
  const told = `${own.told}; the relative error is ${own.relative.toPrecision(3)}`;
  if (best?.reading.finding && best.beyondHalf <= EXPLAINS * own.beyondHalf)
    return { error, findings: [finding(best.reading.finding, weight.name, `${told}; ${best.reading.what}`)] };
  // codes of NaN that stand for finite values are another finding
  if (own.beyondHalf === own.nans) return { error, findings: [] };
  const isFar = own.relative > (EXPLAINED[CODE_TYPES[weight.type].bits] ?? 0.3);
  const isLocal = own.beyondStep > 0 && own.beyondHalf < LOCAL * own.elements;
  const isApart = own.beyondStep > 0 && own.squares > COMPENSATED ** 2 * own.nearest;
  const name = isFar || isLocal || isApart ? "values-apart" : "codes-not-nearest";
  return { error, findings: [finding(name, weight.name, told)] };
}

/** How far codes are from an original under readings. Readings that the weight does not have are left out. */
async function measured(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales,
  source: Source,
  readings: readonly Reading[],
): Promise<readonly Deviation[]> {
  const factors = weight.factors && (await readFloats(weight.factors));
  const all = readings.flatMap((reading) => {
    const values = reading.scales(scales, weight);
    return values ? [new Deviation(reading, weight, { ...scales, values }, factors)] : [];
  });
  const take = inOrder(source, kernels);
  for await (const { matrix, row, columns, codes } of codeRows(weight)) {
    const values = await take(codes.length);
    for (const each of all) each.add(codes, values, matrix, row, columns);
  }
  return all;
}

/** Takes so many of the next values of a source. */
function inOrder(source: Source, kernels: Kernels): (count: number) => Promise<Float64Array> {
  const pieces = source.rows(kernels);
  let held: Float32Array | Float64Array = new Float64Array();
  return async (count) => {
    const values = new Float64Array(count);
    for (let at = 0; at < count; ) {
      if (held.length === 0) {
        const next = await pieces.next();
        if (next.done) return values.fill(Number.NaN, at);
        held = numbersOf(next.value);
      }
      const part = held.subarray(0, count - at);
      values.set(part, at);
      held = held.subarray(part.length);
      at += part.length;
    }
    return values;
  };
}
