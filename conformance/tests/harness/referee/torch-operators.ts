/**
 * The results of PyTorch's operators on an H200 (conformance/vectors/torch-operators, recorded by
 * scripts/witness/torch_operators.py), and a test that compares the models with them.
 */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../../src/index.js";
import { FILE_DTYPES, type FileDType } from "../../../../src/io/dtypes.js";
import { type Argument, Call } from "../../../../src/referee/call.js";
import { conversion } from "../../../../src/referee/conversions.js";
import { NotModelled } from "../../../../src/referee/not-modelled.js";
import { findRow, type OperatorRow } from "../../../../src/referee/table.js";
import { transposeLastDims, type Value } from "../../../../src/referee/value.js";
import { sampleCases } from "../draws.js";
import { IS_FULL } from "../full.js";

/** A tensor argument as the integers from which `permutedWords` and `drawFloats` draw it. */
interface Draw {
  readonly dtype: FileDType;
  readonly shape: readonly number[];
  readonly seed: number;
  readonly kind: "normal" | "positive" | "wide" | "edges" | "index" | "bool";
  /** The exclusive upper bound of an index. */
  readonly high?: number;
  /** Whether the operator got the tensor with its last two dimensions exchanged. */
  readonly transposed?: true;
}

/** A tensor argument as its numbers: `{"list": [64, 128], "dtype": "I32"}`. A single number is a tensor without dimensions. */
interface ListedTensor {
  readonly list: number | readonly number[];
  readonly dtype: FileDType;
}

type RecordedArgument = null | boolean | number | string | Draw | ListedTensor | readonly RecordedArgument[];

/** A recorded call of an operator. */
export interface RecordedCall {
  /** The number of the call in the recording. */
  readonly id: number;
  readonly schema: string;
  readonly args: readonly RecordedArgument[];
  readonly kwargs?: Readonly<Record<string, RecordedArgument>>;
  /** If cuBLASLt split K: the smallest number of splits with which the model has the recorded bits. */
  readonly splits?: number;
  /**
   * Of a product on CUDA cores, if it is not one chain: the lanes with which the model has the recorded bits. Null if no known
   * order has them; such calls are not compared.
   */
  readonly lanes?: { readonly count: number; readonly run: number } | null;
  /**
   * The dtype, the shape and the first 16 digits of the SHA-256 of each result. All NaNs of a result are replaced by one first.
   */
  readonly outputs: readonly (readonly [FileDType, readonly number[], string])[];
}

/** The recorded calls of a family, such as "reductions". */
export function recordedCalls(family: string): readonly RecordedCall[] {
  const url = new URL(`../../../vectors/torch-operators/${family}.json`, import.meta.url);
  return (JSON.parse(readFileSync(url, "utf8")) as { calls: RecordedCall[] }).calls;
}

/** The special numbers. In a tensor of the kind `edges`, every sixteenth element is one of them. */
const EDGES = Float32Array.of(
  ...[0, -0, 1, -1, 0.5, 2, 3e-39, -1e-45, 6e-8, -6e-8, 65504, 65520, 448, 464, 465, 57344, 61440, 1e5, -1e5],
  ...[88.5, -88.5, 104, -104, 3.3e38, -3.3e38, 1.1754944e-38, Infinity, -Infinity, NaN, 20, 9, 5],
);

/** A permutation of the 32-bit integers, applied to consecutive ones. */
function permutedWords(seed: number, count: number): Uint32Array {
  const start = Math.imul(seed, 0x9e3779b9);
  return Uint32Array.from({ length: count }, (_, i) => {
    let x = (start + i) | 0;
    x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
    return x ^ (x >>> 16);
  });
}

/** The number of ones in a byte. */
function popCount(byte: number): number {
  let count = 0;
  for (let bits = byte; bits > 0; bits >>= 1) count += bits & 1;
  return count;
}

const POP_COUNTS = Array.from({ length: 256 }, (_, byte) => popCount(byte));

/** Random signs and mantissas. The exponent of `normal` and `positive` is the number of ones in 8 random bits, minus 7. */
function drawFloats({ kind, seed }: Draw, count: number): Float32Array {
  const bits = permutedWords(seed, count).map((word) => {
    const byte = (word >>> 23) & 255;
    const isNormal = kind === "normal" || kind === "positive";
    const exponent = isNormal ? 120 + (POP_COUNTS[byte] as number) : 111 + (byte & 31);
    return ((kind === "positive" ? 0 : word & 0x80000000) | (exponent << 23) | (word & 0x7fffff)) >>> 0;
  });
  const result = new Float32Array(bits.buffer);
  if (kind === "edges")
    for (let i = 0; i < count; i += 16) result[i] = EDGES[(i / 16) % EDGES.length] as number;
  return result;
}

