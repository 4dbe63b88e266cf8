/** Reads recorded runs: `log.json`, `tensors.safetensors` and `contract.json` of a folder. */
import { FileError } from "../errors.js";
import { type FileDType, fileBytes, isFileDType } from "../io/dtypes.js";
import { isSize } from "../io/header/header.js";
import { isObject, type JsonObject } from "../io/json/json-object.js";
import { JsonError, parseJson } from "../io/json/json-read.js";
import type { TensorSource } from "../io/source.js";
import { MAX_RANK, type Shape } from "../tensor/shape.js";
import type { Argument, GeneratorState } from "./call.js";
import { MAX_VALUE_BYTES, type Value } from "./value.js";

/** The format name of the logs of PyTorch's DebugMode. */
const LOG_FORMAT = "torch.utils._debug_mode.DebugMode.logs";

/** A tensor of a recorded operation, by reference. */
export interface TensorReference {
  readonly dtype: FileDType;
  readonly shape: Shape;
  /**
   * The strides in elements if the tensor was not in row-major order without gaps. Its recorded elements are in row-major order.
   */
  readonly strides?: readonly number[];
  /** The name of the recorded elements in the file of tensors; undefined if only the hash was recorded. */
  readonly tensor?: string;
  /** The SHA-256 of all bytes of the tensor, in hexadecimal. */
  readonly sha256?: string;
  /** A digest of 64 bits of all bytes of the tensor, in hexadecimal (digest.ts). */
  readonly digest?: string;
  /** A sample of the elements: their indices in row-major order, and the name of the tensor with their values. */
  readonly sample?: { readonly indices: readonly number[]; readonly tensor: string };
}

/** An argument whose tensors are references. */
export type RecordedArgument =
  | Exclude<Argument, Value | readonly Argument[]>
  | TensorReference
  | readonly RecordedArgument[];

/** A recorded operation. */
export interface RecordedOperation {
  /** The name of the operator and its overload: `aten::add.Tensor`. */
  readonly schema: string;
  readonly args: readonly RecordedArgument[];
  readonly kwargs: Readonly<Record<string, RecordedArgument>>;
  readonly outputs: readonly TensorReference[];
  /** The state of the CUDA generator from which the operator drew. */
  readonly generator?: GeneratorState;
}

/** Parses JSON. Throws `FileError` that names the file. */
export function parseFile(path: string, text: string): unknown {
  try {
    return parseJson(text);
  } catch (error) {
    throw error instanceof JsonError ? new FileError(`${path}: ${error.message}`) : error;
  }
}

const FLOATS: ReadonlyMap<unknown, number> = new Map([
  ["inf", Number.POSITIVE_INFINITY],
  ["-inf", Number.NEGATIVE_INFINITY],
  ["nan", Number.NaN],
]);

/** The digits of a 64-bit number. */
const SEED = /^\d{1,20}$/;

/** Reads the parts of a log. Every method throws `FileError`, which names the file and the operation. */
class LogReader {
  constructor(private readonly location: string) {}

  fail(problem: string): never {
    throw new FileError(`${this.location}: ${problem}`);
  }

  reference(value: JsonObject, name: string): TensorReference {
    const { dtype, shape, strides, tensor, sha256, digest, sample } = value;
    if (!isFileDType(dtype))
      this.fail(`${name}: the dtype is ${show(dtype)}; it must be one of safetensors, such as "BF16"`);
    const isShape = Array.isArray(shape) && shape.length <= MAX_RANK && shape.every(isSize);
    if (!isShape) this.fail(`${name}: the shape is ${show(shape)}; it must be a list of sizes`);
    const isStrided =
      Array.isArray(strides) && strides.length === (shape as Shape).length && strides.every(isSize);
    if (strides !== undefined && !isStrided)
      this.fail(`${name}: the strides are ${show(strides)}; they must be a size for each dimension`);
    const bytes = fileBytes(dtype, shape as Shape);
    if (!(bytes <= MAX_VALUE_BYTES))
      this.fail(`${name}: ${dtype} [${shape}] has ${bytes} bytes; at most ${MAX_VALUE_BYTES} are read`);
    const strings = Object.entries({ tensor, sha256, digest }).flatMap(([key, text]) => {
      if (text === undefined || text === null) return [];
      return typeof text === "string"
        ? [[key, text]]
        : this.fail(`${name}: ${key} is ${show(text)}; it must be a string`);
    });
    return {
      dtype,
      shape: shape as Shape,
      ...(strides === undefined ? {} : { strides: strides as readonly number[] }),
      ...(Object.fromEntries(strings) as Pick<TensorReference, "tensor" | "sha256" | "digest">),
      ...(sample === undefined ? {} : { sample: this.#sample(sample, name) }),
    };
  }

  #sample(value: unknown, name: string): { readonly indices: readonly number[]; readonly tensor: string } {
    if (
      isObject(value) &&
      Array.isArray(value.indices) &&
      value.indices.every(isSize) &&
      typeof value.tensor === "string"
    )
      return { indices: value.indices, tensor: value.tensor };
    return this.fail(`${name}: the sample is ${show(value)}; it must have indices and the name of a tensor`);
  }

  argument(value: unknown, name: string): RecordedArgument {
    if (value === null || ["boolean", "number", "string"].includes(typeof value))
      return value as RecordedArgument;
    if (Array.isArray(value)) return value.map((each, i) => this.argument(each, `${name}[${i}]`));
    if (!isObject(value)) return this.fail(`${name} is ${show(value)}`);
    if ("shape" in value) return this.reference(value, name);
    if ("float" in value)
      return (
        FLOATS.get(value.float) ?? this.fail(`${name} is ${show(value)}; a float is "inf", "-inf" or "nan"`)
      );
    if (isFileDType(value.dtype)) return { dtype: value.dtype };
    if (typeof value.other === "string") return { other: value.other };
    return this.fail(`${name} is ${show(value)}; it must be a tensor, a number, a string, a dtype or a list`);
  }

  #generator(value: unknown): GeneratorState {
    const isState =
      isObject(value) && typeof value.seed === "string" && SEED.test(value.seed) && isSize(value.offset);
    if (!isState || BigInt(value.seed as string) >= 2n ** 64n)
      this.fail(`the generator is ${show(value)}; it must have a seed as a string of digits, and an offset`);
    return { seed: BigInt(value.seed as string), offset: value.offset as number };
  }

