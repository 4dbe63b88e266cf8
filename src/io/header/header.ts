/** Parses and validates the header of a safetensors file. */
import { FileError } from "../../errors.js";
import { elementCount } from "../../tensor/shape.js";
import { FILE_DTYPES, fileBytes, isFileDType } from "../dtypes.js";
import { isObject, type JsonObject } from "../json/json-object.js";
import { JsonError, jsonMembers, readDigits, repeated } from "../json/json-read.js";
import { shownJson } from "../json/json-shown.js";
import type { PutTensor, TensorEntry, TensorPlan } from "./entry.js";
import { headerPieces } from "./header-text.js";
import { type TensorTable, TensorTableWriter } from "./tensor-table.js";

export type { JsonObject, PutTensor, TensorEntry, TensorPlan };
export { isObject };

/** The strings of a file's `__metadata__`, by key. */
export type Metadata = Readonly<Record<string, string>>;

/** The parsed header of a safetensors file: metadata and tensors. */
export interface Header {
  /**
   * The tensors by name, in the order of the header. The table of a file is stored compactly and creates an entry on each access.
   */
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /** The metadata; empty if the file has none. */
  readonly metadata: Metadata;
}

/** The key of the metadata. Every other key of a header is the name of a tensor. */
export const METADATA = "__metadata__";

/** Whether a value can be the size of a dimension. */
export function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** The header of a file as it was parsed. */
export interface ParsedHeader extends Header {
  readonly tensors: TensorTable;
}

/**
 * Parses a header; `dataBytes` is the number of bytes after it. For anything that the format forbids, throws `FileError` with the
 * file, the tensor, the actual value and the requirement.
 */
export function parseHeader(file: string, bytes: Uint8Array, dataBytes: number): ParsedHeader {
  const writer = new TensorTableWriter();
  let metadata: Metadata | undefined;
  let tensors: TensorTable;
  try {
    for (const [name, value] of jsonMembers(headerPieces(file, bytes), readDigits)) {
      if (name !== METADATA) writer.add(parseEntry(file, name, value));
      else if (metadata) throw repeated(name);
      else metadata = parseMetadata(file, value);
    }
    tensors = writer.end();
  } catch (error) {
    throw error instanceof JsonError ? new FileError(`${file}: its header ${error.message}`) : error;
  }
  requireContiguous(file, tensors, dataBytes);
  return { tensors, metadata: metadata ?? {} };
}

function parseEntry(file: string, name: string, value: unknown): TensorEntry {
  const fail = (why: string): FileError => new FileError(`${file}: tensor "${name}": ${why}`);
  if (!isObject(value)) throw fail("its entry is not an object with dtype, shape and data_offsets");
  const { dtype, shape, data_offsets: offsets } = value;
  if (!isFileDType(dtype)) {
    throw fail(`dtype ${shownJson(dtype)} is not one of ${Object.keys(FILE_DTYPES).join(", ")}`);
  }
  if (!Array.isArray(shape) || !shape.every(isSize)) {
    throw fail(`shape ${shownJson(shape)} is not a list of sizes from 0, in digits`);
  }
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize)) {
    throw fail(`data_offsets ${shownJson(offsets)} is not [begin, end], in digits`);
  }
  const [begin, end] = offsets as [number, number];
  if (begin > end) throw fail(`data_offsets [${begin}, ${end}] end before they begin`);
  const needed = fileBytes(dtype, shape);
  if (!Number.isSafeInteger(elementCount(shape)) || needed !== end - begin) {
    throw fail(
      `${dtype} [${shape}] needs ${needed} bytes; data_offsets [${begin}, ${end}] hold ${end - begin}`,
    );
  }
  return { name, dtype, shape, begin, end };
}

/** Checks that the tensors cover the data exactly once: no overlap, no gap, nothing beyond the end. */
function requireContiguous(file: string, tensors: TensorTable, dataBytes: number): void {
  const { begins, ends } = tensors.spans();
  let offset = 0;
  for (const index of inOrder(begins, ends)) {
    const [begin = 0, end = 0] = [begins[index], ends[index]];
    const fail = (why: string): FileError =>
      new FileError(`${file}: tensor "${tensors.name(index)}": data_offsets [${begin}, ${end}] ${why}`);
    if (begin < offset) throw fail(`overlap the previous tensor, which ends at ${offset}`);
    if (begin > offset) throw fail(`leave a gap; the previous data end at ${offset}`);
    if (end > dataBytes)
      throw fail(`reach beyond the file, which has ${dataBytes} bytes of data; it is truncated`);
    offset = end;
  }
  if (offset !== dataBytes)
    throw new FileError(`${file}: ${dataBytes - offset} bytes follow the last tensor; none may`);
}

/** The indices of the spans by ascending begin, then end. */
function inOrder(begins: Float64Array, ends: Float64Array): Uint32Array {
  const order = Uint32Array.from(begins, (_, index) => index);
  const compare = (a: number, b: number): number =>
    (begins[a] ?? 0) - (begins[b] ?? 0) || (ends[a] ?? 0) - (ends[b] ?? 0);
  const sorted = order.every((index) => index === 0 || compare(index - 1, index) <= 0);
  return sorted ? order : order.sort(compare);
}

function parseMetadata(file: string, value: unknown): Metadata {
  const isText = (entry: [string, unknown]): entry is [string, string] => typeof entry[1] === "string";
  const entries = isObject(value) ? Object.entries(value) : undefined;
  if (!entries?.every(isText)) throw new FileError(`${file}: ${METADATA} must map strings to strings`);
  return Object.fromEntries(entries);
}
