/** The loop over blocks of keys, which all attention kernels share, and the rules in which the kernels differ. */
import type { SpecialFunctionName } from "../../formats/special-functions.js";
import { applyMath } from "../float32.js";
import type { Attention, Head } from "./heads.js";

/** The rules by which a kernel computes the rows of a softmax. All functions take and return f32 numbers. */
export interface RowRules {
  /** Scales a score for the comparison with the maximum. */
  scale(score: number): number;
  /** The exponent of the probability of a scaled score, where `maximum` is the largest scaled score so far. */
  exponent(scaledScore: number, maximum: number): number;
  /** The exponent of the factor for earlier sums and outputs when the maximum changes from `previous` to `maximum`. */
  change(previous: number, maximum: number): number;
  readonly exponential: SpecialFunctionName;
  /** The number of partial sums of a row. */
  readonly lanes: number;
  /** Multiplies the partial sums of a row by a factor and adds the probabilities of a block. */
  addRow(sums: Float32Array, factor: number, probabilities: Float32Array): void;
}

/** The rows of a head after all blocks. */
export interface Rows {
  /** The largest scaled score of each row, -infinity for a row that sees no key. */
  readonly maxima: Float32Array;
  /** The partial sums, [rows][lanes]. */
  readonly sums: Float32Array;
  /** The outputs before they are divided by the sums, [rows][width]. */
  readonly outputs: Float32Array;
}

/**
 * The blocks of keys in the order in which they are added, and the number of keys that a row sees. No row sees more keys than the
 * next row.
 */
export interface Blocks {
  readonly order: readonly number[];
  visible(row: number): number;
}

/** The blocks of all keys in ascending order. */
export function ascendingBlocks({ keys }: Attention, blockKeys: number): readonly number[] {
  return Array.from({ length: Math.ceil(keys / blockKeys) }, (_, block) => block);
}

/** The number of keys that a row sees. The first row of a causal attention sees one key. */
export function keysUpToRow({ keys, isCausal }: Attention): (row: number) => number {
  return isCausal ? (row) => Math.min(keys, row + 1) : () => keys;
}

/** The first row that sees a key of a block, or `rows` if there is none. */
function firstVisibleRow(rows: number, firstKey: number, visible: Blocks["visible"]): number {
  let row = 0;
  while (row < rows && visible(row) <= firstKey) row++;
  return row;
}

/**
 * Adds the blocks to the rows of a head. In each block, m' is the largest of m and of the scaled scores z. The sums and the
 * outputs are multiplied by f = exp2(change(m, m')). With p = exp2(exponent(z, m')), p is added to the sums, and p times the
 * values to the outputs.
 */
export function addBlocks(
  { backend, queries, width }: Attention,
  head: Head,
  rules: RowRules,
  { order, visible }: Blocks,
): Rows {
  const { blockKeys } = head;
  const { lanes } = rules;
  const maxima = new Float32Array(queries).fill(Number.NEGATIVE_INFINITY);
  const sums = new Float32Array(queries * lanes);
  const outputs = new Float32Array(queries * width);
  for (const block of order) {
    const firstRow = firstVisibleRow(queries, block * blockKeys, visible);
    const exponents = head.scores(block, firstRow, visible);
    const changes = maxima.slice(firstRow).map((previous, i) => {
      const line = exponents.subarray(i * blockKeys, (i + 1) * blockKeys);
      for (let k = 0; k < blockKeys; k++) line[k] = rules.scale(line[k] as number);
      const maximum = line.reduce((a, b) => Math.max(a, b), previous);
      for (let k = 0; k < blockKeys; k++) line[k] = rules.exponent(line[k] as number, maximum);
      maxima[firstRow + i] = maximum;
      return rules.change(previous, maximum);
    });
    const factors = applyMath(backend, rules.exponential, changes);
    const probabilities = applyMath(backend, rules.exponential, exponents);
    for (const [i, factor] of factors.entries()) {
      const row = firstRow + i;
      const line = probabilities.subarray(i * blockKeys, (i + 1) * blockKeys);
      rules.addRow(sums.subarray(row * lanes, (row + 1) * lanes), factor, line);
    }
    head.accumulate(outputs, { block, firstRow, probabilities, factors });
  }
  return { maxima, sums, outputs };
}

/** Multiplies each row of outputs by the row's factor. */
export function scaleRows(outputs: Float32Array, width: number, factors: Float32Array): Float32Array {
  return outputs.map((output, i) => output * (factors[Math.floor(i / width)] as number));
}
