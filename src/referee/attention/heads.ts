/** The operands of PyTorch's attention operators, head by head, and the products of their kernels. */
import type { Backend } from "../../backends/backend.js";
import { ShapeError } from "../../errors.js";
import type { FileDType } from "../../io/dtypes.js";
import type { Call } from "../call.js";
import { requireWideDType, roundedValue, roundThrough, toFloat32 } from "../conversions.js";
import { NotModelled } from "../not-modelled.js";
import type { Value } from "../value.js";
import { type Line, type TensorCore, toLines } from "./tensor-core.js";

/** An attention of queries [batch, heads, queries, width], keys and values [batch, keyHeads, keys, width]. */
export interface Attention {
  readonly backend: Backend;
  readonly dtype: FileDType;
  readonly batch: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly queries: number;
  readonly keys: number;
  readonly width: number;
  /** The factor of the scores, by default the f64 number 1 / √width. */
  readonly scale: number;
  readonly isCausal: boolean;
}

function finiteValues(call: Call, name: string): Float32Array {
  const values = toFloat32(call.backend, call.tensor(name));
  if (values.every(Number.isFinite)) return values;
  throw new NotModelled(`a ${name} with infinities or NaN`);
}

/** The shapes and the options of a call. Throws `NotModelled` for dropout, and for operands that the kernels do not take. */
export function readAttention(call: Call): Attention {
  const [query, key, value] = [call.tensor("query"), call.tensor("key"), call.tensor("value")];
  const [batch = 0, heads = 0, queries = 0, width = 0] = query.shape;
  const [, keyHeads = 0, keys = 0] = key.shape;
  for (const { shape } of [query, key, value])
    if (shape.length !== 4 || shape[0] !== batch || shape.includes(0))
      throw new ShapeError(`operands [${query.shape}], [${key.shape}] and [${value.shape}]`);
  if (requireWideDType(query) === "f32" || key.dtype !== query.dtype || value.dtype !== query.dtype)
    throw new NotModelled(`attention of ${query.dtype}, ${key.dtype} and ${value.dtype}`);
  if (`${key.shape}` !== `${value.shape}` || key.shape[3] !== width || heads % keyHeads !== 0)
    throw new NotModelled(`keys [${key.shape}] and values [${value.shape}] for queries [${query.shape}]`);
  call.requireDefault("dropout_p", 0);
  const { backend } = call;
  return {
    backend,
    dtype: query.dtype,
    batch,
    heads,
    keyHeads,
    queries,
    keys,
    width,
    scale: call.number("scale", 1 / Math.sqrt(width)),
    isCausal: call.boolean("is_causal", false),
  };
}

/** The smallest exponent by which factors of a dtype are aligned. */
const minExponent = (dtype: FileDType): number => (dtype === "F16" ? -14 : -126);

/** The tiling of an attention kernel: the number of keys in a block, and the tensor core's instruction. */
export interface Tiling {
  readonly core: TensorCore;
  /** The number of keys of a block. Blocks begin at multiples of this number. */
  readonly blockKeys: number;
}

/** The elements of the operands of one head: queries [queries][width], keys and values [keys][width]. */
interface HeadOperands {
  readonly attention: Attention;
  readonly tiling: Tiling;
  readonly queries: Float32Array;
  readonly keys: Float32Array;
  readonly values: Float32Array;
}

/** The products of one head of queries. */
export class Head {
  readonly blockKeys: number;
  readonly #attention: Attention;
  readonly #core: TensorCore;
  readonly #queries: readonly Line[];
  readonly #keys: readonly Line[];
  /** The values of each block, one line of `blockKeys` for each column. Values beyond the last key are zeros. */
  readonly #values: readonly (readonly Line[])[];