/** F64 numbers with random mantissas: f32 numbers times 1 + w / 2^32, where the words w are drawn from another seed. */
function toDoubles(numbers: Float32Array, seed: number): Float64Array {
  const factors = permutedWords(seed + 1000, numbers.length);
  return Float64Array.from(numbers, (number, i) => number * (1 + (factors[i] as number) * 2 ** -32));
}

/** The bytes of numbers in a dtype. */
function encodeNumbers(dtype: FileDType, list: readonly number[]): Uint8Array {
  if (dtype === "F32") return new Uint8Array(Float32Array.from(list).buffer);
  if (dtype === "I64") return new Uint8Array(BigInt64Array.from(list, BigInt).buffer);
  return new Uint8Array((dtype === "I32" ? Int32Array : Uint8Array).from(list).buffer);
}

/** The most recent tensors, because consecutive calls have equal tensors. */
const tensorCache = new Map<string, Value>();
const MAX_CACHED = 3;

/** The tensor of a draw. */
function cachedTensor(backend: Backend, draw: Draw): Value {
  const key = JSON.stringify(draw);
  const value = tensorCache.get(key) ?? drawTensor(backend, draw);
  tensorCache.delete(key);
  tensorCache.set(key, value);
  const [oldest] = tensorCache.keys();
  if (tensorCache.size > MAX_CACHED) tensorCache.delete(oldest as string);
  return value;
}

function drawTensor(backend: Backend, draw: Draw): Value {
  const { dtype, shape, seed, kind, high = 2 } = draw;
  const count = shape.reduce((product, size) => product * size, 1);
  if (kind === "index" || kind === "bool")
    return {
      dtype,
      shape,
      bytes: encodeNumbers(
        dtype,
        Array.from(permutedWords(seed, count), (word) => word % high),
      ),
    };
  const numbers = drawFloats(draw, count);
  const f32Value: Value = { dtype: "F32", shape, bytes: new Uint8Array(numbers.buffer) };
  const value =
    dtype === "F64"
      ? { dtype, shape, bytes: new Uint8Array(toDoubles(numbers, seed).buffer) }
      : conversion(backend, f32Value, dtype);
  return draw.transposed ? transposeLastDims(value) : value;
}

/** The strings that are dtypes as arguments. */
const DTYPES: readonly string[] = [
  "F32",
  "BF16",
  "F16",
  "F8_E4M3",
  "F8_E5M2",
  "F8_E8M0",
  "F64",
  "I32",
  "I64",
];

function createArgument(backend: Backend, recorded: RecordedArgument): Argument {
  if (typeof recorded === "string")
    return DTYPES.includes(recorded) ? { dtype: recorded as FileDType } : recorded;
  if (typeof recorded !== "object" || recorded === null) return recorded;
  if (Array.isArray(recorded)) return recorded.map((each) => createArgument(backend, each));
  if ("list" in recorded) {
    const { list, dtype } = recorded;
    const shape = typeof list === "number" ? [] : [list.length];
    return { dtype, shape, bytes: encodeNumbers(dtype, [list].flat()) };
  }
  return cachedTensor(backend, recorded as Draw);
}

/** The recording set the generator's state before each call. */
const RANDOMNESS = { generator: { seed: 7n, offset: 0 } } as const;

/** The arguments of a recorded call by position. */
export function createArguments(backend: Backend, { args }: RecordedCall): readonly Argument[] {
  return args.map((each) => createArgument(backend, each));
}

/** The row of a recorded call, and the call with its arguments. Throws `NotModelled` if there is no row. */
function createCall(backend: Backend, recorded: RecordedCall): { row: OperatorRow; call: Call } {
  const { schema, kwargs = {} } = recorded;
  const match = findRow(schema);
  if (!match) throw new NotModelled("the table has no such operator");
  const namedArguments = Object.entries(kwargs).map(
    ([name, each]) => [name, createArgument(backend, each)] as const,
  );
  const positional = createArguments(backend, recorded);
  const { row } = match;
  const parameters = row.parameters.split(" ");
  return {
    row,
    call: new Call(backend, parameters, positional, Object.fromEntries(namedArguments), RANDOMNESS),
  };
}

/** Computes the results of a call. */
export type Compute = (row: OperatorRow, call: Call) => readonly Value[];

const rowModel: Compute = ({ model }, call) => model(call);

/** Replaces each NaN among f64 numbers by the NaN whose bits except the sign are ones. */
function canonicalDoubles(bytes: Uint8Array): Uint8Array {
  const codes = new BigUint64Array(bytes.buffer);
  new Float64Array(bytes.buffer).forEach((number, i) => {
    if (Number.isNaN(number)) codes[i] = 2n ** 63n - 1n;
  });
  return bytes;
}

