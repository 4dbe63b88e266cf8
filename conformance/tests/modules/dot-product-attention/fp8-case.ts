/** Cases of FP8 attention: a module under a recipe, and the same attention in plain numbers. */
import type { Backend } from "../../../../src/backends/backend.js";
import type { AttentionMaskType } from "../../../../src/modules/attention/masks.js";
import type { AttentionCall, DotProductAttentionOptions } from "../../../../src/modules/attention/options.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import { MXFP8BlockScaling } from "../../../../src/recipes/block-scaled.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import type { StandardRecipe } from "../../../../src/recipes/recipe.js";
import { Variable } from "../../../../src/tape/variable.js";
import type { Shape } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import type { AttentionRecipe } from "../../../oracle/training/attention-scales.js";
import type { Matrix } from "../../../oracle/training/matrix.js";
import type { QuantizedTask } from "../../../oracle/training/quantized-attention.js";
import { MASKS, waves } from "../attention/drawn.js";

export const [HEADS, BATCH, SEED] = [6, 2, 9n];
const QUERIES = 5;

const DELAYED = {
  ...{ kind: "delayed", format: "HYBRID", margin: 0, length: 2, algorithm: "max" },
  ...{ scaling: "default", reduces: true },
} as const satisfies AttentionRecipe;

/** Each recipe with the same recipe as plain data. */
export const RECIPES = {
  delayed: [() => new DelayedScaling({ fp8Dpa: true, amaxHistoryLen: 2 }), DELAYED],
  "delayed, E4M3, margin, mostRecent": [
    () =>
      new DelayedScaling({
        fp8Dpa: true,
        format: "E4M3",
        margin: 1,
        amaxHistoryLen: 3,
        amaxComputeAlgo: "mostRecent",
      }),
    { ...DELAYED, format: "E4M3", margin: 1, length: 3, algorithm: "mostRecent" },
  ],
  current: [
    () => new Float8CurrentScaling({ fp8Dpa: true }),
    { kind: "current", format: "HYBRID", pow2: false, amaxEpsilon: 0 },
  ],
  "current, E4M3, powers of two": [
    () => new Float8CurrentScaling({ fp8Dpa: true, format: "E4M3", pow2Scales: true, amaxEpsilon: 0.5 }),
    { kind: "current", format: "E4M3", pow2: true, amaxEpsilon: 0.5 },
  ],
  mxfp8: [() => new MXFP8BlockScaling({ fp8Dpa: true }), { kind: "mxfp8", format: "E4M3", square: false }],
  "mxfp8, HYBRID": [
    () => new MXFP8BlockScaling({ fp8Mha: true, format: "HYBRID" }),
    { kind: "mxfp8", format: "HYBRID", square: false },
  ],
} as const satisfies Record<string, readonly [() => StandardRecipe, AttentionRecipe]>;

export const TABLE = {
  recipe: Object.keys(RECIPES) as (keyof typeof RECIPES)[],
  mask: Object.keys(MASKS) as AttentionMaskType[],
  format: ["sbhd", "bshd", "thd"],
  groups: [6, 2, 1],
  widths: [
    [32, 32],
    [32, 16],
    [64, 16],
  ],
  window: [undefined, [3, 0], [1, 2], [-1, 1], [2, -1]],
  diagonal: [undefined, true, false],
  scale: [undefined, 0.5],
  softmaxType: ["vanilla", "off-by-one", "learnable"],
  drops: [false, true],
  bias: ["no_bias", "pre_scale_bias", "post_scale_bias", "alibi", "alibi with slopes"],
  /** The first dimensions of the bias. */
  biasExtents: [
    [1, HEADS],
    [BATCH, 1],
  ],
  /** Whether the keys have lengths of their own. */
  ownLengths: [false, true],
  /** For "thd": gaps between the sequences of queries, or of queries and keys. */
  gaps: ["none", "queries", "both"],
  checkpoint: [false, true],
  dtype: ["bf16", "f16", "f32"],
} as const;

export type Case = { readonly [K in keyof typeof TABLE]: (typeof TABLE)[K][number] };

/** Makes options that exclude each other agree. */
export function withAllowedOptions(attentionCase: Case): Case {
  const [causal, padding] = MASKS[attentionCase.mask];
  const isThd = attentionCase.format === "thd";
  const mask = isThd && !padding ? (causal ? "padding_causal" : "padding") : attentionCase.mask;
  return {
    ...attentionCase,
    mask,
    // blocks divide the positions and the widths of values
    ...(attentionCase.recipe.startsWith("mxfp8")
      ? { ownLengths: true, widths: [attentionCase.widths[0], 32] as never }
      : {}),
    window:
      causal && attentionCase.window && attentionCase.window[1] > 0
        ? ([attentionCase.window[0], 0] as never)
        : attentionCase.window,
    bias: isThd && attentionCase.bias.endsWith("scale_bias") ? "no_bias" : attentionCase.bias,
  };
}

