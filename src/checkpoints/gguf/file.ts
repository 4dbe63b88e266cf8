/** Reads GGUF files without loading them. */
import { dequantizePacked, type PackedLayoutName } from "../../dialects/packed/packed.js";
import { ArgumentError } from "../../errors.js";
import type { ByteFile } from "../../io/byte-file.js";
import type { TensorEntry } from "../../io/header/header.js";
import { MAX_HEADER_BYTES } from "../../io/limits.js";
import { rangeOf, TensorSource } from "../../io/source.js";
import { asBytes } from "../../tensor/data.js";
import { Cursor, MoreBytes } from "./cursor.js";
import type { GgufFacts, MetadataContent } from "./facts.js";
import { type GgufHeader, parseGgufHeader } from "./header.js";
import { readEntry } from "./metadata.js";
import type { PackedType } from "./types.js";
import { type BlockPart, type View, viewsByName } from "./views.js";

/** The number of header bytes to read first; each further read is four times as large. */
const FIRST_BYTES = 1 << 16;
/** The number of block bytes to read at a time. */
const CHUNK_BYTES = 4 << 20;

/**
 * An open GGUF file. `tensors` lists each tensor of blocks as two tensors, codes and scales. The codes have the name of the
 * tensor; each byte holds two codes, the even column in the low half. Call `close` at the end.
 */
export class GgufFile extends TensorSource {
  readonly facts: GgufFacts;
  readonly #file: ByteFile;
  readonly #views: ReadonlyMap<string, View>;
  readonly #spans: GgufHeader["spans"];

  private constructor(path: string, file: ByteFile, header: GgufHeader, views: ReadonlyMap<string, View>) {
    const entries = [...views].map(([name, { entry }]) => [name, entry] as const);
    super(path, { tensors: new Map(entries), metadata: {} });
    this.#file = file;
    this.#views = views;
    this.#spans = header.spans;
    const { version, tensors, values } = header;
    this.facts = { version, tensors: tensors.length, metadata: Object.fromEntries(values) };
  }

  /**
   * Reads and checks the header of a file, which is closed with the result. `path` names the file in errors. Throws `FileError`
   * for a damaged file, or a tensor of an unsupported type. Loads only the header, whatever lengths it claims.
   */
  static async of(path: string, file: ByteFile): Promise<GgufFile> {
    const header = await readHeader(path, file);
    return new GgufFile(path, file, header, viewsByName(path, header.tensors));
  }

  /**
   * Throws `ArgumentError` for an entry of another file or a range outside of the entry, `FileError` if the file cannot be read.
   */
  override async read(entry: TensorEntry, from?: number, to?: number): Promise<Uint8Array> {
    const view = this.#views.get(entry.name);
    if (!view || view.entry !== entry)
      throw new ArgumentError(`${this.path}: read: "${entry.name}" is no entry of this file`);
    const [begin, end] = rangeOf(this.path, entry, from, to);
    if (view.part) return this.#gather(view.tensor.begin, view.part, begin, end);
    if (view.packed) return this.#decode(view.tensor.begin, view.packed, begin, end);
    return this.#file.read(entry.begin + begin, end - begin);
  }

