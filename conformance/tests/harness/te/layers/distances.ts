/** Differences of replayed results from recorded ones, and distances of both from float64. */
import { computeDistances, type Distances } from "../recorded.js";
import type { ResultPair } from "./compare.js";
import { computeFloat64, type Float64 } from "./float64.js";
import { type Bits, isQuantized, type Reference, type Stage } from "./witness.js";

/** Errors of a result, relative to the root mean square of the float64 result. */
interface Errors {
  readonly mean: number;
  readonly max: number;
}

/** The differences of a result, and its errors. FP8 results in blocks and block scales have no errors. */
export interface StageDistances extends Distances {
  readonly calls: number;
  /** The number of differing elements that are zeros of the other sign. */
  readonly zeros: number;
  readonly ours?: Errors;
  readonly theirs?: Errors;
  /** The numbers of elements where this library's result, or TransformerEngine's, is nearer to float64. */
  readonly nearer?: { readonly ours: number; readonly theirs: number };
}

type BothErrors = Pick<StageDistances, "ours" | "theirs" | "nearer">;

const LARGEST = { e4m3: 448, e5m2: 57344 } as const;

/** The values of e4m3 and e5m2 codes. */
function decodeFp8(codes: Uint8Array, format: "e4m3" | "e5m2", scale: number): Float64Array {
  const [mantissa, bias] = format === "e4m3" ? [3, 7] : [2, 15];
  return Float64Array.from(codes, (code) => {
    const [exponent, fraction] = [(code & 0x7f) >> mantissa, code & ((1 << mantissa) - 1)];
    const magnitude =
      exponent === 0
        ? fraction * 2 ** (1 - bias - mantissa)
        : (1 + fraction / (1 << mantissa)) * 2 ** (exponent - bias);
    return (code & 0x80 ? -magnitude : magnitude) * scale;
  });
}

/** The values of bf16 or f32 bits. */
function toNumbers(bytes: Uint8Array, type: Reference["type"]): Float64Array {
  const buffer = bytes.slice().buffer;
  if (type === "f32") return Float64Array.from(new Float32Array(buffer));
  const f32Bits = Uint32Array.from(new Uint16Array(buffer), (bits) => bits << 16);
  return Float64Array.from(new Float32Array(f32Bits.buffer));
}

function computeErrors(values: Float64Array, exact: Float64Array): Errors {
  const size = Math.sqrt(exact.reduce((sum, value) => sum + value * value, 0) / exact.length);
  let [sum, max] = [0, 0];
  values.forEach((value, i) => {
    const error = Math.abs(value - (exact[i] as number)) / size;
    sum += error;
    max = Math.max(max, error);
  });
  return { mean: sum / values.length, max };
}

/** The differences of FP8 codes, in ranks of their values. */
function codeDistances(ours: Uint8Array, theirs: Uint8Array): Distances {
  const rank = (code: number): number => (code & 0x80 ? -(code & 0x7f) : code);
  let [differing, further, most] = [0, 0, 0];
  ours.forEach((code, i) => {
    const recordedCode = theirs[i] as number;
    if (code === recordedCode) return;
    const distance = Math.abs(rank(code) - rank(recordedCode));
    differing++;
    if (distance > 1) further++;
    most = Math.max(most, distance);
  });
  return { elements: ours.length, differing, further, most };
}

function countSignedZeros(ours: Uint8Array, theirs: Uint8Array, type: Reference["type"]): number {
  if (type === "u8")
    return ours.filter((code, i) => code !== theirs[i] && ((code | (theirs[i] as number)) & 0x7f) === 0)
      .length;
  const [a, b] = [toNumbers(ours, type), toNumbers(theirs, type)];
  return a.filter((value, i) => value === 0 && b[i] === 0 && !Object.is(value, b[i])).length;
}

const largestMagnitude = (values: Float64Array): number =>
  values.reduce((max, each) => Math.max(max, Math.abs(each)), 0);

