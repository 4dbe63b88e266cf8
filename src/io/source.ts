/** Sources of tensors: a file, or memory. */
import { guardReceivers, isObject } from "../brand.js";
import { ArgumentError, FileError } from "../errors.js";
import { describe, text } from "../options.js";
import { kindOf } from "../tensor/data.js";
import type { Header, Metadata, TensorEntry, TensorPlan } from "./header/header.js";
import { planEntries } from "./header/header-write.js";

/** The maximum number of names that an error lists. */
const NAMES_SHOWN = 8;

/** The first names, for an error. */
export function someNames(names: Iterable<string>): string {
  const some: string[] = [];
  for (const name of names) {
    some.push(some.length < NAMES_SHOWN ? name : "…");
    if (some.length > NAMES_SHOWN) break;
  }
  return some.join(", ") || "none";
}

/** Named tensors whose bytes are read on request. */
export abstract class TensorSource {
  constructor(
    /** The name of the source in errors. */
    readonly path: string,
    private readonly header: Header,
  ) {}

  /** The tensors by name, as in the header. */
  get tensors(): Header["tensors"] {
    return this.header.tensors;
  }

  /** The metadata of the header. */
  get metadata(): Header["metadata"] {
    return this.header.metadata;
  }

  /**
   * The entry of a tensor. Throws `FileError` that lists a few existing names, `ArgumentError` if `name` is not a
   * string.
   */
  entry(name: string): TensorEntry {
    text("entry", "name", name);
    const entry = this.tensors.get(name);
    if (entry) return entry;
    throw new FileError(
      `${this.path}: tensor ${describe(name)} is needed and not there; there are ${someNames(this.tensors.keys())}`,
    );
  }

  /** Returns bytes [begin, end) of a tensor, by default all. */
  abstract read(entry: TensorEntry, begin?: number, end?: number): Promise<Uint8Array>;

  /**
   * Fills `into` with bytes of a tensor from `begin` on. Throws `ArgumentError` if `into` is not a `Uint8Array`, and the errors
   * of `read`.
   */
  async readInto(entry: TensorEntry, begin: number, into: Uint8Array): Promise<void> {
    const end = endOf(this.path, begin, into);
    into.set(await this.read(entry, begin, end));
  }
}

/**
 * The bytes [begin, end) of a tensor, by default all. Throws `ArgumentError` for a range that is not within the tensor. `path`
 * names the source in errors.
 */
export function rangeOf(
  path: string,
  { name, begin: from, end: to }: TensorEntry,
  begin = 0,
  end = to - from,
): readonly [number, number] {
  const inside = Number.isSafeInteger(begin) && Number.isSafeInteger(end) && 0 <= begin && begin <= end;
  if (inside && end <= to - from) return [begin, end];
  throw new ArgumentError(
    `${path}: read: begin is ${describe(begin)} and end is ${describe(end)}; tensor "${name}" has ${to - from} bytes, from 0 on`,
  );
}

/** The end of the range that fills `into` from `begin` on; NaN, which `rangeOf` refuses, if `begin` is not a number. */
export function endOf(path: string, begin: number, into: Uint8Array): number {
  if (kindOf(into) !== "Uint8Array")
    throw new ArgumentError(`${path}: readInto: into is ${describe(into)}; a Uint8Array is needed`);
  return typeof begin === "number" ? begin + into.length : Number.NaN;
}

/** Tensors in memory. */
export class MemorySource extends TensorSource {
  static {
    guardReceivers(this, (x) => isObject(x) && #bytes in x);
  }

  readonly #bytes: ReadonlyMap<string, Uint8Array>;

  constructor(
    path: string,
    tensors: readonly (TensorPlan & { readonly bytes: Uint8Array })[],
    metadata: Metadata = {},
  ) {
    super(path, { tensors: planEntries(path, tensors), metadata });
    this.#bytes = new Map(tensors.map(({ name, bytes }) => [name, bytes]));
  }

  override async read(entry: TensorEntry, begin?: number, end?: number): Promise<Uint8Array> {
    return this.#bytes.get(entry.name)?.slice(...rangeOf(this.path, entry, begin, end)) ?? new Uint8Array();
  }
}
