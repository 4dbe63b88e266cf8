/** The inputs of operations as messages, and answers as tensors. */
import type { Answer, PlainTensor } from "lockstep/conformance";
import { type FileDType, fileDType } from "../../io/dtypes.js";
import type { Frame, FrameTensor } from "../../io/frames/frame.js";
import type { JsonObject, TensorEntry } from "../../io/header/header.js";
import { asBytes, viewAs } from "../../tensor/data.js";
import { isWide, type Shape, storageBits } from "../../tensor/shape.js";
import { type Expectation, withExpectedNaN } from "./expectation.js";
import type { Harness } from "./harness.js";

/**
 * The dtype and shape of a tensor in a frame. Codes of narrow formats are U8; two 4-bit codes share a byte, the even element in
 * the low nibble.
 */
function planOf({ dtype, shape }: PlainTensor): { readonly dtype: FileDType; readonly shape: Shape } {
  if (isWide(dtype) || dtype === "i32") return { dtype: fileDType(dtype), shape };
  const bits = storageBits(dtype);
  if (bits === 4) return { dtype: "U8", shape: [...shape.slice(0, -1), (shape.at(-1) ?? 0) / 2] };
  return { dtype: bits === 8 ? "U8" : bits === 16 ? "U16" : "U32", shape };
}

/** A named tensor in the form of a frame. */
export function tensorOf(name: string, tensor: PlainTensor): FrameTensor {
  return { name, ...planOf(tensor), bytes: asBytes(tensor.data) };
}

/** The input of an operation: its tensors by the path of the field, and all other fields as JSON. */
export interface InputMessage {
  readonly input: JsonObject;
  readonly tensors: readonly FrameTensor[];
}

/**
 * Splits plain data into JSON and tensors. 64-bit integers become strings. Numbers that JSON lacks (NaN, Infinity, -Infinity and
 * -0) also become strings.
 */
export function inputMessage({ PlainTensor: Plain }: Harness, value: object): InputMessage {
  const tensors: FrameTensor[] = [];
  const visit = (value: unknown, path: string): unknown => {
    if (value instanceof Plain) {
      tensors.push(tensorOf(path, value));
      return undefined;
    }
    if (typeof value === "bigint") return String(value);
    if (Object.is(value, -0)) return "-0";
    if (typeof value === "number" && !Number.isFinite(value)) return String(value);
    if (Array.isArray(value)) return value.map((item, i) => visit(item, `${path}.${i}`) ?? null);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, item]) => [
        name,
        visit(item, path === "" ? name : `${path}.${name}`),
      ]),
    );
  };
  return { input: visit(value, "") as JsonObject, tensors };
}

/** The type and shape of each tensor that the answer must have. */
export function outputsOf({ expected, optional }: Expectation): JsonObject {
  const requiredFields = Object.entries(expected).filter(([name]) => !optional.includes(name));
  return Object.fromEntries(requiredFields.map(([name, tensor]) => [name, planOf(tensor)]));
}

const BITS: readonly FileDType[] = ["U8", "U16", "U32"];

/**
 * Returns the tensors of an answer. Omitted optional tensors are replaced by the expected tensors. Unsigned integers may stand
 * for the bits of the expected type. Throws `MismatchError` for a tensor whose type or shape is not the expected one.
 */
export function answerOf(
  { PlainTensor: Plain, fromCodes, MismatchError }: Harness,
  frame: Frame,
  { expected, optional, dialect }: Expectation,
): Answer {
  const read = (entry: TensorEntry): PlainTensor => {
    const bytes = frame.bytesOf(entry).slice();
    const expectedTensor = expected[entry.name];
    // an unexpected name is reported later, together with the expected names
    if (!expectedTensor) return fromCodes("u8", [bytes.length], bytes);
    const { dtype, shape } = planOf(expectedTensor);
    const isType =
      entry.dtype === dtype ||
      (BITS.includes(entry.dtype) && bytes.length === expectedTensor.data.byteLength);
    if (!isType || String(entry.shape) !== String(shape))
      throw new MismatchError(
        `${entry.name} is ${entry.dtype} [${entry.shape}]; it has to be ${dtype} [${shape}]`,
      );
    return new Plain(
      expectedTensor.dtype,
      expectedTensor.shape,
      viewAs(expectedTensor.dtype, withExpectedNaN(dialect, bytes, expectedTensor)),
    );
  };
  const omitted = optional.filter((name) => !frame.tensors.has(name));
  return Object.fromEntries([
    ...Array.from(frame.tensors.values(), (entry) => [entry.name, read(entry)] as const),
    ...omitted.flatMap((name) => (expected[name] ? [[name, expected[name]] as const] : [])),
  ]);
}
