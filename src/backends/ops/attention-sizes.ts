/** Numbers that follow from the arguments of an attention. */
import type { Tensor } from "../../tensor/tensor.js";
import type { AttentionDropout, AttentionRule } from "./attention.js";

/** The sizes of an attention. */
export interface AttentionSizes {
  /** The number of sequences. */
  readonly batch: number;
  /** The number of heads of queries. */
  readonly heads: number;
  /** The number of heads of keys and values. */
  readonly keyHeads: number;
  /** The rows of q in a sequence; for `thd`, in all sequences. */
  readonly queries: number;
  /** As `queries`, for keys. */
  readonly keys: number;
  /** The number of rows of `lse` in a head is this number times `queries`. */
  readonly statisticBatches: number;
}

/** Returns the sizes of an attention whose tensors have been checked. */
export function attentionSizes({
  q,
  k,
  layout,
  batch,
  pages,
}: Pick<AttentionRule, "q" | "k" | "layout" | "batch"> & {
  readonly pages?: Tensor | undefined;
}): AttentionSizes {
  const rows = layout === "bshd" ? 1 : 0;
  const [queries, ownKeys] = [q.shape[rows] as number, k.shape[rows] as number];
  const keys = pages ? (pages.shape[1] as number) * (k.shape[1] as number) : ownKeys;
  const [heads, keyHeads] = [q.shape.at(-2) as number, k.shape.at(-2) as number];
  return { batch, heads, keyHeads, queries, keys, statisticBatches: layout === "thd" ? 1 : batch };
}

/** Returns the 16-bit threshold of dropout (0 for none), and the factor of the elements that are kept (numerics.md §10.5). */
export function dropoutOf(dropout: Pick<AttentionDropout, "probability"> | undefined): {
  threshold: number;
  keep: number;
} {
  const threshold = Math.min(65535, Math.floor((dropout?.probability ?? 0) * 65536 + 0.5));
  return { threshold, keep: Math.fround(65536 / (65536 - threshold)) };
}
