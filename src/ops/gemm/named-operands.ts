/** The two ways to name the operands of a product: x and w, or TransformerEngine's a and b with a layout (numerics.md §6.1). */
import { ArgumentError } from "../../errors.js";
import { type Domain, oneOf } from "../../options.js";

/**
 * Which operands are transposed; the first letter is for a, the second for b. TN is b·aᵀ (forward), NN is b·a (gradient of the
 * input), NT is bᵀ·a (gradient of the weight).
 */
export type GemmLayout = "TN" | "NN" | "NT";

const LAYOUTS: readonly GemmLayout[] = ["TN", "NN", "NT"];

/** The operands of x·wᵀ, the forward product of a linear layer. In `batchedGemm` each has a leading batch dimension. */
export interface InputAndWeight<T> {
  /** The input, [M, K]. In `gemm`, M may be several dimensions. */
  readonly x: T;
  /** The weight, [N, K]. */
  readonly w: T;
  /** Must be left out, because x and w are given. */
  readonly a?: undefined;
  /** Must be left out, because x and w are given. */
  readonly b?: undefined;
  /** Must be left out, because x and w are always multiplied as x·wᵀ. */
  readonly layout?: undefined;
}

/** The operands by their names in TransformerEngine's `general_gemm`. In `batchedGemm` each has a leading batch dimension. */
export interface GeneralOperands<T> {
  /** TransformerEngine's A, the weight in the forward product: [N, K] in layout TN, else [K, N]. */
  readonly a: T;
  /**
   * TransformerEngine's B, the input in the forward product: [M, K], or [K, M] in layout NT. In `gemm`, M may be several
   * dimensions, except in NT.
   */
  readonly b: T;
  /** Which operands are transposed. Default TN. */
  readonly layout?: GemmLayout | undefined;
  /** Must be left out, because a and b are given. */
  readonly x?: undefined;
  /** Must be left out, because a and b are given. */
  readonly w?: undefined;
}

/** The operands of a product by either pair of names. In layout TN, b is x and a is w. */
export type NamedOperands<T> = InputAndWeight<T> | GeneralOperands<T>;

/** @shared The operands as a and b, with the caller's names for error messages. */
export interface Operands<T> {
  readonly a: T;
  readonly b: T;
  readonly layout: GemmLayout;
  readonly names: OperandNames;
}

/** @shared The names by which the caller has given the operands. */
export interface OperandNames {
  readonly a: "a" | "w";
  readonly b: "b" | "x";
}

const GENERAL: OperandNames = { a: "a", b: "b" };
const INPUT_AND_WEIGHT: OperandNames = { a: "w", b: "x" };

/** @shared Returns checks for the options that name operands. `operandsOf` checks that exactly one pair of names is given. */
export function operandRows<D extends Domain>(operand: D) {
  return { x: operand, w: operand, a: operand, b: operand, layout: oneOf(LAYOUTS) };
}

/** @shared Returns the operands as a and b. Throws `ArgumentError` unless exactly one pair of names is given, completely. */
export function operandsOf<T>(user: string, operands: NamedOperands<T>): Operands<T> {
  const { x, w, a, b, layout } = operands;
  if (x === undefined && w === undefined) {
    if (a !== undefined && b !== undefined) return { a, b, layout: layout ?? "TN", names: GENERAL };
  } else if (x !== undefined && w !== undefined) {
    if (a === undefined && b === undefined && layout === undefined)
      return { a: w, b: x, layout: "TN", names: INPUT_AND_WEIGHT };
  }
  throw new ArgumentError(`${user}: ${faultOf(operands)}`);
}

/** Returns why these options do not name the operands of one product. */
function faultOf({
  layout,
  ...operands
}: Partial<Record<"x" | "w" | "a" | "b" | "layout", unknown>>): string {
  const has = (name: "x" | "w" | "a" | "b"): boolean => operands[name] !== undefined;
  const names = (["x", "w", "a", "b"] as const).filter(has);
  const [direct, general] = [has("x") || has("w"), has("a") || has("b")];
  if (direct && general)
    return `${names.join(" and ")} are given; an operand has one name: give x and w alone, or a and b alone`;
  if (direct && layout !== undefined)
    return `layout is ${String(layout)} and x and w are multiplied as x·wᵀ; leave layout out, or give a and b`;
  const [only] = names;
  if (only === undefined) return "x and w are missing; give them, or a and b";
  const other = { x: "w", w: "x", a: "b", b: "a" }[only];
  return `${other} is missing; give it together with ${only}`;
}

/** @shared Returns the product that names and layout stand for, as text for error messages. */
export function productOf({ layout, names }: Pick<Operands<unknown>, "layout" | "names">): string {
  return names === INPUT_AND_WEIGHT ? "x·wᵀ" : `layout ${layout}`;
}