/** The errors of our bits and of the recorded bits. Transposed codes, and codes and scales of blocks, have no errors. */
function pairErrors(
  { options, results }: Stage,
  { name, recorded, ours }: ResultPair,
  exact: Readonly<Record<string, Float64Array>>,
  theirs: Uint8Array,
  scalePair: (recorded: Reference) => { readonly ours: Uint8Array; readonly theirs: Uint8Array },
): BothErrors {
  const compareWith = (target: Float64Array): BothErrors =>
    bothErrors(toNumbers(ours, recorded.type), toNumbers(theirs, recorded.type), target);
  const [result = ""] = name.split(" ");
  const source = exact.out ?? exact.dx;
  if (name === "amax") return source ? compareWith(Float64Array.of(largestMagnitude(source))) : {};
  const target = exact[result];
  if (!target) return {};
  const quantized = results[result];
  if (!quantized || !isQuantized(quantized)) return compareWith(target);
  const { format, tile, scales } = quantized;
  if (tile || !scales || name.includes("transposed")) return {};
  if (name.endsWith("scales"))
    return options.quantizer?.kind === "current"
      ? compareWith(Float64Array.of(largestMagnitude(target) / LARGEST[format]))
      : {};
  const scale = scalePair(scales);
  const decodeWith = (codes: Uint8Array, scaleBytes: Uint8Array): Float64Array =>
    decodeFp8(codes, format, toNumbers(scaleBytes, "f32")[0] as number);
  return bothErrors(decodeWith(ours, scale.ours), decodeWith(theirs, scale.theirs), target);
}

/** The distances of all results of a stage, by name. */
export function stageDistances(
  stage: Stage,
  pairs: readonly ResultPair[],
  bits: Bits,
): ReadonlyMap<string, StageDistances> {
  const { inputs, options } = stage;
  const input = (name: string): Float64 => {
    const reference = inputs[name];
    if (!reference || isQuantized(reference)) throw new Error(`${stage.stage} has no tensor ${name}`);
    return { values: toNumbers(bits.require(reference), reference.type), shape: reference.shape };
  };
  const exact = Object.values(inputs).some(isQuantized) ? {} : computeFloat64(stage.stage, input, options);
  const scalePair = (recorded: Reference) => {
    const actual = pairs.find((each) => each.recorded === recorded)?.ours ?? bits.require(recorded);
    return { ours: actual, theirs: bits.require(recorded) };
  };
  const distances = new Map<string, StageDistances>();
  for (const pair of pairs) {
    const { name, recorded, ours } = pair;
    const { type, shape } = recorded;
    const expected = bits.require(recorded);
    const encoded = Buffer.from(expected).toString("base64");
    distances.set(name, {
      calls: 1,
      ...(type === "u8"
        ? codeDistances(ours, expected)
        : computeDistances(ours, { type, shape, bits: encoded })),
      zeros: countSignedZeros(ours, expected, type),
      ...pairErrors(stage, pair, exact, expected, scalePair),
    });
  }
  return distances;
}

function bothErrors(ours: Float64Array, theirs: Float64Array, exact: Float64Array): BothErrors {
  const nearer = { ours: 0, theirs: 0 };
  exact.forEach((value, i) => {
    const ourError = Math.abs((ours[i] as number) - value);
    const theirError = Math.abs((theirs[i] as number) - value);
    if (ourError !== theirError) nearer[ourError < theirError ? "ours" : "theirs"]++;
  });
  return { ours: computeErrors(ours, exact), theirs: computeErrors(theirs, exact), nearer };
}

/** Combines the distances of several calls. Means are weighted by elements. */
export function combineDistances(calls: readonly StageDistances[]): StageDistances {
  const sum = (field: (each: StageDistances) => number): number =>
    calls.reduce((result, each) => result + field(each), 0);
  const elements = sum((each) => each.elements);
  const errors = (side: "ours" | "theirs"): Errors => {
    const mean = sum((each) => (each[side] as Errors).mean * each.elements) / elements;
    return { mean, max: Math.max(...calls.map((each) => (each[side] as Errors).max)) };
  };
  const nearer = (side: "ours" | "theirs"): number => sum((each) => each.nearer?.[side] ?? 0);
  const errorFields = calls.every((each) => each.ours)
    ? {
        ours: errors("ours"),
        theirs: errors("theirs"),
        nearer: { ours: nearer("ours"), theirs: nearer("theirs") },
      }
    : {};
  return {
    calls: sum((each) => each.calls),
    elements,
    differing: sum((each) => each.differing),
    zeros: sum((each) => each.zeros),
    further: sum((each) => each.further),
    most: Math.max(...calls.map((each) => each.most)),
    ...errorFields,
  };
}