/** The lengths of two sequences, and for "thd" with gaps their first tokens and the number of all. */
function sequencesOf(attentionCase: Case) {
  const isBlocked = attentionCase.recipe.startsWith("mxfp8");
  const q = { lengths: [3, 2], starts: [1, 5], tokens: 8 };
  if (!attentionCase.ownLengths) return { q, k: q, rows: QUERIES };
  const k = isBlocked
    ? { lengths: [32, 20], starts: [2, 36], tokens: 60 }
    : { lengths: [4, 3], starts: [2, 6], tokens: 9 };
  return { q, k, rows: isBlocked ? 32 : 7 };
}

type Operand = "q" | "k" | "v";

/** The rows of a tensor: [b][i] is the row of position i of sequence b, and the number of all rows. */
export interface Rows {
  readonly rowOf: (b: number, i: number) => number;
  readonly counts: readonly number[];
  readonly length: number;
  readonly shape: (heads: number, width: number) => Shape;
}

/** Where the rows of queries or keys lie. */
export function rowsOf(attentionCase: Case, operand: Operand): Rows {
  const { q, k, rows: keys } = sequencesOf(attentionCase);
  const side = operand === "q" ? q : k;
  if (attentionCase.format === "thd") {
    const hasGaps =
      operand === "q"
        ? attentionCase.gaps !== "none"
        : attentionCase.gaps === "both" || (!attentionCase.ownLengths && attentionCase.gaps !== "none");
    const firsts = hasGaps ? side.starts : [0, side.lengths[0] as number];
    const longest = Math.max(...side.lengths);
    return {
      rowOf: (b, i) => (firsts[b] as number) + i,
      counts: side.lengths,
      length: longest,
      shape: (heads, width) => [side.tokens, heads, width],
    };
  }
  const rows =
    operand === "q"
      ? QUERIES
      : MASKS[attentionCase.mask][1]
        ? keys
        : attentionCase.recipe.startsWith("mxfp8")
          ? 32
          : 7;
  return {
    rowOf: attentionCase.format === "sbhd" ? (b, i) => i * BATCH + b : (b, i) => b * rows + i,
    counts: [rows, rows],
    length: rows,
    shape: (heads, width) =>
      attentionCase.format === "sbhd" ? [rows, BATCH, heads, width] : [BATCH, rows, heads, width],
  };
}

const i32 = (backend: Backend, values: readonly number[]): Tensor<"i32"> =>
  tensor(backend, Int32Array.from(values), [values.length], "i32");

export function valuesIn(x: Tensor): Float32Array {
  return castTo(x as Tensor<"bf16">, "f32").dataSync() as Float32Array;
}

/** The elements of a tensor [rows, heads, width] as [B * heads * length, width], +0 beyond the end of a sequence of "thd". */
export function byHead(x: Tensor, rows: Rows, [heads, width]: readonly [number, number]): Matrix {
  const values = valuesIn(x);
  const data = new Float32Array(BATCH * heads * rows.length * width);
  for (let b = 0; b < BATCH; b++)
    for (let head = 0; head < heads; head++)
      for (let i = 0; i < (rows.counts[b] as number); i++) {
        const from = (rows.rowOf(b, i) * heads + head) * width;
        data.set(values.subarray(from, from + width), ((b * heads + head) * rows.length + i) * width);
      }
  return { data, shape: [BATCH * heads * rows.length, width], dtype: x.dtype as Matrix["dtype"] };
}

/** The inverse of `byHead`: the values of a tensor, +0 in rows of no sequence. */
export function byRow(x: Matrix, rows: Rows, [heads, width]: readonly [number, number]): Float32Array {
  const data = new Float32Array(rows.shape(heads, width).reduce((size, extent) => size * extent, 1));
  for (let b = 0; b < BATCH; b++)
    for (let head = 0; head < heads; head++)
      for (let i = 0; i < (rows.counts[b] as number); i++) {
        const from = ((b * heads + head) * rows.length + i) * width;
        data.set(x.data.subarray(from, from + width), (rows.rowOf(b, i) * heads + head) * width);
      }
  return data;
}

/** The widths of the heads of a tensor. */
export const widthOf = (attentionCase: Case, operand: Operand): number =>
  attentionCase.widths[operand === "v" ? 1 : 0];
/** The number of heads of a tensor. */
export const headsOf = (attentionCase: Case, operand: Operand): number =>
  operand === "q" ? HEADS : attentionCase.groups;

