/** Derives the shape of a weight before its codes were packed. */
import { FILE_DTYPES } from "../../io/dtypes.js";
import type { Shape } from "../../tensor/shape.js";
import { CODE_TYPES, type CodeTypeName } from "../stored/code-types.js";
import type { Scheme } from "../stored/config/scheme.js";
import type { Convention } from "../stored/conventions.js";
import { rowsOf } from "../stored/packing.js";
import type { StoredTensor } from "../stored/tensors.js";

const WORD_BITS = 32;

/** The inputs of `logicalShape`. */
export interface Stored {
  readonly row: Convention;
  readonly type: CodeTypeName;
  readonly codes: StoredTensor;
  readonly scale: StoredTensor;
  /** The shape that the file records in `weight_shape`. */
  readonly recorded?: readonly number[] | undefined;
  readonly scheme?: Scheme | undefined;
}

/** Returns the shape of a weight before quantization. If there is none, returns the reason as a string. */
export function logicalShape(tensors: Stored): Shape | string {
  const { row, type, codes } = tensors;
  const { dtype, shape } = codes.entry;
  const { bits } = CODE_TYPES[type];
  const { packing } = row.codes;
  if (packing === "words") return wordsShape(tensors);
  const leadingShape = shape.slice(0, -2);
  if (packing === "rows") return [...leadingShape, rowsOf(packing, shape.at(-2) ?? 1), shape.at(-1) ?? 1];
  const hasBlockDim = row.codes.suffix === "_blocks" && shape.length >= 3;
  const last = hasBlockDim ? (shape.at(-1) ?? 0) * (shape.at(-2) ?? 0) : (shape.at(-1) ?? 1);
  const columns = (last * FILE_DTYPES[dtype].bits) / bits;
  if (!Number.isInteger(columns))
    return `${dtype} [${shape}] holds no whole number of ${type} codes in a row`;
  return [...shape.slice(0, hasBlockDim ? -2 : -1), columns];
}

/** The shape of codes packed in 32-bit words. The last word of a row may be partly empty. */
function wordsShape({ type, codes, scale, recorded, scheme }: Stored): Shape | string {
  const { name, shape } = codes.entry;
  const { bits } = CODE_TYPES[type];
  const wordCount = shape.at(-1) ?? 1;
  const wordsFor = (columns: number): number => Math.ceil((columns * bits) / WORD_BITS);
  const description = `${name} is I32 [${shape}], ${wordCount} words in a row`;
  if (recorded) {
    const columns = recorded.at(-1) ?? 0;
    const isWhole = recorded.every((size) => Number.isSafeInteger(size) && size >= 0);
    if (!isWhole || recorded.length !== shape.length)
      return `weight_shape says [${recorded}], and ${name} has shape [${shape}]`;
    if (recorded.slice(0, -1).some((size, axis) => size !== shape[axis]))
      return `weight_shape says [${recorded}], and ${name} has ${shape.slice(0, -1).join("x")} rows`;
    if (wordsFor(columns) === wordCount) return recorded;
    return `${description}; weight_shape says ${columns} columns, which take ${wordsFor(columns)} words of ${bits} bits each`;
  }
  if (scheme?.bits === undefined)
    return `${description}; neither weight_shape nor a configuration says how many bits a code has`;
  if (scheme.bits !== bits) return `${description}; the configuration says ${scheme.bits} bits`;
  const groups = scale.entry.shape.at(-1) ?? 0;
  const columns = scheme.group === undefined ? (wordCount * WORD_BITS) / bits : scheme.group * groups;
  if (Number.isInteger(columns) && wordsFor(columns) === wordCount) return [...shape.slice(0, -1), columns];
  return `${description}; ${groups} groups of ${scheme.group ?? "any number of"} columns take another number of words`;
}