/** The bytes of a result in which all NaNs are replaced by one, because chips and processors return NaNs of different bits. */
function canonicalBytes({ dtype, bytes }: Value): Uint8Array {
  const size = FILE_DTYPES[dtype].bits / 8;
  const copy = bytes.slice();
  if (dtype === "F64") return canonicalDoubles(copy);
  const infinity = { F32: 0x7f800000, BF16: 0x7f80, F16: 0x7c00 }[dtype as string];
  if (infinity === undefined) return copy;
  const words = size === 4 ? new Uint32Array(copy.buffer) : new Uint16Array(copy.buffer);
  const magnitude = 2 ** (8 * size - 1) - 1;
  for (let i = 0; i < words.length; i++)
    if (((words[i] as number) & magnitude) > infinity) words[i] = magnitude;
  return copy;
}

const shortHash = (value: Value): string =>
  createHash("sha256").update(canonicalBytes(value)).digest("hex").slice(0, 16);

/** The results of a model as the recording describes them, or the reason why there is no model. */
function computeOutputs(
  backend: Backend,
  recorded: RecordedCall,
  compute: Compute,
): RecordedCall["outputs"] | string {
  try {
    const { row, call } = createCall(backend, recorded);
    return compute(row, call).map((value, i) => [
      value.dtype,
      value.shape,
      // the recorded bytes of a result that the operator does not write are arbitrary
      i >= recorded.outputs.length - (row.unwritten ?? 0)
        ? (recorded.outputs[i]?.[2] ?? "")
        : shortHash(value),
    ]);
  } catch (error) {
    if (error instanceof NotModelled) return error.message;
    throw error;
  }
}

/** Calls with fewer elements in their arguments are compared in every run: sizes at which kernels change are among them. */
const SMALL = 1 << 14;

/** A short run does not draw arguments of more elements, because drawing them takes longer than the rest of the test. */
const LARGE = 1 << 19;

const isSmall = ({ args }: RecordedCall): boolean => elementsOf(args) < SMALL;

/** The calls that this run compares: all in a full run; else all small calls, and four of those that are not large. */
function selectCalls(calls: readonly RecordedCall[]): readonly RecordedCall[] {
  const affordable = IS_FULL ? calls : calls.filter(({ args }) => elementsOf(args) < LARGE);
  const sample = new Set(sampleCases(affordable, Math.min(affordable.length, 4)));
  return calls.filter((call) => sample.has(call) || isSmall(call));
}

function elementsOf(argument: RecordedArgument): number {
  if (typeof argument !== "object" || argument === null) return 0;
  if (Array.isArray(argument)) return argument.reduce((sum: number, each) => sum + elementsOf(each), 0);
  return "shape" in argument ? argument.shape.reduce((product, size) => product * size, 1) : 0;
}

/**
 * Tests that the models reproduce every bit of a family's recorded results. `notModelled` lists the operators without a row. A
 * function of `partlyModelled` returns true for the calls of an operator with a row that the row does not model. The test
 * requires that both lists are exact. `computeOf` returns the function that computes a call's results; by default it is the row's
 * model.
 */
export function testOperators(
  family: string,
  notModelled: readonly string[],
  partlyModelled: Readonly<Record<string, (call: RecordedCall) => boolean>> = {},
  computeOf: (call: RecordedCall) => Compute = () => rowModel,
): void {
  let backend: Backend;
  beforeAll(async () => {
    backend = await openBackend("wasm", { threads: 1 });
  });
  afterAll(() => backend.dispose());

  const bySchema = new Map<string, RecordedCall[]>();
  for (const call of recordedCalls(family))
    bySchema.set(call.schema, [...(bySchema.get(call.schema) ?? []), call]);

  describe(`${family} of PyTorch on an H200`, () => {
    it.each([...bySchema].filter(([schema]) => findRow(schema)))(
      "%s has the recorded bits",
      (schema, calls) => {
        const tested = selectCalls(calls.filter(({ lanes }) => lanes !== null));
        expect(tested).not.toHaveLength(0);
        const mismatches = tested.filter((call) => {
          const result = computeOutputs(backend, call, computeOf(call));
          if (partlyModelled[schema]?.(call)) return typeof result !== "string";
          return JSON.stringify(result) !== JSON.stringify(call.outputs);
        });
        expect(mismatches.map((call) => JSON.stringify(call))).toEqual([]);
      },
    );

    it("lacks models of the operators that the test names", () => {
      expect([...bySchema.keys()].filter((schema) => !findRow(schema))).toEqual(notModelled);
      expect(
        Object.keys(partlyModelled).filter((schema) => !findRow(schema) || !bySchema.has(schema)),
      ).toEqual([]);
    });
  });
}
