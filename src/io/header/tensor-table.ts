/**
 * The tensors of a header, stored compactly: a file may have more than a million, and most of them are accessed once or never.
 */
import type { Shape } from "../../tensor/shape.js";
import { INSPECT } from "../../tensor/show.js";
import { FILE_DTYPES, type FileDType, fileBytes } from "../dtypes.js";
import { repeated } from "../json/json-read.js";
import type { TensorEntry } from "./entry.js";
import { NameIndex } from "./name-index.js";
import { type PackedReader, PackedWriter } from "./packed.js";

const DTYPES = Object.keys(FILE_DTYPES) as readonly FileDType[];
const CODES: ReadonlyMap<FileDType, number> = new Map(DTYPES.map((dtype, code) => [dtype, code]));

/** Collects the tensors of a header, in the header's order. */
export class TensorTableWriter {
  readonly #records = new PackedWriter();
  readonly #starts: number[] = [];

  add({ name, dtype, shape, begin }: Omit<TensorEntry, "end">): void {
    this.#starts.push(this.#records.length);
    this.#records.string(name);
    this.#records.number(begin);
    this.#records.number(CODES.get(dtype) ?? 0);
    this.#records.number(shape.length);
    for (const size of shape) this.#records.number(size);
  }

  /** Returns the table. Throws `JsonError` if a name occurs twice. */
  end(): TensorTable {
    return new TensorTable(this.#records.end(), Uint32Array.from(this.#starts));
  }
}

/** An entry that refers to its table, so that `owns` can recognize it. */
class TableEntry implements TensorEntry {
  readonly end: number;
  readonly #table: TensorTable;

  constructor(
    table: TensorTable,
    readonly name: string,
    readonly dtype: FileDType,
    readonly shape: Shape,
    readonly begin: number,
  ) {
    this.#table = table;
    this.end = begin + fileBytes(dtype, shape);
  }

  static isOf(table: TensorTable, entry: object): boolean {
    return #table in entry && entry.#table === table;
  }
}

/** The tensors by name, with the interface of a `Map`, in the order of the header. An entry is created on each access. */
export class TensorTable implements ReadonlyMap<string, TensorEntry> {
  readonly #records: PackedReader;
  readonly #starts: Uint32Array;
  readonly #names: NameIndex;

  constructor(records: PackedReader, starts: Uint32Array) {
    this.#records = records;
    this.#starts = starts;
    this.#names = new NameIndex(starts.length, (index) => this.name(index));
    for (let index = 0; index < starts.length; index++)
      if (!this.#names.add(index)) throw repeated(this.name(index));
  }

  get size(): number {
    return this.#starts.length;
  }

  has(name: string): boolean {
    return this.#find(name) !== undefined;
  }

  get(name: string): TensorEntry | undefined {
    const index = this.#find(name);
    return index === undefined ? undefined : this.#entry(index);
  }

  /** Whether this table created the entry. */
  owns(entry: object): boolean {
    return TableEntry.isOf(this, entry);
  }

  /** Returns the name of the tensor with an index. Indices count from 0 in the order of the header. */
  name(index: number): string {
    return this.#record(index).string();
  }

  /** Returns where the bytes of each tensor begin and end, by index. */
  spans(): { readonly begins: Float64Array; readonly ends: Float64Array } {
    const begins = new Float64Array(this.size);
    const ends = new Float64Array(this.size);
    for (let index = 0; index < this.size; index++) {
      const record = this.#record(index);
      record.skipString();
      const begin = record.number();
      begins[index] = begin;
      ends[index] = begin + fileBytes(...typeOf(record));
    }
    return { begins, ends };
  }

  *keys(): Generator<string, undefined> {
    for (let index = 0; index < this.size; index++) yield this.name(index);
  }

  *values(): Generator<TensorEntry, undefined> {
    for (let index = 0; index < this.size; index++) yield this.#entry(index);
  }

  *entries(): Generator<[string, TensorEntry], undefined> {
    for (const entry of this.values()) yield [entry.name, entry];
  }

  [Symbol.iterator](): Generator<[string, TensorEntry], undefined> {
    return this.entries();
  }

  forEach(
    callback: (entry: TensorEntry, name: string, table: ReadonlyMap<string, TensorEntry>) => void,
    self?: unknown,
  ): void {
    for (const entry of this.values()) callback.call(self, entry, entry.name, this);
  }

  /** Makes `console.log` print the table like a `Map`. */
  [INSPECT](): ReadonlyMap<string, TensorEntry> {
    return new Map(this.entries());
  }

  /** Returns the index of a tensor. `name` may be any value; one that is not a string is never found. */
  #find(name: unknown): number | undefined {
    return typeof name === "string" ? this.#names.find(name) : undefined;
  }

  #record(index: number): PackedReader {
    this.#records.position = this.#starts[index] ?? 0;
    return this.#records;
  }

  #entry(index: number): TensorEntry {
    const record = this.#record(index);
    const name = record.string();
    const begin = record.number();
    return new TableEntry(this, name, ...typeOf(record), begin);
  }
}

function typeOf(record: PackedReader): [FileDType, Shape] {
  const dtype = DTYPES[record.number()] ?? "U8";
  const shape: number[] = [];
  for (let rank = record.number(); rank > 0; rank--) shape.push(record.number());
  return [dtype, shape];
}
