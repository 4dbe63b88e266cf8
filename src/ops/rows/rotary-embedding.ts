/** Rotary position embeddings of queries and keys (numerics.md §10.7). */
import { ATTENTION_LAYOUTS, type AttentionLayout } from "../../backends/ops/attention.js";
import { ArgumentError, ShapeError } from "../../errors.js";
import { boolean, oneOf, optionsOf } from "../../options.js";
import { requireF32, requireI32, requireWide, wideDType } from "../../tensor/require.js";
import { sameShape, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, compute, requireShape } from "../execute.js";

/** Options of `rotaryEmbedding` that say which elements are rotated and by which angles. All fields are optional. */
export interface RotaryOptions {
  /** The order of the dimensions of x. Default "bshd". */
  readonly layout?: AttentionLayout | undefined;
  /**
   * Whether element 2i is rotated with element 2i + 1. Otherwise element i is rotated with element i + R / 2, where R is the
   * number of rotated elements. Default false.
   */
  readonly interleaved?: boolean | undefined;
  /** The position of the first row of each sequence, i32 [B]. Default: every sequence starts at position 0. */
  readonly startPositions?: Tensor | undefined;
  /** For "thd": the row at which each sequence begins, and the end of the last one, i32 [B + 1]. */
  readonly cuSeqlens?: Tensor | undefined;
}

/** Options of `rotaryEmbedding`. All fields are optional. */
export interface RotaryEmbeddingOptions extends RotaryOptions {
  /** Whether to rotate by the negative angles, which is the gradient. Default false. */
  readonly inverse?: boolean | undefined;
  /** The dtype of the result. Default: the dtype of x. */
  readonly outDtype?: WideDType | undefined;
}

/** @shared The checks of `RotaryOptions`. */
export const ROTARY_OPTIONS = {
  layout: oneOf(ATTENTION_LAYOUTS),
  interleaved: boolean,
  startPositions: requireI32,
  cuSeqlens: requireI32,
} as const;

const checkOptions = optionsOf<RotaryEmbeddingOptions>({
  ...ROTARY_OPTIONS,
  inverse: boolean,
  outDtype: wideDType,
});

/**
 * Rotates pairs of elements of each head of x by the angle of its position. x is [B, S, H, D] or [S, B, H, D], or [T, H, D] for
 * "thd". cos and sin [P, R / 2] have the cosine and sine of each position and pair; the first R elements of a head are rotated
 * and the others are copied. The row s of sequence b has the position startPositions[b] + s. A pair (a, b) becomes
 * (a cos - b sin, b cos + a sin) in f32, rounded once to `outDtype`; the order of operations is in numerics.md §10.7.
 *
 * The rotated elements are NaN if the position is outside 0..P-1. A row of "thd" that belongs to no sequence becomes 0. The bits
 * of a row depend on nothing else in the call.
 *
 * @throws `DTypeError` for x that is not f32, bf16 or f16, cos or sin that is not f32, or positions that are not i32,
 * `ShapeError` for tensors whose shapes do not fit, `ArgumentError` for an invalid option value, options that do not fit the
 * layout and tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function rotaryEmbedding(
  x: Tensor,
  cos: Tensor,
  sin: Tensor,
  options: RotaryEmbeddingOptions = {},
): Tensor<WideDType> {
  const source = requireWide("rotaryEmbedding", "x", x);
  const tables = {
    cos: requireF32("rotaryEmbedding", "cos", cos),
    sin: requireF32("rotaryEmbedding", "sin", sin),
  };
  const ownOptions = checkOptions("rotaryEmbedding", options);
  const { layout = "bshd", interleaved = false, inverse = false, outDtype } = ownOptions;
  const startPositions = ownOptions.startPositions as Tensor<"i32"> | undefined;
  const cuSeqlens = ownOptions.cuSeqlens as Tensor<"i32"> | undefined;
  requireShapes(source, tables, layout);
  requireSequences(source, layout, { startPositions, cuSeqlens });
  const backend = commonBackend("rotaryEmbedding", x, cos, sin, startPositions, cuSeqlens);
  const out = new Tensor(backend, outDtype ?? source.dtype, x.shape);
  const rule = { layout, interleaved, inverse, startPositions, cuSeqlens };
  return compute("rotaryEmbedding", { x: source, ...tables, ...rule, out });
}

/**
 * Throws `ShapeError` unless x has as many dimensions as the layout, and each head has at least as many elements as are rotated.
 */
function requireShapes(
  { shape }: Tensor,
  { cos, sin }: { readonly cos: Tensor; readonly sin: Tensor },
  layout: AttentionLayout,
): void {
  const rank = layout === "thd" ? 3 : 4;
  if (shape.length !== rank)
    throw new ShapeError(
      `rotaryEmbedding: x is [${shape}]; it must have ${rank} dimensions in layout "${layout}"`,
    );
  if (cos.shape.length !== 2)
    throw new ShapeError(`rotaryEmbedding: cos is [${cos.shape}]; it must be [positions, pairs]`);
  requireShape("rotaryEmbedding", "sin", sin, cos.shape);
  const [pairs, width] = [cos.shape[1], shape.at(-1)] as [number, number];
  if (2 * pairs > width)
    throw new ShapeError(
      `rotaryEmbedding: cos is [${cos.shape}] and x [${shape}]; ${pairs} pairs are more than a head of ${width} elements has`,
    );
}

/** Throws unless the tensors that describe sequences fit the layout and each other. */
function requireSequences(
  { shape }: Tensor,
  layout: AttentionLayout,
  tensors: Pick<RotaryOptions, "startPositions" | "cuSeqlens">,
): void {
  const { startPositions, cuSeqlens } = tensors;
  if ((layout === "thd") !== (cuSeqlens !== undefined))
    throw new ArgumentError(
      `rotaryEmbedding: the layout is "${layout}" and cuSeqlens is ${cuSeqlens ? "given; it goes" : "not given; it is needed"} with "thd"`,
    );
  if (cuSeqlens && (cuSeqlens.shape.length !== 1 || cuSeqlens.size === 0))
    throw new ShapeError(`rotaryEmbedding: cuSeqlens is [${cuSeqlens.shape}]; it must be [sequences + 1]`);
  const batch = cuSeqlens ? cuSeqlens.size - 1 : (shape[layout === "bshd" ? 0 : 1] as number);
  if (startPositions && !sameShape(startPositions.shape, [batch]))
    throw new ShapeError(
      `rotaryEmbedding: startPositions is [${startPositions.shape}]; it must have a position for each sequence, [${batch}]`,
    );
}
