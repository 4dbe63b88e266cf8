/** The cache of keys and values of a model that generates. */
import { type Backend, requireBackend } from "../../backends/backend.js";
import { guardReceivers, inherits, isObject } from "../../brand.js";
import { ArgumentError, DisposedError, ShapeError } from "../../errors.js";
import { tensor, zeros } from "../../ops/create.js";
import { describe, entriesOfMap, integer } from "../../options.js";
import { elementCount, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { persistent } from "../parameter.js";
import { type CacheFormat, cacheCodes, cacheValues } from "./coded-cache.js";
import { checkInferenceOptions, type InferenceParamsOptions } from "./inference-options.js";
import { PageTable, type SequenceId } from "./page-table.js";

const size = integer(1, 2 ** 31 - 1);

/** The cached keys and values of a layer, with the pages and the lengths of each sequence. */
export interface CachedKeys {
  readonly k: Tensor<WideDType>;
  readonly v: Tensor<WideDType>;
  readonly pages: Tensor<"i32">;
  readonly queryLengths: Tensor<"i32">;
  readonly keyLengths: Tensor<"i32">;
}

/** The memory of a layer: elements or codes [pages, page size, heads, width]. */
interface LayerCache {
  readonly k: Tensor<WideDType | CacheFormat>;
  readonly v: Tensor<WideDType | CacheFormat>;
}

/** The tensors of a step, one element or row for each sequence. */
interface StepTensors extends Omit<CachedKeys, "k" | "v"> {
  readonly startPositions: Tensor<"i32">;
  readonly cuSeqlens: Tensor<"i32">;
}

/**
 * Caches keys and values of attention layers, so that a model reads each position once. Before each forward pass, `preStep` says
 * which sequences the batch has and how many new positions each sequence has. Layers append the keys and values of these
 * positions, each under its `layerNumber`, and attend to all cached positions. It is used inside `noGrad`.
 *
 * @throws `ArgumentError` for an invalid option value, or pages that do not divide `maxSequenceLength`, `DTypeError` for a dtype
 * other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class InferenceParams {
  static {
    guardReceivers(this);
  }

  readonly #options: InferenceParamsOptions;
  readonly #table: PageTable;
  readonly #caches = new Map<number, LayerCache>();
  #tensors: StepTensors | undefined;
  #isDisposed = false;

  /** @internal Whether `x` is an `InferenceParams`, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #table in x && inherits(this, x);
  }

  constructor(
    /** The backend of the cache. */
    readonly backend: Backend,
    /** The largest number of sequences of a batch. */
    readonly maxBatchSize: number,
    /** The largest number of positions of a sequence. */
    readonly maxSequenceLength: number,
    options: InferenceParamsOptions,
  ) {
    requireBackend("InferenceParams", backend);
    this.#options = checkInferenceOptions(options);
    size("InferenceParams", "maxBatchSize", maxBatchSize);
    size("InferenceParams", "maxSequenceLength", maxSequenceLength);
    const { isPaged = false, pageSize, totalNumPages } = this.#options;
    if (isPaged !== (pageSize !== undefined) || (totalNumPages !== undefined && !isPaged))
      throw new ArgumentError(
        `InferenceParams: isPaged is ${isPaged}, pageSize ${pageSize} and totalNumPages ${totalNumPages}; give pageSize with isPaged: true only`,
      );
    const length = pageSize ?? maxSequenceLength;
    if (maxSequenceLength % length !== 0)
      throw new ArgumentError(
        `InferenceParams: maxSequenceLength ${maxSequenceLength} is not a multiple of pageSize ${length}; give one that is`,
      );
    const perSequence = maxSequenceLength / length;
    this.#table = new PageTable(totalNumPages ?? maxBatchSize * perSequence, length, perSequence);
  }

  /** The number of cached positions of each sequence of the current batch, after its forward pass. A copy. */
  get sequences(): ReadonlyMap<SequenceId, number> {
    return new Map([...this.#table.sequences].map(([id, { length }]) => [id, length]));
  }

  /**
   * Begins a step: row i of the batch is the i-th entry of `steps`, a map from sequences to their numbers of new positions.
   * Sequences that are not in the map are removed from the cache.
   *
   * @throws `ArgumentError` for no sequence, too many sequences or positions, or a number that is not an integer from 0. In each
   * case nothing has changed. `DisposedError` after `dispose()`.
   */
  preStep(steps: ReadonlyMap<SequenceId, number>): void {
    this.#requireLive();
    const entries = entriesOfMap(steps) as [SequenceId, number][] | undefined;
    if (!entries)
      throw new ArgumentError(
        `preStep: steps is ${describe(steps)}; it must be a Map from sequences to numbers of positions`,
      );
    if (entries.length === 0)
      throw new ArgumentError(
        "preStep: steps has no sequence; give one or more, or call reset() to forget all",
      );
    if (entries.length > this.maxBatchSize)
      throw new ArgumentError(
        `preStep: steps has ${entries.length} sequences, and maxBatchSize is ${this.maxBatchSize}; give fewer`,
      );
    this.#table.step(entries, this.maxSequenceLength);
    this.#releaseTensors();
    const rows = [...this.#table.sequences.values()];
    const i32 = (values: readonly number[], shape = [values.length]): Tensor<"i32"> =>
      persistent(tensor(this.backend, Int32Array.from(values), shape, "i32"));
    this.#tensors = {
      startPositions: i32(rows.map(({ start }) => start)),
      cuSeqlens: i32([0, ...spansOf(rows.map(({ start, length }) => length - start)).map(({ end }) => end)]),
      queryLengths: i32(rows.map(({ start, length }) => length - start)),
      keyLengths: i32(rows.map(({ length }) => length)),
      pages: i32(this.#table.rows(), [rows.length, this.#table.perSequence]),
    };
  }

  /** @internal For rows of sequences that follow each other: the first new row of each, and the end of the last, i32 [B + 1]. */
  get cuSeqlens(): Tensor<"i32"> {
    return this.#stepTensors().cuSeqlens;
  }

  /**
   * @internal Moves rows [T, H, D] of sequences that follow each other to [B, S, H, D], where S is the largest number of new
   * positions. Throws `ShapeError` unless there are as many rows as new positions.
   */
  padded<D extends WideDType>(x: Tensor<D>): Tensor<D> {
    const counts = this.#counts();
    const [rows, ...rest] = x.shape as readonly [number, number, number];
    const total = counts.reduce((sum, count) => sum + count, 0);
    if (rows !== total)
      throw new ShapeError(
        `InferenceParams: the input has ${rows} rows; the step has ${total} new positions`,
      );
    const [length, unit] = [Math.max(0, ...counts), elementCount(rest)];
    const out = zeros(this.backend, x.dtype, [counts.length, length, ...rest]);
    for (const { row, first, count } of spansOf(counts))
      out.paste(x.slice(first * unit, [count, ...rest]), row * length * unit);
    return out;
  }

  /** @internal Inverts `padded`. */
  packed<D extends WideDType>(x: Tensor<D>): Tensor<D> {
    const counts = this.#counts();
    const [, length, ...rest] = x.shape as readonly [number, number, number, number];
    const unit = elementCount(rest);
    const total = counts.reduce((sum, count) => sum + count, 0);
    const out = zeros(this.backend, x.dtype, [total, ...rest]);
    for (const { row, first, count } of spansOf(counts))
      out.paste(x.slice(row * length * unit, [count, ...rest]), first * unit);
    return out;
  }

  /** @internal The number of new positions of each sequence in this step. */
  get newPositions(): readonly number[] {
    return this.#counts();
  }

  #counts(): readonly number[] {
    this.#stepTensors();
    return [...this.#table.sequences.values()].map(({ start, length }) => length - start);
  }

  /** @internal The position of each sequence's first new row. */
  get startPositions(): Tensor<"i32"> {
    return this.#stepTensors().startPositions;
  }

  /**
   * @internal Appends keys and values [B, S, G, D] of a layer. The first rows of each sequence are the new positions; further
   * rows are padding.
   */
  append(layer: number, k: Tensor<WideDType>, v: Tensor<WideDType>): CachedKeys {
    const { startPositions: _, cuSeqlens: __, ...tensors } = this.#stepTensors();
    this.#requireFit(k, v);
    const cache = this.#cacheOf(layer);
    return {
      k: this.#appended(layer, "k", k, cache.k),
      v: this.#appended(layer, "v", v, cache.v),
      ...tensors,
    };
  }

  /** Appends rows to the keys or values of a layer, and returns all cached rows. */
  #appended(
    layer: number,
    name: "k" | "v",
    x: Tensor<WideDType>,
    target: Tensor<WideDType | CacheFormat>,
  ): Tensor<WideDType> {
    const { format, dtype = "bf16", kScales, vScales } = this.#options;
    const scale = (name === "k" ? kScales : vScales)?.[layer - 1] ?? 1;
    const source: Tensor<WideDType | CacheFormat> = format ? cacheCodes(x, format, scale) : x;
    const [, paddedLength, heads, width] = source.shape as readonly [number, number, number, number];
    for (const { row, start, count, slot } of this.#table.runs())
      target.paste(
        source.slice((row * paddedLength + start) * heads * width, [count, heads, width]),
        slot * heads * width,
      );
    if (!format) return target as Tensor<WideDType>;
    source.dispose();
    return cacheValues(target as Tensor<CacheFormat>, scale, dtype);
  }

  #requireFit(k: Tensor, v: Tensor): void {
    const { numHeadsKv, headDimK, headDimV = headDimK, dtype = "bf16" } = this.#options;
    const rows = [...this.#table.sequences.values()];
    const longest = Math.max(0, ...rows.map(({ start, length }) => length - start));
    for (const [name, x, width] of [
      ["k", k, headDimK],
      ["v", v, headDimV],
    ] as const) {
      const [batch, length, heads, depth] = x.shape;
      if (x.dtype === dtype && batch === rows.length && heads === numHeadsKv && depth === width) {
        if ((length as number) >= longest) continue;
      }
      throw new ArgumentError(
        `InferenceParams: ${name} is ${x.dtype} [${x.shape}] as bshd; the step needs ${dtype} [${rows.length}, ${longest} or more, ${numHeadsKv}, ${width}]`,
      );
    }
  }

  #cacheOf(layer: number): LayerCache {
    const layerCache = this.#caches.get(layer);
    if (layerCache) return layerCache;
    const { numHeadsKv, headDimK, headDimV = headDimK, dtype = "bf16", format = dtype } = this.#options;
    const { pageCount, pageSize } = this.#table;
    const make = (width: number) =>
      persistent(zeros(this.backend, format, [pageCount, pageSize, numHeadsKv, width]));
    const cache = { k: make(headDimK), v: make(headDimV) };
    this.#caches.set(layer, cache);
    return cache;
  }

  #requireLive(): void {
    if (this.#isDisposed) throw new DisposedError("a cache of keys and values");
  }

  #stepTensors(): StepTensors {
    this.#requireLive();
    if (this.#tensors) return this.#tensors;
    throw new ArgumentError("InferenceParams: no step has begun; call preStep before each forward pass");
  }

  /** Removes all sequences. Memory is kept. */
  reset(): void {
    this.#table.reset();
    this.#releaseTensors();
  }

  #releaseTensors(): void {
    for (const each of Object.values(this.#tensors ?? {})) (each as Tensor).dispose();
    this.#tensors = undefined;
  }

  /** Removes all sequences and frees the memory. */
  dispose(): void {
    this.#isDisposed = true;
    this.reset();
    for (const { k, v } of this.#caches.values()) for (const each of [k, v]) each.dispose();
    this.#caches.clear();
  }

  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Returns the range of each sequence's rows if sequences follow each other. */
function spansOf(counts: readonly number[]) {
  let end = 0;
  return counts.map((count, row) => {
    const start = end;
    end += count;
    return { row, first: start, count, end };
  });
}
