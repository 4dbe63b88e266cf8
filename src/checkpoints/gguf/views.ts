/**
 * Presents a block tensor as two tensors, as in other conventions: codes and scales. Each byte of codes holds two codes, the even
 * column in the low half. Other packed tensors are presented as F32 and decoded on read.
 */
import { FileError } from "../../errors.js";
import { fileBytes } from "../../io/dtypes.js";
import type { TensorEntry } from "../../io/header/header.js";
import type { GgufTensor } from "./header.js";
import { type BlockType, blockBytes, codeBytes, type PackedType } from "./types.js";

/** The suffix of the name under which the scales of a tensor are listed. */
export const BLOCK_SCALES = ".block_scales";

/** An entry in a file's list of tensors. */
export interface View {
  readonly entry: TensorEntry;
  readonly tensor: GgufTensor;
  /** The part of each block to read; absent if all bytes are read. */
  readonly part?: BlockPart;
  /** The packed layout, if the values are decoded as F32. */
  readonly packed?: PackedType;
}

/** The bytes of blocks that belong to a view. */
export interface BlockPart {
  /** The bytes of the view in each block. */
  readonly bytes: number;
  /** The bytes from one block to the next. */
  readonly stride: number;
  /** Copies one block's bytes of the view to `view`. */
  readonly gather: (from: Uint8Array, blockOffset: number, target: Uint8Array, targetOffset: number) => void;
}

/** The views of a tensor. */
function viewsOf(tensor: GgufTensor): readonly View[] {
  const { name, type, shape, begin, end } = tensor;
  if ("dtype" in type) return [{ tensor, entry: { name, dtype: type.dtype, shape, begin, end } }];
  if ("layout" in type) {
    const size = fileBytes("F32", shape);
    return [{ tensor, packed: type, entry: { name, dtype: "F32", shape, begin, end: begin + size } }];
  }
  const leadingShape = shape.slice(0, -1);
  const columns = shape.at(-1) ?? 0;
  const blocks = (end - begin) / blockBytes(type);
  const grid = [...(leadingShape.length > 0 ? leadingShape : [1]), (columns / type.elements) * type.scales];
  const entryOf = (entry: Omit<TensorEntry, "begin" | "end">, bytes: number): TensorEntry => ({
    ...entry,
    begin,
    end: begin + blocks * bytes,
  });
  const [codes, scales] = [codePart(type), scalePart(type)];
  return [
    {
      tensor,
      part: codes,
      entry: entryOf({ name, dtype: "U8", shape: [...leadingShape, columns / 2] }, codes.bytes),
    },
    {
      tensor,
      part: scales,
      entry: entryOf({ name: name + BLOCK_SCALES, dtype: type.scaleDType, shape: grid }, scales.bytes),
    },
  ];
}

/** The views of all tensors by name. Throws `FileError` if a tensor has the name of the scales of another tensor. */
export function viewsByName(path: string, tensors: readonly GgufTensor[]): ReadonlyMap<string, View> {
  const views = new Map<string, View>();
  for (const view of tensors.flatMap(viewsOf)) {
    const { name } = view.entry;
    if (views.has(name))
      throw new FileError(
        `${path}: tensor "${name}": has the name of the scales of another tensor; rename it`,
      );
    views.set(name, view);
  }
  return views;
}

function scalePart(type: BlockType): BlockPart {
  const { scales } = type;
  const gather: BlockPart["gather"] = (from, blockOffset, target, targetOffset) =>
    target.set(from.subarray(blockOffset, blockOffset + scales), targetOffset);
  return { bytes: scales, stride: blockBytes(type), gather };
}

/**
 * Packs codes (two per byte, the even column in the low half) and scales into blocks: the inverse of the views. Both arrays cover
 * complete blocks.
 */
export function packBlocks(type: BlockType, codes: Uint8Array, scales: Uint8Array): Uint8Array {
  const half = codeBytes(type) / type.scales;
  const stride = blockBytes(type);
  const blocks = scales.length / type.scales;
  const blockData = new Uint8Array(blocks * stride);
  for (let block = 0, from = 0; block < blocks; block++) {
    blockData.set(scales.subarray(block * type.scales, (block + 1) * type.scales), block * stride);
    let to = block * stride + type.scales;
    for (let scale = 0; scale < type.scales; scale++, from += half)
      for (let i = 0; i < half; i += 2, to += 2) {
        const [low, high] = [codes[from + i / 2] as number, codes[from + (half + i) / 2] as number];
        blockData[to] = (low & 15) | ((high & 15) << 4);
        blockData[to + 1] = (low >>> 4) | (high & 0xf0);
      }
  }
  return blockData;
}

/** The codes of each block. Under each scale of h bytes, byte j holds elements j and j + h. */
function codePart(type: BlockType): BlockPart {
  const half = codeBytes(type) / type.scales;
  const gather: BlockPart["gather"] = (from, blockOffset, view, viewOffset) => {
    for (let scale = 0; scale < type.scales; scale++) {
      const [source, target] = [blockOffset + type.scales + scale * half, viewOffset + scale * half];
      for (let i = 0; i < half; i += 2) {
        const [even, odd] = [from[source + i] as number, from[source + i + 1] as number];
        view[target + i / 2] = (even & 15) | ((odd & 15) << 4);
        view[target + (half + i) / 2] = (even >>> 4) | (odd & 0xf0);
      }
    }
  };
  return { bytes: codeBytes(type), stride: blockBytes(type), gather };
}
