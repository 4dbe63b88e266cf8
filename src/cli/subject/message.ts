/** The inputs of operations as messages, and answers as tensors. */
import type { Answer, PlainTensor } from "lockstep/conformance";
import { type FileDType, fileDType } from "../../io/dtypes.js";
import type { Frame, FrameTensor } from "../../io/frames/frame.js";
import type { JsonObject, TensorEntry } from "../../io/header/header.js";
import { asBytes, viewAs } from "../../tensor/data.js";
import { isWide, type Shape, storageBits } from "../../tensor/shape.js";
import { type Expectation, withExpectedNaN } from "./expectation.js";
import type { Harness } from "./harness.js";

/** How a tensor lies in a frame. Codes of narrow formats are U8, two 4-bit codes per byte, the even element in the low nibble. */
function planOf({ dtype, shape }: PlainTensor): { readonly dtype: FileDType; readonly shape: Shape } {
  if (isWide(dtype) || dtype === "i32") return { dtype: fileDType(dtype), shape };
  const bits = storageBits(dtype);
  if (bits === 4) return { dtype: "U8", shape: [...shape.slice(0, -1), (shape.at(-1) ?? 0) / 2] };
  return { dtype: bits === 8 ? "U8" : bits === 16 ? "U16" : "U32", shape };
}

/** A tensor as it lies in a frame, under a name. */
export function tensorOf(name: string, tensor: PlainTensor): FrameTensor {
  return { name, ...planOf(tensor), bytes: asBytes(tensor.data) };
}

/** The input of an operation: its tensors, by the path of the field, and all other fields as JSON. */
export interface InputMessage {
  readonly input: JsonObject;
  readonly tensors: readonly FrameTensor[];
}

/**
 * Plain data as JSON and tensors. Integers of 64 bits become texts, as do the numbers that JSON has not: NaN, Infinity,
 * -Infinity and -0.
 */
export function inputMessage({ PlainTensor: Plain }: Harness, value: object): InputMessage {
  const tensors: FrameTensor[] = [];
  const visit = (each: unknown, path: string): unknown => {
    if (each instanceof Plain) {
      tensors.push(tensorOf(path, each));
      return undefined;
    }
    if (typeof each === "bigint") return String(each);
    if (Object.is(each, -0)) return "-0";
    if (typeof each === "number" && !Number.isFinite(each)) return String(each);
    if (Array.isArray(each)) return each.map((item, i) => visit(item, `${path}.${i}`) ?? null);
    if (typeof each !== "object" || each === null) return each;
    return Object.fromEntries(
      Object.entries(each).map(([name, item]) => [name, visit(item, path === "" ? name : `${path}.${name}`)]),
    );
  };
  return { input: visit(value, "") as JsonObject, tensors };
}

/** What the answer has to be: the type and shape of each tensor that it may not leave out. */
export function outputsOf({ expected, optional }: Expectation): JsonObject {
  const needed = Object.entries(expected).filter(([name]) => !optional.includes(name));
  return Object.fromEntries(needed.map(([name, tensor]) => [name, planOf(tensor)]));
}

const BITS: readonly FileDType[] = ["U8", "U16", "U32"];

/**
 * The tensors of an answer, and the expected ones in place of optional ones that it leaves out. Unsigned integers may stand
 * for the bits of the expected type. Throws `MismatchError` for a tensor of another type or shape than the expected one.
 */
export function answerOf(
  { PlainTensor: Plain, fromCodes, MismatchError }: Harness,
  frame: Frame,
  { expected, optional, dialect }: Expectation,
): Answer {
  const read = (entry: TensorEntry): PlainTensor => {
    const bytes = frame.bytesOf(entry).slice();
    const wanted = expected[entry.name];
    // a name that is not expected is reported with the names that are
    if (!wanted) return fromCodes("u8", [bytes.length], bytes);
    const { dtype, shape } = planOf(wanted);
    const isType =
      entry.dtype === dtype || (BITS.includes(entry.dtype) && bytes.length === wanted.data.byteLength);
    if (!isType || String(entry.shape) !== String(shape))
      throw new MismatchError(
        `${entry.name} is ${entry.dtype} [${entry.shape}]; it has to be ${dtype} [${shape}]`,
      );
    return new Plain(
      wanted.dtype,
      wanted.shape,
      viewAs(wanted.dtype, withExpectedNaN(dialect, bytes, wanted)),
    );
  };
  const omitted = optional.filter((name) => !frame.tensors.has(name));
  return Object.fromEntries([
    ...Array.from(frame.tensors.values(), (entry) => [entry.name, read(entry)] as const),
    ...omitted.flatMap((name) => (expected[name] ? [[name, expected[name]] as const] : [])),
  ]);
}
