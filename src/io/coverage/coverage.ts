/** Records which bytes of planned tensors were written. */
import { ArgumentError, FileError } from "../../errors.js";
import { describe } from "../../options.js";
import { kindOf } from "../../tensor/data.js";
import type { TensorEntry } from "../header/header.js";
import { Spans } from "./spans.js";

/** Checks that each byte of the planned tensors is written once. */
export class Coverage {
  readonly #written = new Map<string, Spans>();

  constructor(
    private readonly path: string,
    private readonly tensors: ReadonlyMap<string, TensorEntry>,
  ) {}

  /**
   * Records that `bytes` are written to a tensor from `offset` on, and returns the tensor. Throws `ArgumentError` if `bytes` are
   * not bytes or `offset` is not an offset, `FileError` for bytes that were not planned or were written before.
   */
  add(name: string, bytes: Uint8Array, offset: number): TensorEntry {
    const entry = this.tensors.get(name);
    if (kindOf(bytes) !== "Uint8Array" || !Number.isSafeInteger(offset) || offset < 0)
      throw new ArgumentError(
        `writeSafetensors: put(${JSON.stringify(name)}) was given ${describe(bytes)} and ${describe(offset)}; a Uint8Array and an offset in the tensor are needed`,
      );
    if (!entry) throw new FileError(`${this.path}: tensor "${name}" was not planned`);
    const size = entry.end - entry.begin;
    if (offset + bytes.length > size)
      throw new FileError(`${this.path}: tensor "${name}": more than its ${size} bytes were given`);
    const spans = this.#written.get(name) ?? new Spans();
    this.#written.set(name, spans);
    if (!spans.add(offset, offset + bytes.length))
      throw new FileError(
        `${this.path}: tensor "${name}": some of bytes [${offset}, ${offset + bytes.length}) were given before; put each byte once`,
      );
    return entry;
  }

  /** Throws `FileError` unless all bytes were written. */
  requireComplete(): void {
    for (const { name, begin, end } of this.tensors.values()) {
      const missing = end - begin - (this.#written.get(name)?.size ?? 0);
      if (missing > 0) throw new FileError(`${this.path}: tensor "${name}": ${missing} bytes were not given`);
    }
  }
}
