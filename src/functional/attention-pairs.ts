/** The sequences of an attention, and its visible pairs of queries and keys, as FP8 attention reads them on the host. */
import type { AttentionRule } from "../backends/ops/attention.js";
import { attentionSizes } from "../backends/ops/attention-sizes.js";
import { tensor } from "../ops/create.js";
import { elementCount } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** The rows of one sequence in a tensor. */
export interface SequenceRows {
  readonly start: number;
  readonly count: number;
}

/** The rows of each sequence of queries and of keys. */
export interface AttentionSequences {
  readonly queries: readonly SequenceRows[];
  readonly keys: readonly SequenceRows[];
}

/** Returns where sequences lie, as numerics.md §10.1 says. Waits for the device if lengths are tensors. */
export function splitSequences(rule: AttentionRule): AttentionSequences {
  const { queries, keys } = attentionSizes(rule);
  return {
    queries: sequenceRows(rule, queries, rule.queryLengths, rule.queryStarts),
    keys: sequenceRows(rule, keys, rule.keyLengths, rule.keyStarts),
  };
}

/** Values outside the `rows` rows of a tensor are clamped to it. */
function sequenceRows(
  { layout, batch }: AttentionRule,
  rows: number,
  lengths: Tensor<"i32"> | undefined,
  starts: Tensor<"i32"> | undefined,
): readonly SequenceRows[] {
  const clampRows = (start: number, count: number): SequenceRows => {
    const begin = Math.min(Math.max(start, 0), rows);
    return { start: begin, count: Math.min(Math.max(count, 0), rows - begin) };
  };
  if (!lengths) return Array.from({ length: batch }, () => ({ start: 0, count: rows }));
  const values = lengths.dataSync();
  if (layout !== "thd") return Array.from(values, (count) => clampRows(0, count));
  const firsts = starts ? starts.dataSync() : values;
  return Array.from({ length: batch }, (_, b) =>
    clampRows(firsts[b] as number, (values[b + 1] as number) - (values[b] as number)),
  );
}

/** The bf16 code of 1. */
const BF16_ONE = 0x3f80;

/**
 * Returns 1 for visible pairs and 0 for others, [1 or B, 1 or H, Sq, Sk]; undefined if all pairs are visible. `queries` and
 * `keys` are the numbers of rows of a sequence, padding included. Waits for the device if there is a mask.
 */
export function visiblePairs(
  rule: AttentionRule,
  sequences: AttentionSequences,
  [queries, keys]: readonly [queries: number, keys: number],
): Tensor<"bf16"> | undefined {
  const { mask, q, batch } = rule;
  const [maskBatch = 1, maskHeads = 1] = mask?.shape ?? [];
  const isUniform = !rule.queryLengths && !rule.keyLengths;
  const shape = [isUniform ? maskBatch : batch, maskHeads, queries, keys];
  const hidden = mask?.dataSync();
  const codes = new Uint16Array(elementCount(shape));
  let visible = 0;
  for (let b = 0; b < (shape[0] as number); b++) {
    const counts = [sequences.queries[b]?.count ?? queries, sequences.keys[b]?.count ?? keys] as const;
    for (let h = 0; h < maskHeads; h++)
      for (let i = 0; i < counts[0]; i++) {
        const row = ((b * maskHeads + h) * queries + i) * keys;
        const maskRow = (((maskBatch === 1 ? 0 : b) * maskHeads + h) * queries + i) * keys;
        const [begin, end] = keyWindow(rule, i, counts);
        for (let j = begin; j < end; j++) {
          if (hidden && hidden[maskRow + j] !== 0) continue;
          codes[row + j] = BF16_ONE;
          visible++;
        }
      }
  }
  return visible === codes.length ? undefined : tensor(q.backend, codes, shape, "bf16");
}

/** The position of query i among the keys. */
function queryPosition({ alignsEnd }: AttentionRule, i: number, [queries, keys]: readonly [number, number]) {
  return alignsEnd ? i + keys - queries : i;
}

/** The first key that the window of query i shows, and one more than the last. */
function keyWindow(
  rule: AttentionRule,
  i: number,
  counts: readonly [queries: number, keys: number],
): readonly [begin: number, end: number] {
  const t = queryPosition(rule, i, counts);
  const { left, right } = rule;
  const begin = left < 0 ? 0 : Math.max(0, t - left);
  return [begin, right < 0 ? counts[1] : Math.min(counts[1], Math.max(0, t + right + 1))];
}

/**
 * Returns the bias of ALiBi, f32 [1 or B, H, Sq, Sk]: the slope of the head times -|t - j|, one f32 product. Waits for the
 * device.
 */
export function alibiBias(
  rule: AttentionRule,
  slopes: Tensor<"f32">,
  sequences: AttentionSequences,
  [queries, keys]: readonly [queries: number, keys: number],
): Tensor<"f32"> {
  const values = slopes.dataSync();
  const heads = slopes.shape.at(-1) as number;
  const isUniform = slopes.shape.length === 1 && !(rule.alignsEnd && (rule.queryLengths || rule.keyLengths));
  const items = isUniform ? 1 : rule.batch;
  const bias = new Float32Array(items * heads * queries * keys);
  for (let b = 0; b < items; b++) {
    const counts = [sequences.queries[b]?.count ?? queries, sequences.keys[b]?.count ?? keys] as const;
    for (let h = 0; h < heads; h++) {
      const slope = values[slopes.shape.length === 1 ? h : b * heads + h] as number;
      for (let i = 0; i < queries; i++) {
        const t = queryPosition(rule, i, counts);
        const row = ((b * heads + h) * queries + i) * keys;
        for (let j = 0; j < keys; j++) bias[row + j] = slope * -Math.fround(Math.abs(t - j));
      }
    }
  }
  return tensor(rule.q.backend, bias, [items, heads, queries, keys]);
}
