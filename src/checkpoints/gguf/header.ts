/** Parses and validates the header of a GGUF file: the metadata, and the location of each tensor. */

import { fileBytes } from "../../io/dtypes.js";
import { elementCount, type Shape } from "../../tensor/shape.js";
import type { Cursor } from "./cursor.js";
import { type GgufMetadata, metadataCount, readMetadata } from "./metadata.js";
import { blockSize, type GgmlType, ggmlType, READ_TYPES } from "./types.js";

/** The first bytes of a file, as a string. */
export const MAGIC = "GGUF";
/** The magic as a little-endian number. */
export const MAGIC_WORD = 0x46554747;
/** The supported versions, which have 64-bit lengths. */
const VERSIONS: readonly number[] = [2, 3];
/** The largest number of dimensions. */
export const MAX_DIMENSIONS = 4;
/** The minimum bytes of a tensor's description: the length of the name, the number of dimensions, type and offset. */
const MIN_TENSOR_BYTES = 24;

/** A tensor of a file. Its bytes are [begin, end) of the file. */
export interface GgufTensor {
  readonly name: string;
  readonly type: GgmlType;
  /** The size of each dimension; the last dimension is contiguous. The file stores the sizes in the opposite order. */
  readonly shape: Shape;
  readonly begin: number;
  readonly end: number;
}

/** The header of a file. */
export interface GgufHeader extends GgufMetadata {
  readonly version: number;
  readonly tensors: readonly GgufTensor[];
}

/** Parses a header. Throws `FileError` for a header that the format forbids. */
export function parseGgufHeader(cursor: Cursor): GgufHeader {
  if (cursor.u32("the magic") !== MAGIC_WORD)
    throw cursor.fail(`does not begin with "${MAGIC}"; it is no GGUF file`);
  const version = cursor.u32("the version");
  if (!VERSIONS.includes(version))
    throw cursor.fail(
      `has ${describeVersion(version)}; little endian files of ${VERSIONS.join(" and ")} are read`,
    );
  const tensorCount = cursor.count("the number of tensors", MIN_TENSOR_BYTES);
  const metadata = readMetadata(cursor, metadataCount(cursor));
  const located = new Map<string, LocatedTensor>();
  for (let i = 0; i < tensorCount; i++) {
    const tensor = readTensor(cursor, metadata.alignment);
    if (located.has(tensor.name)) throw cursor.fail(`tensor "${tensor.name}": occurs twice`);
    located.set(tensor.name, tensor);
  }
  const start = Math.ceil(cursor.position / metadata.alignment) * metadata.alignment;
  const tensors = [...located.values()].map(({ name, type, shape, offset, bytes }): GgufTensor => {
    const begin = start + offset;
    return { name, type, shape, begin, end: begin + bytes };
  });
  requireApart(cursor, tensors);
  return { ...metadata, version, tensors };
}

function describeVersion(version: number): string {
  return version !== 0 && version % 65536 === 0 ? "a version of big endian numbers" : `version ${version}`;
}

interface LocatedTensor {
  readonly name: string;
  readonly type: GgmlType;
  readonly shape: Shape;
  /** The offset from the beginning of the data. */
  readonly offset: number;
  readonly bytes: number;
}

function readTensor(cursor: Cursor, alignment: number): LocatedTensor {
  const name = cursor.text("the name of a tensor");
  const subject = `tensor "${name}"`;
  const rank = cursor.u32(`${subject}: the number of dimensions`);
  if (rank > MAX_DIMENSIONS)
    throw cursor.fail(`${subject}: has ${rank} dimensions; ${MAX_DIMENSIONS} are the most`);
  const shape: number[] = [];
  for (let i = 0; i < rank; i++) shape.unshift(cursor.u64(`${subject}: a dimension`));
  if (!Number.isSafeInteger(elementCount(shape)))
    throw cursor.fail(`${subject}: [${shape}] are too many elements`);
  const { name: typeName, type } = ggmlType(cursor.u32(`${subject}: the type`));
  if (!type)
    throw cursor.fail(`${subject}: has type ${typeName}, which is not read; ${READ_TYPES.join(", ")} are`);
  const offset = cursor.u64(`${subject}: the offset`);
  if (offset % alignment !== 0)
    throw cursor.fail(`${subject}: its offset ${offset} is no multiple of ${alignment}`);
  return { name, type, shape, offset, bytes: bytesOf(cursor, subject, type, shape) };
}

function bytesOf(cursor: Cursor, subject: string, type: GgmlType, shape: Shape): number {
  if ("dtype" in type) return fileBytes(type.dtype, shape);
  const columns = shape.at(-1) ?? 1;
  if (columns % type.elements !== 0)
    throw cursor.fail(
      `${subject}: [${shape}] has rows of ${columns}; they must be whole blocks of ${type.elements}`,
    );
  return (elementCount(shape) / type.elements) * blockSize(type);
}

/** Throws `FileError` if a tensor extends beyond the file or overlaps another tensor. */
function requireApart(cursor: Cursor, tensors: readonly GgufTensor[]): void {
  const filled = tensors.filter(({ begin, end }) => end > begin);
  let before: GgufTensor | undefined;
  for (const tensor of filled.toSorted((a, b) => a.begin - b.begin)) {
    const { name, begin, end } = tensor;
    const location = `tensor "${name}": its bytes ${begin} to ${end}`;
    if (before && begin < before.end)
      throw cursor.fail(`${location} overlap those of "${before.name}", which end at ${before.end}`);
    if (end > cursor.size)
      throw cursor.fail(`${location} reach beyond the file, which has ${cursor.size}; it is truncated`);
    before = tensor;
  }
}