  /** The keys of the metadata, in the order of the file. */
  get keys(): readonly string[] {
    return [...this.#spans.keys()];
  }

  /** The bytes of an entry of the metadata: key, type and value. Throws `ArgumentError` if there is no such key. */
  async readMetadata(key: string): Promise<Uint8Array> {
    const span = this.#spans.get(key);
    if (!span) throw new ArgumentError(`${this.path}: the metadata have no "${key}"`);
    return this.#file.read(span[0], span[1] - span[0]);
  }

  /**
   * Reads the value of an entry of the metadata: all elements of an array, all characters of a string. (`facts` only describes
   * long values.) Returns undefined if there is no such key. Throws `FileError` for an array of more than 2^22 elements, or if
   * the file cannot be read.
   */
  async readMetadataContent(key: string): Promise<MetadataContent | undefined> {
    if (!this.#spans.has(key)) return undefined;
    const bytes = await this.readMetadata(key);
    return readEntry(new Cursor(this.path, bytes, bytes.length));
  }

  /** Reads bytes [begin, end) of one part of the blocks that begin at byte `start`. */
  async #gather(start: number, part: BlockPart, begin: number, end: number): Promise<Uint8Array> {
    const { bytes, stride, gather } = part;
    const first = Math.floor(begin / bytes);
    const last = Math.ceil(end / bytes);
    const partBytes = new Uint8Array((last - first) * bytes);
    const step = Math.floor(CHUNK_BYTES / stride);
    for (let block = first; block < last; block += step) {
      const count = Math.min(step, last - block);
      const raw = await this.#file.read(start + block * stride, count * stride);
      for (let i = 0; i < count; i++) gather(raw, i * stride, partBytes, (block - first + i) * bytes);
    }
    return partBytes.subarray(begin - first * bytes, end - first * bytes);
  }

  /** Decodes packed blocks that begin at byte `start`; returns bytes [begin, end) of the F32 values. */
  async #decode(start: number, { layout, elements, bytes }: PackedType, begin: number, end: number) {
    const size = 4 * elements;
    const first = Math.floor(begin / size);
    const last = Math.ceil(end / size);
    const codes = new Uint8Array((last - first) * size);
    const step = Math.floor(CHUNK_BYTES / size);
    for (let block = first; block < last; block += step) {
      const count = Math.min(step, last - block);
      const raw = await this.#file.read(start + block * bytes, count * bytes);
      codes.set(asBytes(dequantizePacked(raw, layout)), (block - first) * size);
    }
    return codes.subarray(begin - first * size, end - first * size);
  }

  /** The packed layout of a tensor whose values are read as F32, and its bytes in the file; undefined for other tensors. */
  packed(name: string): { readonly layout: PackedLayoutName; readonly bytes: number } | undefined {
    const view = this.#views.get(name);
    return view?.packed && { layout: view.packed.layout, bytes: view.tensor.end - view.tensor.begin };
  }

  /** The bytes of blocks [first, last) of a packed tensor. Throws `ArgumentError` for other tensors and blocks. */
  async readBlocks(name: string, first: number, last: number): Promise<Uint8Array> {
    const view = this.#views.get(name);
    const { begin, end } = view?.tensor ?? { begin: 0, end: 0 };
    const size = view?.packed?.bytes ?? 0;
    if (first < 0 || last < first || (last > 0 && begin + last * size > end) || size === 0)
      throw new ArgumentError(`${this.path}: "${name}" has no packed blocks ${first} to ${last}`);
    return this.#file.read(begin + first * size, (last - first) * size);
  }

  /** Closes the file. Later reads throw `FileError`. */
  async close(): Promise<void> {
    await this.#file.close();
  }
}

/** Parses the header. The file does not record the length of the header, so it is read in growing pieces. */
async function readHeader(path: string, file: ByteFile): Promise<GgufHeader> {
  const { size } = file;
  for (let length = Math.min(size, FIRST_BYTES); ; ) {
    const cursor = new Cursor(path, await file.read(0, length), size);
    try {
      return parseGgufHeader(cursor);
    } catch (error) {
      if (!(error instanceof MoreBytes)) throw error;
      if (error.byteCount > MAX_HEADER_BYTES)
        throw cursor.fail(
          `its header has ${error.byteCount} bytes or more; ${MAX_HEADER_BYTES} are the most`,
        );
      length = Math.min(size, MAX_HEADER_BYTES, Math.max(error.byteCount, 4 * length));
    }
  }
}

/** As `GgufFile.packed`, for a tensor of any file. */
export function packedAs(shard: TensorSource, name: string): ReturnType<GgufFile["packed"]> {
  return shard instanceof GgufFile ? shard.packed(name) : undefined;
}
