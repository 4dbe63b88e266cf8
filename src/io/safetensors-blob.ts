/** Reads safetensors bytes that are a `Blob`, such as a file that a browser opened. Needs no file system. */
import { ArgumentError } from "../errors.js";
import { describe, fieldOf } from "../options.js";
import { type Header, parseHeader, type TensorEntry } from "./header/header.js";
import { headerLengthOf, LENGTH_BYTES, requireLength } from "./header/header-length.js";
import { rangeOf, TensorSource } from "./source.js";

/** Bytes that are read in pieces: a `Blob` or a `File`. */
export interface BlobLike {
  /** The number of bytes. */
  readonly size: number;
  /** Returns bytes [begin, end) as another blob. */
  slice(begin?: number, end?: number): BlobLike;
  /** Reads all bytes. */
  arrayBuffer(): Promise<ArrayBuffer>;
}

/** Throws `ArgumentError` for anything but a `Blob` or an object with its `size` and `slice`. */
export function requireBlob(caller: string, value: unknown): asserts value is BlobLike {
  const size = fieldOf(caller, "blob", value, "size");
  const hasMethods = ["slice", "arrayBuffer"].every(
    (method) => typeof fieldOf(caller, "blob", value, method) === "function",
  );
  if (hasMethods && Number.isSafeInteger(size) && (size as number) >= 0) return;
  throw new ArgumentError(`${caller}: blob is ${describe(value)}; it must be a Blob or a File`);
}

async function bytesOf(blob: BlobLike, begin: number, end: number): Promise<Uint8Array> {
  return new Uint8Array(await blob.slice(begin, end).arrayBuffer());
}

/** The tensors of a safetensors file that is a `Blob`. The header is read when it is opened, each tensor on request. */
export class SafetensorsBlob extends TensorSource {
  private constructor(
    path: string,
    header: Header,
    private readonly blob: BlobLike,
    private readonly dataStart: number,
  ) {
    super(path, header);
  }

  /** Reads and checks the header. `path` names the file in errors. Throws `FileError` for bytes that are not safetensors. */
  static async open(path: string, blob: BlobLike): Promise<SafetensorsBlob> {
    requireLength(path, blob.size);
    const length = headerLengthOf(path, await bytesOf(blob, 0, LENGTH_BYTES), blob.size);
    const start = LENGTH_BYTES + length;
    const header = parseHeader(path, await bytesOf(blob, LENGTH_BYTES, start), blob.size - start);
    return new SafetensorsBlob(path, header, blob, start);
  }

  override async read(entry: TensorEntry, begin?: number, end?: number): Promise<Uint8Array> {
    const [from, to] = rangeOf(this.path, entry, begin, end);
    const start = this.dataStart + entry.begin;
    return bytesOf(this.blob, start + from, start + to);
  }
}
