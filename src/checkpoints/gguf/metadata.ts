/** The metadata of a GGUF file. */
import type { Cursor } from "./cursor.js";
import type { MetadataContent, MetadataValue } from "./facts.js";

interface ScalarType {
  readonly size: number;
  readonly read: (view: DataView, offset: number) => number | bigint;
}

/** The scalar types by their numbers. */
const SCALARS: Readonly<Record<number, ScalarType & { readonly name: string }>> = {
  0: { name: "u8", size: 1, read: (view, offset) => view.getUint8(offset) },
  1: { name: "i8", size: 1, read: (view, offset) => view.getInt8(offset) },
  2: { name: "u16", size: 2, read: (view, offset) => view.getUint16(offset, true) },
  3: { name: "i16", size: 2, read: (view, offset) => view.getInt16(offset, true) },
  4: { name: "u32", size: 4, read: (view, offset) => view.getUint32(offset, true) },
  5: { name: "i32", size: 4, read: (view, offset) => view.getInt32(offset, true) },
  6: { name: "f32", size: 4, read: (view, offset) => view.getFloat32(offset, true) },
  7: { name: "bool", size: 1, read: (view, offset) => view.getUint8(offset) },
  10: { name: "u64", size: 8, read: (view, offset) => view.getBigUint64(offset, true) },
  11: { name: "i64", size: 8, read: (view, offset) => view.getBigInt64(offset, true) },
  12: { name: "f64", size: 8, read: (view, offset) => view.getFloat64(offset, true) },
};
const U32 = 4;
const BOOL = 7;
const TEXT = 8;
const ARRAY = 9;

/** The metadata key of the alignment of tensor offsets. */
export const ALIGNMENT_KEY = "general.alignment";
/** The alignment if the metadata have none. */
export const DEFAULT_ALIGNMENT = 32;
/** The maximum length of a string that is decoded, in bytes. */
const MAX_TEXT_BYTES = 1024;
/** The maximum number of elements of an array that is read. Vocabularies have less than a tenth of this number. */
export const MAX_ARRAY_ELEMENTS = 1 << 22;
/** The minimum bytes of an entry: the length of its key, its type, and a byte. */
const MIN_ENTRY_BYTES = 13;
/** The minimum bytes of a string: its length. */
const MIN_TEXT_BYTES = 8;

/** The parsed metadata of a file. */
export interface GgufMetadata {
  readonly values: ReadonlyMap<string, MetadataValue>;
  /** The bytes [begin, end) of each entry in the file, by its key. */
  readonly spans: ReadonlyMap<string, readonly [begin: number, end: number]>;
  /** The alignment of tensor offsets in bytes, a power of two. */
  readonly alignment: number;
}

/** The number of entries of a file. */
export function metadataCount(cursor: Cursor): number {
  return cursor.count("the number of metadata", MIN_ENTRY_BYTES);
}

/** Reads `count` entries. Throws `FileError` for a key that occurs twice, and for entries that the format forbids. */
export function readMetadata(cursor: Cursor, count: number): GgufMetadata {
  const values = new Map<string, MetadataValue>();
  const spans = new Map<string, readonly [number, number]>();
  let alignment = DEFAULT_ALIGNMENT;
  for (let i = 0; i < count; i++) {
    const begin = cursor.position;
    const key = cursor.text("a key of the metadata");
    if (values.has(key)) throw cursor.fail(`the key "${key}" occurs twice in the metadata`);
    const type = cursor.u32(`the type of "${key}"`);
    const value = readValue(cursor, key, type);
    values.set(key, value);
    spans.set(key, [begin, cursor.position]);
    if (key === ALIGNMENT_KEY) alignment = requireAlignment(cursor, type, value);
  }
  return { values, spans, alignment };
}

function requireAlignment(cursor: Cursor, type: number, value: MetadataValue): number {
  if (type === U32 && typeof value === "number" && value > 0 && Number.isInteger(Math.log2(value)))
    return value;
  throw cursor.fail(
    `${ALIGNMENT_KEY} is ${value}, of type ${type}; it must be a power of two as u32 (type 4)`,
  );
}

function readValue(cursor: Cursor, key: string, type: number): MetadataValue {
  const subject = `the value of "${key}"`;
  if (type === TEXT) return cursor.shortText(subject, MAX_TEXT_BYTES);
  if (type === ARRAY) return skipArray(cursor, subject);
  const scalar = SCALARS[type];
  if (!scalar) throw cursor.fail(`${subject} has the type ${type}; GGUF has 0 to 12`);
  return readScalar(cursor, type, scalar, subject);
}

function readScalar(cursor: Cursor, type: number, scalar: ScalarType, subject: string): MetadataValue {
  const value = cursor.scalar(scalar.size, subject, scalar.read);
  if (type === BOOL) {
    if (value === 0 || value === 1) return value === 1;
    throw cursor.fail(`${subject} is the byte ${value}; a truth value is 0 or 1`);
  }
  if (typeof value === "number") return value;
  return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
}

/**
 * Reads an entry that `readMetadata` has accepted: all elements of an array, all characters of a string. Throws `FileError` for
 * an array of more than `MAX_ARRAY_ELEMENTS`, and for an entry that the format forbids.
 */
export function readEntry(cursor: Cursor): MetadataContent {
  const key = cursor.text("a key of the metadata");
  const type = cursor.u32(`the type of "${key}"`);
  const subject = `the value of "${key}"`;
  if (type === TEXT) return cursor.text(subject);
  if (type !== ARRAY) return readValue(cursor, key, type);
  const elementType = cursor.u32(`the type of elements of ${subject}`);
  const scalar = SCALARS[elementType];
  const count = cursor.count(`the length of ${subject}`, scalar?.size ?? MIN_TEXT_BYTES);
  if (count > MAX_ARRAY_ELEMENTS)
    throw cursor.fail(`${subject} has ${count} elements; arrays of at most ${MAX_ARRAY_ELEMENTS} are read`);
  const element = `an element of ${subject}`;
  return Array.from({ length: count }, () =>
    scalar ? readScalar(cursor, elementType, scalar, element) : cursor.text(element),
  );
}

/** Skips an array; returns a description of it. */
function skipArray(cursor: Cursor, subject: string): string {
  const type = cursor.u32(`the type of elements of ${subject}`);
  const scalar = SCALARS[type];
  if (scalar) {
    const count = cursor.count(`the length of ${subject}`, scalar.size);
    cursor.take(count * scalar.size, subject);
    return `${count} of ${scalar.name}`;
  }
  if (type !== TEXT)
    throw cursor.fail(
      `${subject} is an array of type ${type}; elements are scalars or strings, and no arrays`,
    );
  const count = cursor.count(`the length of ${subject}`, MIN_TEXT_BYTES);
  for (let i = 0; i < count; i++) cursor.skipText(`a string in ${subject}`);
  return `${count} of text`;
}
