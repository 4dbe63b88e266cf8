/** Writes the header of a safetensors file: computes the offsets of all tensors and formats the JSON. */
import { FileError } from "../../errors.js";
import { elementCount } from "../../tensor/shape.js";
import { FILE_DTYPES, fileBytes } from "../dtypes.js";
import { MAX_HEADER_BYTES } from "../limits.js";
import { isSize, METADATA, type Metadata, type TensorEntry, type TensorPlan } from "./header.js";

/** The number of characters that are encoded at a time. */
const HEADER_PART = 1 << 20;

/** The offset of each tensor in the file. Tensors with wider elements come first, so that all are aligned. */
export function planEntries(file: string, plans: readonly TensorPlan[]): ReadonlyMap<string, TensorEntry> {
  const tensors = new Map<string, TensorEntry>();
  let offset = 0;
  for (const { name, dtype, shape } of plans.toSorted(widerFirst)) {
    const fail = (why: string): FileError => new FileError(`${file}: tensor "${name}": ${why}`);
    if (name === METADATA || tensors.has(name)) throw fail("the name is taken; a file has each name once");
    if (!shape.every(isSize)) throw fail(`shape [${shape}] is not a list of sizes from 0`);
    const size = fileBytes(dtype, shape);
    if (!Number.isSafeInteger(elementCount(shape)) || offset + size > Number.MAX_SAFE_INTEGER)
      throw fail(`${dtype} [${shape}] needs ${size} bytes, more than a file can have`);
    if (!Number.isInteger(size)) throw fail(`${dtype} [${shape}] does not fill whole bytes; pad it`);
    tensors.set(name, { name, dtype, shape, begin: offset, end: offset + size });
    offset += size;
  }
  return tensors;
}

function widerFirst(a: TensorPlan, b: TensorPlan): number {
  return FILE_DTYPES[b.dtype].bits - FILE_DTYPES[a.dtype].bits;
}

/** The number of bytes of a tensor's entry in a header, other than its name, type and sizes. */
const ENTRY_BYTES = `"":{"dtype":"","shape":[],"data_offsets":[0,0]},`.length;

/** Returns a lower bound of the header's size in bytes. It is much faster than encoding the header. */
export function minHeaderBytes(tensors: readonly TensorPlan[], metadata: Metadata): number {
  let bytes = 0;
  for (const { name } of tensors) bytes += ENTRY_BYTES + name.length;
  for (const [key, value] of Object.entries(metadata)) bytes += `"":"",`.length + key.length + value.length;
  return bytes;
}

/** The error for a header that is longer than readers accept. */
export function headerTooLong(file: string): FileError {
  return new FileError(
    `${file}: its header would have more than ${MAX_HEADER_BYTES} bytes, which readers refuse; write fewer or shorter names and metadata`,
  );
}

/** The header preceded by its length. Throws `FileError` if it would be longer than readers accept. */
export function encodeHeader(file: string, tensors: Iterable<TensorEntry>, metadata: Metadata): Uint8Array {
  const text = new HeaderBytes(file);
  text.add("{");
  let separator = "";
  for (const [key, value] of Object.entries(metadata)) {
    text.add(`${separator || `"${METADATA}":{`}${JSON.stringify(key)}:`);
    text.add(JSON.stringify(value));
    separator = ",";
  }
  if (separator) text.add("}");
  for (const { name, dtype, shape, begin, end } of tensors) {
    text.add(
      `${separator}${JSON.stringify(name)}:{"dtype":"${dtype}","shape":[${shape}],"data_offsets":[${begin},${end}]}`,
    );
    separator = ",";
  }
  text.add("}");
  return text.end();
}

/** Collects text as encoded bytes. */
class HeaderBytes {
  readonly #parts: Uint8Array[] = [new Uint8Array(8)];
  #pending = "";
  #length = 0;

  constructor(private readonly file: string) {}

  add(text: string): void {
    this.#pending += text;
    if (this.#pending.length >= HEADER_PART) this.#flush();
  }

  #flush(): void {
    const part = new TextEncoder().encode(this.#pending);
    this.#pending = "";
    this.#parts.push(part);
    this.#length += part.length;
    if (this.#length <= MAX_HEADER_BYTES) return;
    throw headerTooLong(this.file);
  }

  /** All bytes: the length, then the text, padded to a multiple of 8 bytes. */
  end(): Uint8Array {
    const padding = (length: number) => (8 - (length % 8)) % 8;
    this.#flush();
    this.add(" ".repeat(padding(this.#length)));
    this.#flush();
    const bytes = new Uint8Array(8 + this.#length);
    let offset = 0;
    for (const part of this.#parts) {
      bytes.set(part, offset);
      offset += part.length;
    }
    new DataView(bytes.buffer).setBigUint64(0, BigInt(this.#length), true);
    return bytes;
  }
}
