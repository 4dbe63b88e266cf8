/**
 * A dot product step by step, as plain data. The reference sums: the rows of one product are the same numbers, of which row s has
 * the first steps alone and zeros for the rest, which change no bit (datapath.md §2).
 */
import {
  type Backend,
  DATAPATHS,
  type DatapathFamily,
  type DatapathName,
  type DatapathRow,
  type DotAdd,
  decode,
  encode,
  factsOf,
  gemm,
  type ScalarFormat,
  type Tensor,
  tensor,
} from "lockstep";
import { within } from "./backend.js";

/** How a dot product is summed. */
export interface ProductSettings {
  readonly format: ScalarFormat;
  readonly datapath: DatapathFamily;
  readonly splitAccumulator: boolean;
}

/** One product of a step, before and after it is aligned. */
export interface Term {
  readonly k: number;
  readonly x: number;
  readonly w: number;
  readonly product: number;
  /** The exponent by which it is aligned; undefined for a product that is zero. */
  readonly exponent: number | undefined;
  /** The product truncated toward zero to a multiple of the step's unit. */
  readonly kept: number;
}

/** One step of a tensor core. */
export interface Step {
  readonly from: number;
  readonly to: number;
  readonly before: number;
  readonly after: number;
  readonly exact: number;
  /** The largest exponent of a term, and the exponent of the last bit that is kept. */
  readonly largest: number;
  readonly unit: number;
  readonly accumulator: Omit<Term, "k" | "x" | "w">;
  readonly terms: readonly Term[];
}

/** A dot product: its operands, its running sums, and its steps if the datapath has any. */
export interface ProductAnswer {
  readonly plan: DatapathName;
  readonly row: DatapathRow;
  /** The length of the chains that are added to a total in f32; 0 if there is one chain. */
  readonly chains: number;
  readonly x: Float32Array;
  readonly w: Float32Array;
  readonly result: number;
  readonly exact: number;
  /** Every product rounded to f32 and added in f32. */
  readonly fp32: number;
  /** The ends of the steps, and the sum up to there under the datapath, exactly and in f32. */
  readonly ends: readonly number[];
  readonly sums: Float32Array;
  readonly exactSums: Float32Array;
  readonly fp32Sums: Float32Array;
  readonly steps: readonly Step[];
}

/** The length of a step where a datapath is defined by arithmetic. */
const PIECE = 16;

/**
 * Multiplies two vectors, which are first rounded to the format. Throws `UnsupportedError` with a reason for a datapath that does
 * not multiply the format.
 */
export function explainProduct(
  backend: Backend,
  xs: Float32Array,
  ws: Float32Array,
  { format, datapath, splitAccumulator }: ProductSettings,
): ProductAnswer {
  const depth = Math.min(xs.length, ws.length);
  return within(() => {
    const coded = (values: Float32Array, rows: number) =>
      encode(tensor(backend, values, [rows, depth]), { format });
    const w = coded(ws.slice(0, depth), 1);
    const multiply = (family: DatapathFamily, rows: Float32Array, split: boolean) => {
      const x = coded(rows, rows.length / depth);
      const options = { x, w, outDtype: "f32", datapath: family, useSplitAccumulator: split } as const;
      const { out, plan } = gemm(options);
      return { sums: (out as Tensor<"f32">).dataSync(), plan };
    };
    const { plan } = multiply(datapath, xs.slice(0, depth), splitAccumulator);
    const row: DatapathRow = DATAPATHS[plan.datapath];
    const length = row.dotAdd?.step ?? PIECE;
    const ends = Array.from({ length: Math.ceil(depth / length) }, (_, i) =>
      Math.min(depth, (i + 1) * length),
    );
    const prefixes = masked(
      xs,
      ends.map((end) => [0, end]),
      depth,
    );
    const { sums } = multiply(datapath, prefixes, splitAccumulator);
    const [exactSums, fp32Sums] = [
      multiply("exact", prefixes, false).sums,
      multiply("fp32", prefixes, false).sums,
    ];
    const chains = plan.splitAccumulator ? row.promotionInterval : 0;
    const startOf = (end: number) => (chains > 0 ? Math.floor((end - 1) / chains) * chains : 0);
    const own =
      chains > 0
        ? multiply(
            datapath,
            masked(
              xs,
              ends.map((end) => [startOf(end), end]),
              depth,
            ),
            true,
          ).sums
        : sums;
    const operands = { x: valuesIn(coded(xs.slice(0, depth), 1)), w: valuesIn(w) };
    const last = ends.length - 1;
    return {
      plan: plan.datapath,
      row,
      chains,
      ...operands,
      result: sums[last] as number,
      exact: exactSums[last] as number,
      fp32: fp32Sums[last] as number,
      ends,
      sums,
      exactSums,
      fp32Sums,
      steps: row.dotAdd
        ? stepsOf(operands, format, row.dotAdd, ends, (i) => {
            const isContinued = startOf(ends[i] as number) < i * length;
            const before = isContinued ? (own[i - 1] as number) : 0;
            return { before, after: own[i] as number };
          })
        : [],
    };
  });
}

function valuesIn(codes: Tensor): Float32Array {
  return decode(codes).dataSync();
}

/** A row for each range: the values inside of it, and zeros. */
function masked(
  values: Float32Array,
  ranges: readonly (readonly [number, number])[],
  depth: number,
): Float32Array {
  const all = new Float32Array(ranges.length * depth);
  ranges.forEach(([from, to], i) => {
    all.set(values.subarray(from, to), i * depth + from);
  });
  return all;
}

/** The least exponent of a normal f32. */
const LEAST_EXPONENT = -126;

/** floor(log2 |x|), at least `least`. */
function exponentOf(x: number, least: number): number {
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, x);
  return Math.max(((bits.getUint16(0) >> 4) & 0x7ff) - 1023, least);
}

function stepsOf(
  { x, w }: { readonly x: Float32Array; readonly w: Float32Array },
  format: ScalarFormat,
  dotAdd: DotAdd,
  ends: readonly number[],
  sumsOf: (step: number) => { readonly before: number; readonly after: number },
): Step[] {
  const least = Math.log2(factsOf(format).minNormal);
  return ends.map((to, i) => {
    const from = i * dotAdd.step;
    const { before, after } = sumsOf(i);
    const bare = Array.from({ length: to - from }, (_, j) => {
      const [a, b] = [x[from + j] as number, w[from + j] as number];
      const exponent = a !== 0 && b !== 0 ? exponentOf(a, least) + exponentOf(b, least) : undefined;
      return { k: from + j, x: a, w: b, product: a * b, exponent };
    });
    const accumulated = before === 0 ? dotAdd.zeroAccumulator : exponentOf(before, LEAST_EXPONENT);
    const largest = bare.reduce((most, { exponent }) => Math.max(most, exponent ?? most), accumulated);
    const unit = largest - dotAdd.alignBits;
    const kept = (value: number) => Math.trunc(value * 2 ** -unit) * 2 ** unit;
    const exact = bare.reduce((sum, { product }) => sum + product, before);
    return {
      from,
      to,
      before,
      after,
      exact,
      largest,
      unit,
      accumulator: { product: before, exponent: before === 0 ? undefined : accumulated, kept: kept(before) },
      terms: bare.map((term) => ({ ...term, kept: kept(term.product) })),
    };
  });
}
