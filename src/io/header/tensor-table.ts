/** The tensors of a header, packed: a file may have more than a million, and most of them are asked for once or never. */
import type { Shape } from "../../tensor/shape.js";
import { INSPECT } from "../../tensor/show.js";
import { FILE_DTYPES, type FileDType, fileBytes } from "../dtypes.js";
import { repeated } from "../json-read.js";
import type { TensorEntry } from "./entry.js";
import { NameIndex } from "./name-index.js";
import { type PackedReader, PackedWriter } from "./packed.js";

const DTYPES = Object.keys(FILE_DTYPES) as readonly FileDType[];
const CODES: ReadonlyMap<FileDType, number> = new Map(DTYPES.map((dtype, code) => [dtype, code]));

/** Takes the tensors of a header in its order. */
export class TensorTableWriter {
  readonly #records = new PackedWriter();
  readonly #starts: number[] = [];

  add({ name, dtype, shape, begin }: Omit<TensorEntry, "end">): void {
    this.#starts.push(this.#records.length);
    this.#records.text(name);
    this.#records.number(begin);
    this.#records.number(CODES.get(dtype) ?? 0);
    this.#records.number(shape.length);
    for (const size of shape) this.#records.number(size);
  }

  /** The table. Throws `JsonError` where a name stands twice. */
  end(): TensorTable {
    return new TensorTable(this.#records.end(), Uint32Array.from(this.#starts));
  }
}

/** An entry that knows its table. */
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

/** Tensors by name, as a `Map` has them, in the order of the header. An entry is made whenever it is asked for. */
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

  /** Whether this table made that entry. */
  made(entry: object): boolean {
    return TableEntry.isOf(this, entry);
  }

  /** The name of the tensor of a number, which counts from 0 in the order of the header. */
  name(index: number): string {
    return this.#record(index).text();
  }

  /** Where the bytes of each tensor begin and end, by its number. */
  spans(): { readonly begins: Float64Array; readonly ends: Float64Array } {
    const begins = new Float64Array(this.size);
    const ends = new Float64Array(this.size);
    for (let index = 0; index < this.size; index++) {
      const record = this.#record(index);
      record.skipText();
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
    told: (entry: TensorEntry, name: string, table: ReadonlyMap<string, TensorEntry>) => void,
    self?: unknown,
  ): void {
    for (const entry of this.values()) told.call(self, entry, entry.name, this);
  }

  /** As a `Map` is printed. */
  [INSPECT](): ReadonlyMap<string, TensorEntry> {
    return new Map(this.entries());
  }

  /** A caller may ask for anything; what is no text is no name. */
  #find(name: unknown): number | undefined {
    return typeof name === "string" ? this.#names.find(name) : undefined;
  }

  #record(index: number): PackedReader {
    this.#records.at = this.#starts[index] ?? 0;
    return this.#records;
  }

  #entry(index: number): TensorEntry {
    const record = this.#record(index);
    const name = record.text();
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
