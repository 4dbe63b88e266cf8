/** The results of chips' special-function units (conformance/vectors/special-functions.json), and hashes of results. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  hasTwoArguments,
  SPECIAL_FUNCTIONS,
  type SpecialFunctionName,
} from "../../../src/formats/special-functions.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import type { FUNCTIONS_OF_TWO } from "../../oracle/core/math-functions.js";

/** The hash of the results of consecutive inputs. */
export interface Recording {
  readonly function: UnaryFunctionName;
  /** The biased exponent of 2^23 inputs of f32. Absent: the inputs are k / 2^23, or all inputs of 16 bits. */
  readonly exponent?: number;
  readonly hash: string;
}

/** The name of a function of one argument. */
export type UnaryFunctionName = Exclude<SpecialFunctionName, keyof typeof FUNCTIONS_OF_TWO>;

/** The names of the functions of one argument. */
export const UNARY_FUNCTION_NAMES = (Object.keys(SPECIAL_FUNCTIONS) as SpecialFunctionName[]).filter(
  (name): name is UnaryFunctionName => !hasTwoArguments(name),
);

interface RecordedFunctions {
  readonly recordings: readonly Recording[];
  readonly inputs: readonly string[];
  readonly results: Readonly<Partial<Record<UnaryFunctionName, readonly string[]>>>;
}

export const RECORDED_FUNCTIONS: RecordedFunctions = JSON.parse(
  readFileSync(new URL("../../vectors/special-functions.json", import.meta.url), "utf8"),
);

const parseHex = (texts: readonly string[]): number[] => texts.map((text) => Number.parseInt(text, 16));

/** The special inputs and the results of each instruction, as bits. */
export const SPECIAL_INPUTS = parseHex(RECORDED_FUNCTIONS.inputs);
export const SPECIAL_RESULTS = Object.entries(RECORDED_FUNCTIONS.results).map(
  ([name, results]) => [name as UnaryFunctionName, parseHex(results)] as const,
);

const COUNT = 2 ** 23;

/** Computes the hash of a recording with a function from the bits of an argument to the bits of a result. */
export function hashResults(
  { function: name, exponent }: Recording,
  computeBits: (input: number) => number,
): string {
  if (!name.endsWith("f32"))
    return sha256(Uint16Array.from({ length: 65_536 }, (_, input) => computeBits(input)));
  const float = Float32Array.of(0);
  const word = new Uint32Array(float.buffer);
  const results = new Uint32Array(COUNT);
  for (let k = 0; k < COUNT; k++) {
    float[0] = k / COUNT;
    results[k] = computeBits(exponent === undefined ? (word[0] as number) : exponent * COUNT + k);
  }
  return sha256(results);
}

const sha256 = (results: Uint16Array | Uint32Array): string =>
  createHash("sha256").update(results).digest("hex");

const word = new DataView(new ArrayBuffer(4));

/** The value of the bits of an f32, bf16 or f16. */
export function bitsToValue(dtype: WideDType, bits: number): number {
  if (dtype === "f16") return f16ToValue(bits);
  word.setUint32(0, dtype === "bf16" ? bits * 2 ** 16 : bits);
  return word.getFloat32(0);
}

function f16ToValue(bits: number): number {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** The bits of a value of a type. A NaN is 7FFFFFFF, or 7FFF in 16 bits, as chips return it. */
export function valueToBits(dtype: WideDType, value: number): number {
  if (Number.isNaN(value)) return dtype === "f32" ? 0x7fffffff : 0x7fff;
  word.setFloat32(0, value);
  if (dtype === "f32") return word.getUint32(0);
  return dtype === "bf16" ? word.getUint16(0) : valueToF16(value);
}

function valueToF16(value: number): number {
  const magnitude = Math.abs(value);
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  if (magnitude < 2 ** -14) return sign + magnitude * 2 ** 24;
  if (magnitude === Number.POSITIVE_INFINITY) return sign + 0x7c00;
  const exponent = (valueToBits("f32", magnitude) >>> 23) - 127;
  return sign + (exponent + 14) * 1024 + magnitude * 2 ** (10 - exponent);
}
