/** The header of a safetensors file: its JSON checked in full, and written. */
import { FileError } from "../errors.js";
import { elementCount, type Shape } from "../tensor/shape.js";
import { FILE_DTYPES, type FileDType, fileBytes, isFileDType } from "./dtypes.js";
import { repeatedKey } from "./json-keys.js";

/** A tensor to be written. */
export interface TensorPlan {
  readonly name: string;
  readonly dtype: FileDType;
  readonly shape: Shape;
}

/** A tensor of a file; its bytes are [begin, end) of the data that follow the header. */
export interface TensorEntry extends TensorPlan {
  readonly begin: number;
  readonly end: number;
}

export type Metadata = Readonly<Record<string, string>>;

export interface Header {
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly metadata: Metadata;
}

const METADATA = "__metadata__";

export type JsonObject = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/**
 * Parses a header. `dataBytes` is how many bytes follow it. Throws `FileError` that names the file, the
 * tensor, what was found and what is needed, for anything the format does not allow.
 */
export function parseHeader(file: string, bytes: Uint8Array, dataBytes: number): Header {
  const root = parseObject(file, bytes);
  const tensors = new Map<string, TensorEntry>();
  for (const [name, value] of Object.entries(root)) {
    if (name !== METADATA) tensors.set(name, parseEntry(file, name, value));
  }
  requireContiguous(file, [...tensors.values()], dataBytes);
  return { tensors, metadata: parseMetadata(file, root[METADATA]) };
}

function parseObject(file: string, bytes: Uint8Array): JsonObject {
  const fail = (why: string, cause?: unknown): FileError =>
    new FileError(`${file}: its header ${why}`, { cause });
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw fail("is not UTF-8; safetensors headers are JSON in UTF-8", cause);
  }
  if (!text.startsWith("{"))
    throw fail(`begins with ${JSON.stringify(text.slice(0, 1))}; it must begin with "{"`);
  let root: unknown;
  try {
    root = JSON.parse(text);
  } catch (cause) {
    throw fail("is not valid JSON", cause);
  }
  if (!isObject(root)) throw fail("is not a JSON object");
  const twice = repeatedKey(text);
  if (twice !== undefined) throw fail(`has the key "${twice}" twice; keys must be unique`);
  return root;
}

function parseEntry(file: string, name: string, value: unknown): TensorEntry {
  const fail = (why: string): FileError => new FileError(`${file}: tensor "${name}": ${why}`);
  if (!isObject(value)) throw fail("its entry is not an object with dtype, shape and data_offsets");
  const { dtype, shape, data_offsets: offsets } = value;
  if (!isFileDType(dtype)) {
    throw fail(`dtype ${JSON.stringify(dtype)} is not one of ${Object.keys(FILE_DTYPES).join(", ")}`);
  }
  if (!Array.isArray(shape) || !shape.every(isSize)) {
    throw fail(`shape ${JSON.stringify(shape)} is not a list of sizes from 0`);
  }
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize)) {
    throw fail(`data_offsets ${JSON.stringify(offsets)} is not [begin, end]`);
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

/** The data must be covered once: no overlap, no hole, nothing beyond the end, nothing left over. */
function requireContiguous(file: string, entries: readonly TensorEntry[], dataBytes: number): void {
  let at = 0;
  for (const { name, begin, end } of entries.toSorted((a, b) => a.begin - b.begin || a.end - b.end)) {
    const where = `${file}: tensor "${name}": data_offsets [${begin}, ${end}]`;
    if (begin < at) throw new FileError(`${where} overlap the tensor before, which ends at ${at}`);
    if (begin > at) throw new FileError(`${where} leave a hole; the data before end at ${at}`);
    if (end > dataBytes) {
      throw new FileError(
        `${where} reach beyond the file, which has ${dataBytes} bytes of data; it is truncated`,
      );
    }
    at = end;
  }
  if (at !== dataBytes)
    throw new FileError(`${file}: ${dataBytes - at} bytes follow the last tensor; none may`);
}

function parseMetadata(file: string, value: unknown): Metadata {
  if (value === undefined) return {};
  const isText = (entry: [string, unknown]): entry is [string, string] => typeof entry[1] === "string";
  const entries = isObject(value) ? Object.entries(value) : undefined;
  if (!entries?.every(isText)) throw new FileError(`${file}: ${METADATA} must map strings to strings`);
  return Object.fromEntries(entries);
}

/** A header with its length before it, and where each tensor goes. Wider elements first, so that all are aligned. */
export function buildHeader(
  file: string,
  plans: readonly TensorPlan[],
  metadata: Metadata,
): { readonly bytes: Uint8Array; readonly tensors: ReadonlyMap<string, TensorEntry> } {
  const tensors = new Map<string, TensorEntry>();
  let at = 0;
  for (const plan of plans.toSorted((a, b) => FILE_DTYPES[b.dtype].bits - FILE_DTYPES[a.dtype].bits)) {
    const { name, dtype, shape } = plan;
    const fail = (why: string): FileError => new FileError(`${file}: tensor "${name}": ${why}`);
    if (name === METADATA || tensors.has(name)) throw fail("the name is taken; a file has each name once");
    const size = fileBytes(dtype, shape);
    if (!Number.isSafeInteger(size)) throw fail(`${dtype} [${shape}] does not fill whole bytes; pad it`);
    tensors.set(name, { name, dtype, shape, begin: at, end: at + size });
    at += size;
  }
  const entries = [...tensors.values()].map(({ name, dtype, shape, begin, end }) => {
    return [name, { dtype, shape, data_offsets: [begin, end] }] as const;
  });
  const extra = Object.keys(metadata).length > 0 ? [[METADATA, metadata] as const] : [];
  const json = new TextEncoder().encode(JSON.stringify(Object.fromEntries([...extra, ...entries])));
  const bytes = new Uint8Array(8 + Math.ceil(json.length / 8) * 8).fill(0x20);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(bytes.length - 8), true);
  bytes.set(json, 8);
  return { bytes, tensors };
}
