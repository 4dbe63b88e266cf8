/** The tensors of a GGUF file that is written. */
import { FileError } from "../../errors.js";
import { fileBytes } from "../../io/dtypes.js";
import type { TensorPlan } from "../../io/header/header.js";
import type { Shape } from "../../tensor/shape.js";
import { MAX_DIMENSIONS } from "./header.js";
import { type BlockType, blockType, plainType } from "./types.js";
import { BLOCK_SCALES } from "./views.js";

/** The longest tensor name in bytes: ggml has 64 bytes for a name, with a terminating zero. */
const MAX_NAME_BYTES = 63;

/** A tensor to write, with its layout in the file. */
export interface WrittenTensor {
  readonly name: string;
  readonly type: number;
  readonly shape: Shape;
  readonly bytes: number;
  /** The layout of the blocks; absent if the elements are contiguous. */
  readonly blocks?: BlockType;
}

/**
 * The tensors of a file with these views. Throws `FileError` for an unsupported type, too many dimensions, a name that is too
 * long, or rows that are not full blocks.
 */
export function ggufTensors(path: string, views: readonly TensorPlan[]): readonly WrittenTensor[] {
  const byName = new Map(views.map((view) => [view.name, view]));
  return views.flatMap(({ name, dtype, shape }): WrittenTensor[] => {
    const fail = (reason: string): FileError => new FileError(`${path}: tensor "${name}": ${reason}`);
    const codes = name.endsWith(BLOCK_SCALES) ? byName.get(name.slice(0, -BLOCK_SCALES.length)) : undefined;
    if (codes && blockType(dtype)) return [];
    if (shape.length > MAX_DIMENSIONS)
      throw fail(`has ${shape.length} dimensions; GGUF has ${MAX_DIMENSIONS} at most`);
    const { length } = new TextEncoder().encode(name);
    if (length > MAX_NAME_BYTES)
      throw fail(`its name has ${length} bytes; ggml reads ${MAX_NAME_BYTES} at most`);
    const scales = byName.get(name + BLOCK_SCALES);
    const blocks = scales && blockType(scales.dtype);
    if (!blocks) {
      const contiguousType = plainType(dtype);
      if (!contiguousType) throw fail(`is ${dtype}, a type that GGUF has not`);
      return [{ name, type: contiguousType.number, shape, bytes: fileBytes(dtype, shape) }];
    }
    const columns = 2 * (shape.at(-1) ?? 0);
    if (columns % blocks.elements !== 0)
      throw fail(`has rows of ${columns}; they must be whole blocks of ${blocks.elements}`);
    const bytes = fileBytes(dtype, shape) + fileBytes(scales.dtype, scales.shape);
    return [{ name, type: blocks.number, shape: [...shape.slice(0, -1), columns], bytes, blocks }];
  });
}
