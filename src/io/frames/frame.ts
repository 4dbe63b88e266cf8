/** Frames, in which programs exchange tensors over a pipe. A frame is a length in bytes, followed by a safetensors file. */
import { guardReceivers, isObject } from "../../brand.js";
import { FileError } from "../../errors.js";
import {
  type Header,
  type Metadata,
  parseHeader,
  type TensorEntry,
  type TensorPlan,
} from "../header/header.js";
import { headerLengthOf, LENGTH_BYTES, requireLength } from "../header/header-length.js";
import { encodeHeader, planEntries } from "../header/header-write.js";
import { rangeOf, TensorSource } from "../source.js";

/** The metadata key of a frame that holds a message: JSON as a string. */
export const MESSAGE_KEY = "lockstep";

/** A tensor and its bytes, little endian, in C order. */
export interface FrameTensor extends TensorPlan {
  readonly bytes: Uint8Array;
}

/** The byte arrays of a frame, to be written one after another. Throws `FileError` for tensors that no file can have. */
export function encodeFrame(
  name: string,
  tensors: readonly FrameTensor[],
  metadata: Metadata,
): readonly Uint8Array[] {
  const entries = planEntries(name, tensors);
  const header = encodeHeader(name, entries.values(), metadata);
  const bytesByName = new Map(tensors.map((tensor) => [tensor.name, tensor.bytes]));
  const data = Array.from(entries.values(), (entry) => {
    const bytes = bytesByName.get(entry.name) as Uint8Array;
    if (bytes.length === entry.end - entry.begin) return bytes;
    throw new FileError(
      `${name}: tensor "${entry.name}": ${entry.dtype} [${entry.shape}] needs ${entry.end - entry.begin} bytes; ${bytes.length} were given`,
    );
  });
  const length = new Uint8Array(LENGTH_BYTES);
  const total = data.reduce((sum, bytes) => sum + bytes.length, header.length);
  new DataView(length.buffer).setBigUint64(0, BigInt(total), true);
  return [length, header, ...data];
}

/** The tensors of a frame. `read` gives views of the frame's bytes. */
export class Frame extends TensorSource {
  static {
    guardReceivers(this, (x) => isObject(x) && #data in x);
  }

  readonly #data: Uint8Array;

  private constructor(name: string, header: Header, data: Uint8Array) {
    super(name, header);
    this.#data = data;
  }

  /** Throws `FileError` for bytes that are not a safetensors file. `name` is the name of the frame in errors. */
  static decode(name: string, bytes: Uint8Array): Frame {
    requireLength(name, bytes.length);
    const data = LENGTH_BYTES + headerLengthOf(name, bytes, bytes.length);
    const header = parseHeader(name, bytes.subarray(LENGTH_BYTES, data), bytes.length - data);
    return new Frame(name, header, bytes.subarray(data));
  }

  override async read(entry: TensorEntry, begin?: number, end?: number): Promise<Uint8Array> {
    return this.bytesOf(entry).subarray(...rangeOf(this.path, entry, begin, end));
  }

  /** All bytes of a tensor. */
  bytesOf({ begin, end }: TensorEntry): Uint8Array {
    return this.#data.subarray(begin, end);
  }

  /**
   * The tensors and metadata whose names begin with `path` and a slash, with that prefix removed: a file within the frame. Throws
   * `FileError` if there are none.
   */
  part(path: string): TensorSource {
    const prefix = `${path}/`;
    const entriesBelow = <T>(entries: Iterable<[string, T]>): [string, T][] =>
      Array.from(entries).flatMap(([name, value]) =>
        name.startsWith(prefix) ? [[name.slice(prefix.length), value] as [string, T]] : [],
      );
    const tensors = new Map(entriesBelow(this.tensors).map(([name, entry]) => [name, { ...entry, name }]));
    const metadata = Object.fromEntries(entriesBelow(Object.entries(this.metadata)));
    if (tensors.size === 0)
      throw new FileError(
        `${this.path}: no tensor has a name that begins with "${prefix}", so there is no such file`,
      );
    return new Frame(path, { tensors, metadata }, this.#data);
  }
}
