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
  /**
   * The arguments that the calls of both backends take. From it, `npm run generate` writes both lowerings and the call of the
   * addon.
   */
  readonly lowering?: DeclaredLowering<A>;
}

/**
 * The calls of an operation that has one function of the same name in assembly/ and one launcher in kernels/. The function takes
 * a range of indices in place of the number `each`.
 */
export interface DeclaredLowering<A> {
  /** The arguments of both calls, in the order of the fields of the kernel's parameters. */
  readonly takes: { readonly [name: string]: Taken<A> };
  /** The number of items that the threads divide among themselves. */
  readonly each: string;
  /** The approximate cost of one item, in units of copying an element. */
  readonly weight: string;
}

/**
 * One argument of a call: the rows, columns or size of a tensor; the kind of a number that is an argument of its name; or the
 * element type of a tensor, and the number of its elements, a product of numbers. The name of an optional tensor ends with "?".
 */
type Taken<A> =
  | `${keyof A & string}.${"rows" | "columns" | "size"}`
  | "count"
  | "float"
  | "int"
  | "flag"
  | readonly [element: "wide" | "f32" | "i32" | "u32", elements: string];

export const X = { x: "checked" } as const;
export const GRAD = { grad: "checked" } as const;
export const OUT = { writes: { out: "wide" }, reads: X } as const;
export const OUT_OF_GRAD = { writes: { out: "wide" }, reads: { ...GRAD, ...X } } as const;
export const AS_X = { writes: { out: "as x" }, reads: X } as const;
export const SCALAR = { writes: { out: "scalar" }, reads: X } as const;
