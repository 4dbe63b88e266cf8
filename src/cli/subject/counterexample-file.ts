/** Counterexamples as safetensors files: inputs by their paths, the expected answer, and the subject's answer. */
import type { Answer, Counterexample, OperationName, PlainTensor } from "lockstep/conformance";
import { FileError } from "../../errors.js";
import type { FrameTensor } from "../../io/frames/frame.js";
import { isObject, isSize, type JsonObject } from "../../io/header/header.js";
import { parseJsonObject } from "../../io/json/json-object.js";
import { setOwn } from "../../io/json/json-read.js";
import type { TensorSource } from "../../io/source.js";
import { viewAs } from "../../tensor/data.js";
import { DTYPES, type DType, type Shape } from "../../tensor/shape.js";
import { type Session, toJson } from "../session.js";
import type { Harness } from "./harness.js";
import { inputMessage, tensorOf } from "./message.js";

/** The metadata key of counterexample files. */
const KEY = "lockstep-counterexample";

/** The type and shape of an input tensor. Its safetensors dtype does not determine the type. */
interface Kind {
  readonly dtype: DType;
  readonly shape: Shape;
}

/** The contents of a file. */
export interface StoredCase {
  readonly operation: OperationName;
  readonly input: object;
  readonly before?: object;
}

/**
 * Writes a counterexample: tensors such as `x`, `expected.rowwise.data` and `actual.rowwise.data`, and the explanation in the
 * metadata.
 */
export async function writeCounterexample(
  { files }: Session,
  path: string,
  harness: Harness,
  counterexample: Counterexample,
): Promise<void> {
  const { operation, input, before, expected, actual, mistakes, message, explanation } = counterexample;
  const inputParts = inputMessage(harness, input);
  const previousMessage = before && inputMessage(harness, before);
  const named = (prefix: string, answer: Answer): FrameTensor[] =>
    Object.entries(answer).map(([name, tensor]) => tensorOf(`${prefix}.${name}`, tensor));
  const tensors = [
    ...inputParts.tensors,
    ...(previousMessage?.tensors ?? []).map((tensor) => ({ ...tensor, name: `before.${tensor.name}` })),
    ...named("expected", expected),
    ...(actual ? named("actual", actual) : []),
  ];
  const description = {
    operation,
    input: inputParts.input,
    kinds: kindsOf(harness, input),
    ...(previousMessage ? { before: previousMessage.input } : {}),
    ...{ mistakes, message, explanation },
  };
  await files.write(path, { tensors, metadata: { [KEY]: toJson(description) } }, async (put) => {
    for (const { name, bytes } of tensors) await put(name, bytes);
  });
}

/** The types and shapes of the tensors of an input, by path. */
function kindsOf(harness: Harness, value: unknown, path = ""): Readonly<Record<string, Kind>> {
  if (value instanceof harness.PlainTensor) return { [path]: { dtype: value.dtype, shape: value.shape } };
  if (typeof value !== "object" || value === null) return {};
  return Object.assign(
    {},
    ...Object.entries(value).map(([name, property]) =>
      kindsOf(harness, property, path === "" ? name : `${path}.${name}`),
    ),
  );
}

/** Reads the input of a counterexample. Throws `FileError` for other files. */
export async function readCounterexample(file: TensorSource, harness: Harness): Promise<StoredCase> {
  const fail = (reason: string): FileError =>
    new FileError(`${file.path}: ${reason}; give a file that conform --counterexample wrote`);
  const description = parseJsonObject(file.metadata[KEY]);
  if (!description) throw fail(`has no metadata "${KEY}"`);
  const { operation, input, before, kinds } = description;
  const operationName = harness.OPERATION_NAMES.find((name) => name === operation);
  if (!operationName || !isObject(input) || !isObject(kinds))
    throw fail("says nothing of its operation and input");
  const tensors = async (prefix: string): Promise<ReadonlyMap<string, PlainTensor>> => {
    const tensors = new Map<string, PlainTensor>();
    for (const [path, kind] of Object.entries(kinds)) {
      if (!isKind(kind)) throw fail(`has no type of "${path}"`);
      const bytes = await file.read(file.entry(`${prefix}${path}`));
      tensors.set(path, new harness.PlainTensor(kind.dtype, kind.shape, viewAs(kind.dtype, bytes.slice())));
    }
    return tensors;
  };
  return {
    operation: operationName,
    input: withTensors(input, await tensors(""), fail),
    ...(isObject(before) ? { before: withTensors(before, await tensors("before."), fail) } : {}),
  };
}

function isKind(value: unknown): value is Kind {
  if (!isObject(value)) return false;
  const { dtype, shape } = value;
  return DTYPES.some((each) => each === dtype) && Array.isArray(shape) && shape.every(isSize);
}

/** Numbers that JSON lacks, by their strings. */
const NUMBERS: Readonly<Record<string, number>> = {
  NaN: Number.NaN,
  Infinity: Number.POSITIVE_INFINITY,
  "-Infinity": Number.NEGATIVE_INFINITY,
  "-0": -0,
};

/** Restores an input: inserts its tensors, and replaces strings by the numbers that JSON lacks. */
function withTensors(
  fields: JsonObject,
  tensors: ReadonlyMap<string, PlainTensor>,
  fail: (reason: string) => FileError,
): object {
  const visit = (value: unknown): unknown => {
    if (typeof value === "string" && Object.hasOwn(NUMBERS, value)) return NUMBERS[value];
    if (typeof value === "string" && /^\d+$/.test(value)) return BigInt(value);
    if (Array.isArray(value)) return value.map(visit);
    if (!isObject(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([name, property]) => [name, visit(property)]));
  };
  const message = visit(fields) as JsonObject;
  for (const [path, tensor] of tensors) {
    const names = path.split(".");
    const last = names.pop() as string;
    let parent: JsonObject = message;
    for (const name of names) {
      if (!Object.hasOwn(parent, name)) setOwn(parent, name, {});
      const next = parent[name];
      if (!isObject(next)) throw fail(`has a tensor "${path}" in what is no object`);
      parent = next;
    }
    setOwn(parent, last, tensor);
  }
  return message;
}
