/** How an operation declares its tensors, and declarations that families share. */

/** The dtypes that a tensor of an operation may have. */
export type TensorRule =
  /** f32, bf16 or f16. */
  | "wide"
  /** bf16 or f16. */
  | "half"
  | "f32"
  /** An f32 tensor of one element. */
  | "scalar"
  | "i32"
  | "u32"
  /** The dtype of the argument `x`. */
  | "as x"
  /** Codes of the format `word`: either `out` holds the codes of `x`, or `x` holds the codes of `out`. */
  | "codes"
  /** f32, bf16, f16, e4m3 or e5m2. */
  | "product"
  /** A copy of a quantized tensor with the argument `spec`: data, scales and amax. */
  | "copy"
  /** Not checked by this table: the function in src/ops has checked it, or it consists of several tensors. */
  | "checked";

/** The rules of arguments, by name. The name of an optional argument ends with "?". */
type Rules<A> = {
  readonly [N in keyof A & string as undefined extends A[N] ? `${N}?` : N]?: TensorRule;
};

/**
 * The tensors of an operation with arguments `A`: which it writes and which it only reads, their dtypes, and which it may write
 * in place.
 */
export interface Tensors<A> {
  readonly writes: Rules<A>;
  /**
   * The tensors that the operation only reads. A tensor that an earlier operation wrote (such as a statistic) has a rule,
   * because kernels do not check its dtype.
   */
  readonly reads: Rules<A>;
  /** The inputs that `out` may be identical to. Each element is read before it is overwritten, and not read afterwards. */
  readonly inPlace?: readonly (keyof A & string)[];
}

export const X = { x: "checked" } as const;
export const GRAD = { grad: "checked" } as const;
export const OUT = { writes: { out: "wide" }, reads: X } as const;
export const OUT_OF_GRAD = { writes: { out: "wide" }, reads: { ...GRAD, ...X } } as const;
export const AS_X = { writes: { out: "as x" }, reads: X } as const;
export const SCALAR = { writes: { out: "scalar" }, reads: X } as const;
