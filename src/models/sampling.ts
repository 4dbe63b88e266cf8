/** Chooses the next token from logits, by the definition in numerics.md §7.18. */
import { ArgumentError, ShapeError } from "../errors.js";
import { castTo } from "../ops/cast/cast.js";
import { softmax } from "../ops/rows/softmax.js";
import { domain, integer, listOf, nested, optionsOf } from "../options.js";
import { checkDraw, type RandomSource, randomWords } from "../random.js";
import { requireWide } from "../tensor/require.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** The options of sampling except the draws. All fields are optional. */
export interface SamplingOptions {
  /** The divisor of logits: 0 chooses the most likely token, without draws, else from 2^-20 to 2^20. Default 0. */
  readonly temperature?: number | undefined;
  /** The number of most likely tokens among which one is drawn. Default: all. */
  readonly topK?: number | undefined;
  /** Draws only among the most likely tokens that together have this share of the probability. Default 1. */
  readonly topP?: number | undefined;
}

/** Options of `sample`. All fields are optional. */
export interface SampleOptions extends SamplingOptions {
  /**
   * The random draw of each row. Required if the temperature is not 0. Give each token another seed or offset, for example the
   * seed of its sequence and its position.
   */
  readonly draws?: readonly RandomSource[] | undefined;
}

/** The largest number of logits of a row. */
const MAX_COLUMNS = 2 ** 20;
/** Probabilities are integers in this unit. */
const UNIT = 2 ** -32;
const EXTREME = 2 ** 20;

const temperature = domain(
  (value) => value === 0 || (typeof value === "number" && value >= 1 / EXTREME && value <= EXTREME),
  "0, or a number from 2^-20 to 2^20",
);
const share = domain(
  (value) => typeof value === "number" && value > 0 && value <= 1,
  "a number above 0 and at most 1",
);

const checkOptions = optionsOf<SampleOptions>({
  temperature,
  topK: integer(1),
  topP: share,
  draws: listOf(nested(checkDraw)),
});

/**
 * Chooses a token for each row of logits [..., V], and returns their indices. With temperature 0 it is the index of the largest
 * logit, the lowest one among equals. Else the probabilities are the softmax of the logits divided by the temperature, on the
 * backend; then `topK` and `topP` leave the most likely tokens, and one of them is drawn. A row's token depends on its own
 * logits and its own draw only, so batches do not change it, and is the same on every backend (numerics.md §7.18).
 *
 * @throws `DTypeError` for logits that are not f32, bf16 or f16, `ShapeError` for a scalar or rows without or with more than
 * 2^20 logits, `ArgumentError` for an argument that is not a tensor, an invalid option, another number of draws than rows, and a
 * row that has a NaN, an infinity among its largest logits, or no number, `DisposedError` for a disposed tensor,
 * `OutOfMemoryError` if memory is not available.
 */
export async function sample(logits: Tensor, options: SampleOptions = {}): Promise<Int32Array> {
  const source = requireWide("sample", "logits", logits);
  const {
    temperature: divisor = 0,
    topK = MAX_COLUMNS,
    topP = 1,
    draws = [],
  } = checkOptions("sample", options);
  const columns = source.shape.at(-1) ?? 0;
  if (columns === 0 || columns > MAX_COLUMNS)
    throw new ShapeError(`sample: logits are [${source.shape}]; rows must have 1 to ${MAX_COLUMNS} logits`);
  const rows = source.size / columns;
  if (divisor !== 0 && draws.length !== rows)
    throw new ArgumentError(
      `sample: there are ${draws.length} draws and ${rows} rows; give options.draws with one for each row`,
    );
  const choices = divisor === 0 ? await onHost(source) : await probabilities(source, divisor);
  return Int32Array.from({ length: rows }, (_, row) => {
    const values = choices.subarray(row * columns, (row + 1) * columns);
    return divisor === 0
      ? indexOfLargest(values, row)
      : drawn(kept(integersOf(values, row), topK, topP), draws[row] as RandomSource);
  });
}

async function onHost(source: Tensor<WideDType>): Promise<Float32Array> {
  if (source.dtype === "f32") return (await source.data()) as Float32Array;
  using values = castTo(source, "f32");
  return (await values.data()) as Float32Array;
}

async function probabilities(source: Tensor, divisor: number): Promise<Float32Array> {
  const scale = Math.fround(1 / Math.fround(divisor));
  using result = softmax(source, { scale, outDtype: "f32" });
  return (await result.data()) as Float32Array;
}

/** The error for a row from which nothing can be chosen. */
function unusable(row: number): ArgumentError {
  return new ArgumentError(
    `sample: row ${row} of logits has a NaN, infinity or no number; look for what made it, such as an overflow`,
  );
}

function indexOfLargest(values: Float32Array, row: number): number {
  let best = 0;
  for (const [index, value] of values.entries()) {
    if (Number.isNaN(value)) throw unusable(row);
    if (value > (values[best] as number)) best = index;
  }
  if (!Number.isFinite(values[best] as number)) throw unusable(row);
  return best;
}

/** The probabilities of a row in units of 2^-32, rounded down. */
function integersOf(values: Float32Array, row: number): Float64Array {
  return Float64Array.from(values, (value) => {
    if (Number.isNaN(value)) throw unusable(row);
    return Math.floor(value / UNIT);
  });
}

/** Sets the integers of all but the most likely tokens to 0. */
function kept(integers: Float64Array, topK: number, topP: number): Float64Array {
  if (topK >= integers.length && topP === 1) return integers;
  // sort by descending integer, then by ascending index; one key, below 2^53, holds both
  const keys = integers
    .map((value, index) => value * MAX_COLUMNS + (MAX_COLUMNS - 1 - index))
    .sort()
    .reverse();
  const candidates = keys.subarray(0, topK);
  const integerOf = (key: number): number => Math.floor(key / MAX_COLUMNS);
  const needed = topP * candidates.reduce((sum, key) => sum + integerOf(key), 0);
  const left = new Float64Array(integers.length);
  let sum = 0;
  for (const key of candidates) {
    if (sum >= needed) break;
    sum += integerOf(key);
    left[MAX_COLUMNS - 1 - (key % MAX_COLUMNS)] = integerOf(key);
  }
  return left;
}

/** Draws an index with probabilities in proportion to the integers. */
function drawn(integers: Float64Array, draw: RandomSource): number {
  const total = integers.reduce((sum, value) => sum + value, 0);
  const [high = 0, low = 0] = randomWords(draw, 2);
  const random = (BigInt(high) << 32n) | BigInt(low);
  const point = Number((random * BigInt(total)) >> 64n);
  let sum = 0;
  return integers.findIndex((value) => {
    sum += value;
    return sum > point;
  });
}