  operation(value: unknown): RecordedOperation {
    if (!isObject(value)) this.fail(`the operation is ${show(value)}; it must be an object`);
    const { schema, args = [], kwargs = {}, outputs = [], generator } = value;
    if (typeof schema !== "string" || schema.length > 256)
      this.fail(`the schema is ${show(schema)}; it must be a name such as "aten::mm"`);
    if (!Array.isArray(args) || !isObject(kwargs) || !Array.isArray(outputs))
      this.fail("args and outputs must be lists, and kwargs an object");
    return {
      schema,
      args: args.map((each, i) => this.argument(each, `args[${i}]`)),
      kwargs: Object.fromEntries(
        Object.entries(kwargs).map(([key, argument]) => [key, this.argument(argument, key)]),
      ),
      outputs: outputs.map((output, i) =>
        isObject(output)
          ? this.reference(output, `outputs[${i}]`)
          : this.fail(`outputs[${i}] is ${show(output)}; it must be a tensor`),
      ),
      ...(generator === undefined ? {} : { generator: this.#generator(generator) }),
    };
  }
}

function show(value: unknown): string {
  const text = JSON.stringify(value) ?? "missing";
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

/** Reads one operation. `location` names the operation in errors. Throws `FileError` for an invalid operation. */
export function readOperation(location: string, value: unknown): RecordedOperation {
  return new LogReader(location).operation(value);
}

/**
 * Reads the operations of a log, in order. Skips entries of DebugMode without the field `lockstep`, such as regions and
 * annotations. Throws `FileError` for an invalid log, and for a log without any operation with this field.
 */
export function readLog(path: string, text: string): readonly RecordedOperation[] {
  const log = parseFile(path, text);
  if (!isObject(log) || log.format !== LOG_FORMAT || log.version !== 1 || !Array.isArray(log.logs))
    throw new FileError(
      `${path}: it is not a log; format must be "${LOG_FORMAT}", version 1, and logs a list`,
    );
  const entries = log.logs.filter(
    (each): each is JsonObject => isObject(each) && each.lockstep !== undefined,
  );
  if (entries.length === 0)
    throw new FileError(
      `${path}: no operation has the field "lockstep"; record the run with lockstep.torch.record`,
    );
  return entries.map(({ lockstep }, i) => readOperation(`${path}: operation ${i}`, lockstep));
}

/** Reads the bytes of a reference. Throws `FileError` if the file lacks the tensor or has another number of bytes. */
export async function readValue(
  file: TensorSource,
  location: string,
  reference: TensorReference,
): Promise<Value | undefined> {
  const { dtype, shape, tensor } = reference;
  if (tensor === undefined) return undefined;
  const entry = file.tensors.get(tensor);
  if (!entry) throw new FileError(`${location}: tensor "${tensor}" is not in ${file.path}`);
  const expected = fileBytes(dtype, shape);
  if (entry.end - entry.begin !== expected)
    throw new FileError(
      `${location}: tensor "${tensor}" has ${entry.end - entry.begin} bytes in ${file.path}; ${dtype} [${shape}] has ${expected}`,
    );
  return { dtype, shape, bytes: await file.read(entry) };
}
