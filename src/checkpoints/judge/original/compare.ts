/** Compares a quantized weight with its original, under the reading that the file declares and under common misreadings. */
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
import { FILE_READING, factorReading, READINGS, type Reading } from "./readings.js";

/** The weights of the original checkpoint by name, quantized or not. */
export interface Original {
  readonly path: string;
  readonly sources: ReadonlyMap<string, Source>;
}

/** A reading explains the difference if at most this share of the wrong codes is also wrong under the reading. */
const MAX_REMAINING_SHARE = 0.1;
/** The largest relative error that rounding explains, by the bits of a code. */
const MAX_ROUNDING_ERROR: Readonly<Record<number, number>> = { 8: 0.1, 6: 0.15, 4: 0.3 };
/** The maximum share of wrong codes at which the damage is local. */
const MAX_LOCAL_SHARE = 0.01;
/** The maximum ratio of the actual error to the error of nearest codes, for codes that compensate each other's errors (GPTQ). */
const MAX_COMPENSATED_RATIO = 2;

/** The result of a comparison; no error if the original lacks the weight. */
export interface Comparison {
  readonly error?: OriginalError;
  readonly findings: readonly Finding[];
}

/** The error of a weight, and a finding that explains it. */
export async function compareOriginal(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales,
  original: Original,
): Promise<Comparison> {
  const reference = original.sources.get(weight.name);
  const isTransposed =
    conventionOf(weight.convention).transposedWide === true &&
    reference !== undefined &&
    sameShape(reference.shape, transposedShape(weight.shape));
  if (!reference || !(isTransposed || sameShape(reference.shape, weight.shape))) {
    const problem = reference ? `has the shape [${reference.shape}]` : "is not there, or has no values";
    return { findings: [finding("original-absent", weight.name, `${original.path}: ${problem}`)] };
  }
  const source = isTransposed ? transposedSource(reference) : reference;
  const measure = (readings: readonly Reading[]): Promise<readonly Deviation[]> =>
    measured(kernels, weight, scales, source, readings);
  const [deviation] = (await measure([FILE_READING])) as [Deviation];
  const error = { relative: deviation.relative, max: deviation.max };
  if (deviation.beyondHalf === 0) return { error, findings: [] };
  // only NaN distinguishes FNUZ here. If all codes are within one step, the rounding was directed, and no factor is missing.
  const possible = READINGS.filter(({ finding: name }) => name !== "codes-fnuz" || deviation.nans > 0);
  const deviations = await measure(
    deviation.beyondStep > 0 ? [...possible, factorReading(deviation.factor)] : possible,
  );
  const [best] = deviations.toSorted((a, b) => a.beyondHalf - b.beyondHalf);
  const description = `${deviation.description}; the relative error is ${deviation.relative.toPrecision(3)}`;
  if (best?.reading.finding && best.beyondHalf <= MAX_REMAINING_SHARE * deviation.beyondHalf)
    return {
      error,
      findings: [finding(best.reading.finding, weight.name, `${description}; ${best.reading.what}`)],
    };
  // NaN codes in place of finite values have their own finding
  if (deviation.beyondHalf === deviation.nans) return { error, findings: [] };
  const isFar = deviation.relative > (MAX_ROUNDING_ERROR[CODE_TYPES[weight.type].bits] ?? 0.3);
  const isLocal = deviation.beyondStep > 0 && deviation.beyondHalf < MAX_LOCAL_SHARE * deviation.elements;
  const isApart =
    deviation.beyondStep > 0 && deviation.squares > MAX_COMPENSATED_RATIO ** 2 * deviation.nearest;
  const name = isFar || isLocal || isApart ? "values-apart" : "codes-not-nearest";
  return { error, findings: [finding(name, weight.name, description)] };
}

/** Measures the deviations from the original under each reading that applies to the weight. */
async function measured(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales,
  source: Source,
  readings: readonly Reading[],
): Promise<readonly Deviation[]> {
  const factors = weight.factors && (await readFloats(weight.factors));
  const deviations = readings.flatMap((reading) => {
    const values = reading.scales(scales, weight);
    return values ? [new Deviation(reading, weight, { ...scales, values }, factors)] : [];
  });
  const take = inOrder(source, kernels);
  for await (const { matrix, row, columns, codes } of codeRows(weight)) {
    const values = await take(codes.length);
    for (const deviation of deviations) deviation.add(codes, values, matrix, row, columns);
  }
  return deviations;
}

/** Returns a function that takes the next `count` values of a source. */
function inOrder(source: Source, kernels: Kernels): (count: number) => Promise<Float64Array> {
  const pieces = source.rows(kernels);
  let held: Float32Array | Float64Array = new Float64Array();
  return async (count) => {
    const values = new Float64Array(count);
    for (let offset = 0; offset < count; ) {
      if (held.length === 0) {
        const next = await pieces.next();
        if (next.done) return values.fill(Number.NaN, offset);
        held = numbersOf(next.value);
      }
      const part = held.subarray(0, count - offset);
      values.set(part, offset);
      held = held.subarray(part.length);
      offset += part.length;
    }
    return values;
  };
}