/** The options of the module and of its call, the bias, and the attention in plain numbers without its tensors. */
export function argumentsOf(backend: Backend, attentionCase: Case) {
  const [causal, padding, fixed] = MASKS[attentionCase.mask];
  const isThd = attentionCase.format === "thd";
  const { q, k } = sequencesOf(attentionCase);
  const [queries, keys] = [rowsOf(attentionCase, "q").length, rowsOf(attentionCase, "k").length];
  const biasShape: Shape = [...attentionCase.biasExtents, queries, keys];
  const hasBias = attentionCase.bias.endsWith("scale_bias");
  const bias = hasBias ? new Variable(waves(backend, 7, biasShape, attentionCase.dtype), true) : undefined;
  const slopes = attentionCase.bias === "alibi with slopes" ? [1, 0.5, 2, 0.25, 3, 0] : undefined;
  const hidden = Uint8Array.from({ length: queries * keys }, (_, i) => (i % 3 === 1 || i < keys ? 1 : 0));
  const mask =
    attentionCase.mask === "arbitrary" ? tensor(backend, hidden, [1, 1, queries, keys], "u8") : undefined;
  const boundaries = ([a = 0, b = 0]: readonly number[]): number[] => [0, a, a + b];
  const options: DotProductAttentionOptions = {
    ...{
      attnMaskType: attentionCase.mask,
      windowSize: attentionCase.window,
      bottomRightDiagonal: attentionCase.diagonal,
      qkvFormat: attentionCase.format,
    },
    ...{
      numGqaGroups: attentionCase.groups,
      attentionDropout: attentionCase.drops ? 0.3 : 0,
      softmaxType: attentionCase.softmaxType,
    },
    ...(attentionCase.scale ? { softmaxScale: attentionCase.scale } : {}),
    dtype: attentionCase.dtype,
  };
  const call: AttentionCall = {
    ...{ checkpointCoreAttention: attentionCase.checkpoint, ...(mask ? { attentionMask: mask } : {}) },
    coreAttentionBiasType: attentionCase.bias === "alibi with slopes" ? "alibi" : attentionCase.bias,
    ...(bias ? { coreAttentionBias: bias } : {}),
    ...(slopes ? { alibiSlopes: tensor(backend, Float32Array.from(slopes), [HEADS]) } : {}),
    ...(isThd ? { cuSeqlensQ: i32(backend, boundaries(q.lengths)) } : {}),
    ...(isThd && attentionCase.ownLengths ? { cuSeqlensKv: i32(backend, boundaries(k.lengths)) } : {}),
    ...(isThd && attentionCase.gaps !== "none"
      ? { cuSeqlensQPadded: i32(backend, [...q.starts, q.tokens]) }
      : {}),
    ...(isThd && attentionCase.gaps === "both"
      ? { cuSeqlensKvPadded: i32(backend, [...k.starts, k.tokens]) }
      : {}),
    ...(padding && !isThd ? { seqlensQ: i32(backend, q.lengths) } : {}),
    ...(padding && !isThd && attentionCase.ownLengths ? { seqlensKv: i32(backend, k.lengths) } : {}),
  };
  const countsOf = (b: number) =>
    isThd || padding
      ? ([q.lengths[b], k.lengths[b]] as [number, number])
      : ([queries, keys] as [number, number]);
  const isEnd = (fixed ?? (attentionCase.diagonal === false ? "start" : "end")) === "end";
  const positionOf = (b: number, i: number): number => {
    const [queryCount, keyCount] = countsOf(b);
    return isEnd ? i + keyCount - queryCount : i;
  };
  const [leftWindow, rightWindow] = attentionCase.window ?? [-1, -1];
  const biasValues = bias && valuesIn(bias.tensor);
  const biasAt = (b: number, head: number, i: number, j: number): number => {
    const [items, heads] = attentionCase.biasExtents;
    const plane = (items === 1 ? 0 : b) * heads + (heads === 1 ? 0 : head);
    return (biasValues as Float32Array)[(plane * queries + i) * keys + j] as number;
  };
  const paper = [2 ** -2, 2 ** -4, 2 ** -6, 2 ** -8, 2 ** -1, 2 ** -3];
  const slopeOf = (head: number): number => (slopes ?? paper)[head] as number;
  const task: Omit<QuantizedTask, "q" | "k" | "v"> = {
    ...{ batch: BATCH, heads: HEADS, groups: attentionCase.groups, queries, keys, family: "hopper" },
    scale: attentionCase.scale ?? Math.fround(1 / Math.sqrt(attentionCase.widths[0])),
    isVisible: (b, _h, i, j) => {
      const [queryCount, keyCount] = countsOf(b);
      const position = positionOf(b, i);
      if (i >= queryCount || j >= keyCount) return false;
      if (
        (causal && j > position) ||
        (leftWindow >= 0 && j < position - leftWindow) ||
        (rightWindow >= 0 && j > position + rightWindow)
      )
        return false;
      return !mask || hidden[i * keys + j] === 0;
    },
    ...(bias ? { bias: { elementAt: biasAt, extents: attentionCase.biasExtents } } : {}),
    biasBeforeScale: attentionCase.bias === "pre_scale_bias",
    ...(attentionCase.bias.startsWith("alibi")
      ? { alibi: (b, head, i, j) => Math.fround(slopeOf(head) * -Math.abs(positionOf(b, i) - j)) }
      : {}),
    dropout: attentionCase.drops ? { probability: 0.3, seed: SEED, offset: 4n } : undefined,
  };
  return { options, call, bias, task };
}
