/** The files of a command whose inputs arrive in one frame and whose outputs are returned in another frame. */
import { FileError } from "../errors.js";
import { Coverage } from "../io/coverage/coverage.js";
import { type Frame, type FrameTensor, MESSAGE_KEY } from "../io/frames/frame.js";
import type { Metadata, PutTensor } from "../io/header/header.js";
import { planEntries } from "../io/header/header-write.js";
import type { FilePlan } from "../io/safetensors-writer.js";
import type { Files, OpenFile } from "./files.js";

/** A file `in` consists of the frame's tensors and metadata whose names begin with `in/`. */
export class MessageFiles implements Files {
  /** The tensors of the files that were written. */
  readonly tensors: FrameTensor[] = [];
  readonly #metadata: Record<string, string> = {};
  readonly #paths = new Set<string>();

  constructor(private readonly frame: Frame) {}

  /** The metadata of the files that were written. */
  get metadata(): Metadata {
    return this.#metadata;
  }

  async open(path: string): Promise<OpenFile> {
    return Object.assign(this.frame.part(path), { close: async () => {} });
  }

  async write(
    path: string,
    { tensors, metadata = {} }: FilePlan,
    body: (put: PutTensor) => Promise<void>,
  ): Promise<void> {
    this.#add(path);
    const entries = planEntries(path, tensors);
    const coverage = new Coverage(path, entries);
    const receivedBytes = new Map<string, Uint8Array>();
    await body(async (name, bytes, offset = 0) => {
      const { begin, end } = coverage.add(name, bytes, offset);
      if (bytes.length === end - begin) receivedBytes.set(name, bytes);
      else {
        const full = receivedBytes.get(name) ?? new Uint8Array(end - begin);
        full.set(bytes, offset);
        receivedBytes.set(name, full);
      }
    });
    coverage.requireComplete();
    for (const { name, dtype, shape } of entries.values())
      this.tensors.push({
        name: `${path}/${name}`,
        dtype,
        shape,
        bytes: receivedBytes.get(name) ?? new Uint8Array(),
      });
    for (const [key, value] of Object.entries(metadata)) this.#metadata[`${path}/${key}`] = value;
  }

  async writeText(path: string, text: string): Promise<void> {
    if (path === MESSAGE_KEY)
      throw new FileError(`${path}: is the metadata key of the answer; give the output another name`);
    this.#add(path);
    this.#metadata[path] = text;
  }

  /** Records an output. Throws `FileError` if an output of this name exists already. */
  #add(path: string): void {
    if (this.#paths.has(path))
      throw new FileError(`${path}: was written before; give each output another name`);
    this.#paths.add(path);
  }

  async text(path: string, subject: string, maxBytes: number): Promise<string> {
    const { metadata } = this.frame;
    const text = Object.hasOwn(metadata, path) ? metadata[path] : undefined;
    if (text === undefined)
      throw new FileError(`${path}: the frame has no metadata of this name; ${subject} is read from it`);
    if (text.length <= maxBytes) return text;
    throw new FileError(`${path}: has ${text.length} characters; ${subject} has at most ${maxBytes}`);
  }

  async sameFile(path: string, otherPaths: readonly string[]): Promise<string | undefined> {
    return otherPaths.find((otherPath) => otherPath === path);
  }
}
