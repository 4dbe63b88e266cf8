/** Reads safetensors bytes that are a `Blob`, such as a file that a browser opened. Needs no file system. */
import { type BlobLike, type ByteFile, blobFile } from "./byte-file.js";
import { type Header, parseHeader, type TensorEntry } from "./header/header.js";
import { headerLengthOf, LENGTH_BYTES, requireLength } from "./header/header-length.js";
import { rangeOf, TensorSource } from "./source.js";

/** The tensors of a safetensors file that is a `Blob`. The header is read when it is opened, each tensor on request. */
export class SafetensorsBlob extends TensorSource {
  private constructor(
    path: string,
    header: Header,
    private readonly file: ByteFile,
    private readonly dataStart: number,
  ) {
    super(path, header);
  }

  /** Reads and checks the header. `path` names the file in errors. Throws `FileError` for bytes that are not safetensors. */
  static async open(path: string, blob: BlobLike): Promise<SafetensorsBlob> {
    requireLength(path, blob.size);
    const file = blobFile(path, blob);
    const length = headerLengthOf(path, await file.read(0, LENGTH_BYTES), file.size);
    const start = LENGTH_BYTES + length;
    const header = parseHeader(path, await file.read(LENGTH_BYTES, length), file.size - start);
    return new SafetensorsBlob(path, header, file, start);
  }

  override async read(entry: TensorEntry, begin?: number, end?: number): Promise<Uint8Array> {
    const [from, to] = rangeOf(this.path, entry, begin, end);
    return this.file.read(this.dataStart + entry.begin + from, to - from);
  }

  /** Does nothing: a blob needs not be closed. */
  async close(): Promise<void> {}
}