  constructor({ attention, tiling: { core, blockKeys }, queries, keys, values }: HeadOperands) {
    const { dtype, width } = attention;
    const minimum = minExponent(dtype);
    this.#attention = attention;
    this.#core = core;
    this.blockKeys = blockKeys;
    this.#queries = toLines(queries, width, minimum);
    this.#keys = toLines(keys, width, minimum);
    this.#values = Array.from({ length: Math.ceil(attention.keys / blockKeys) }, (_, block) => {
      const columns = new Float32Array(width * blockKeys);
      const first = block * blockKeys;
      for (let key = first; key < Math.min(first + blockKeys, attention.keys); key++)
        for (let c = 0; c < width; c++)
          columns[c * blockKeys + key - first] = values[key * width + c] as number;
      return toLines(columns, blockKeys, minimum);
    });
  }

  /**
   * The scores of the rows from `firstRow` on with the keys of a block, [rows][blockKeys]. The score is -infinity for keys that
   * are not among the first `visible(row)` keys.
   */
  scores(block: number, firstRow: number, visible: (row: number) => number): Float32Array {
    const { blockKeys } = this;
    const scores = new Float32Array((this.#queries.length - firstRow) * blockKeys).fill(
      Number.NEGATIVE_INFINITY,
    );
    for (let row = firstRow; row < this.#queries.length; row++) {
      const query = this.#queries[row] as Line;
      const first = block * blockKeys;
      const start = (row - firstRow) * blockKeys - first;
      for (let key = first; key < Math.min(first + blockKeys, visible(row)); key++) {
        const score = this.#core.chain(0, query, this.#keys[key] as Line);
        if (!Number.isFinite(score)) throw new NotModelled("a score that is infinite");
        scores[start + key] = score;
      }
    }
    return scores;
  }

  /**
   * Multiplies the sums of the rows from `firstRow` on, [row][width], by the rows' factors. Then adds the products of the rows'
   * probabilities, [rows][blockKeys], with the values of a block. Probabilities are rounded to the dtype first.
   */
  accumulate(
    sums: Float32Array,
    {
      block,
      firstRow,
      probabilities,
      factors,
    }: {
      readonly block: number;
      readonly firstRow: number;
      readonly probabilities: Float32Array;
      readonly factors: Float32Array;
    },
  ): void {
    const { backend, dtype, width } = this.#attention;
    const roundedProbabilities = roundThrough(backend, dtype, probabilities);
    const columns = this.#values[block] as readonly Line[];
    for (const [i, line] of toLines(roundedProbabilities, this.blockKeys, minExponent(dtype)).entries()) {
      const factor = factors[i] as number;
      const start = (firstRow + i) * width;
      for (let c = 0; c < width; c++)
        sums[start + c] = this.#core.chain(
          Math.fround((sums[start + c] as number) * factor),
          line,
          columns[c] as Line,
        );
    }
  }
}

/** The results of a head, or of one split of a head. */
export interface HeadResults {
  /** [rows][width]. */
  readonly outputs: Float32Array;
  /** The logarithm of the sum of each row. */
  readonly logSums: Float32Array;
}

/**
 * Computes each head of queries of all sequences. Head h of the queries uses head floor(h · keyHeads / heads) of the keys.
 * Returns the output, rounded to the dtype, and the logarithms of the sums, `logRows` per head. Logarithms beyond the queries are
 * infinities.
 */
export function computeHeads(
  call: Call,
  attention: Attention,
  tiling: Tiling,
  logRows: number,
  compute: (head: Head) => HeadResults,
): { readonly out: Value; readonly logSums: Float32Array } {
  const { backend, dtype, batch, heads, keyHeads, queries, keys, width } = attention;
  const [query, key, value] = ["query", "key", "value"].map((name) => finiteValues(call, name)) as [
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const slice = (x: Float32Array, rows: number, index: number): Float32Array =>
    x.subarray(index * rows * width, (index + 1) * rows * width);
  const outputs = new Float32Array(batch * heads * queries * width);
  const logSums = new Float32Array(batch * heads * logRows).fill(Number.POSITIVE_INFINITY);
  for (let index = 0; index < batch * heads; index++) {
    const keyIndex = Math.floor(index / (heads / keyHeads));
    const results = compute(
      new Head({
        attention,
        tiling,
        queries: slice(query, queries, index),
        keys: slice(key, keys, keyIndex),
        values: slice(value, keys, keyIndex),
      }),
    );
    outputs.set(results.outputs, index * queries * width);
    logSums.set(results.logSums.subarray(0, logRows), index * logRows);
  }
  return { out: roundedValue(backend, dtype, [batch, heads, queries, width], outputs), logSums };
}

/** The maximum width of a head in kernels that require one head of keys for each head of queries. */
const MAX_WIDTH = 128;

/** Throws `NotModelled` for heads wider than 128 elements, and for grouped heads. */
export function requirePlainHeads({ width, heads, keyHeads }: Attention): void {
  if (width > MAX_WIDTH || heads !== keyHeads)
    throw new NotModelled(`heads of ${width} elements, ${heads} of queries and ${keyHeads} of keys`);
}

/** Whether the width of the heads was compared, and queries and keys have the same number of heads. */
export function hasComparedHeads({ heads, keyHeads, width }: Attention): boolean {
  return width % 32 === 0 && width <= 128 && heads === keyHeads;
}
