/** The two ways to name operands: x and w, or TransformerEngine's a and b with a layout (numerics.md §6.1). */
import { ArgumentError } from "../../errors.js";
import { type Domain, oneOf } from "../../options.js";

/** Which operands are transposed, a's letter first: TN is b·aᵀ (fprop), NN b·a (dgrad), NT bᵀ·a (wgrad). */
export type GemmLayout = "TN" | "NN" | "NT";

const LAYOUTS: readonly GemmLayout[] = ["TN", "NN", "NT"];

/** The operands of x·wᵀ, a linear layer's forward product. In `batchedGemm` each has a leading batch dimension. */
export interface InputAndWeight<T> {
  /** The input, [M, K]; in `gemm` M may be several dimensions. */
  readonly x: T;
  /** The weight, [N, K]. */
  readonly w: T;
  /** Belongs to the other pair of names. */
  readonly a?: undefined;
  /** Belongs to the other pair of names. */
  readonly b?: undefined;
  /** Belongs to the other pair of names; x and w are multiplied as x·wᵀ. */
  readonly layout?: undefined;
}

/** The operands by TransformerEngine's names in `general_gemm`. In `batchedGemm` each has a leading batch dimension. */
export interface GeneralOperands<T> {
  /** TransformerEngine's A: the weight, [N, K] in layout TN, else [K, N]. */
  readonly a: T;
  /** TransformerEngine's B: the input, [M, K], or [K, M] in layout NT. In `gemm`, M may be several dimensions, except in NT. */
  readonly b: T;
  /** Default TN. */
  readonly layout?: GemmLayout | undefined;
  /** Belongs to the other pair of names. */
  readonly x?: undefined;
  /** Belongs to the other pair of names. */
  readonly w?: undefined;
}

/** The operands of a product by either pair of names: in layout TN, x is b and w is a. */
export type NamedOperands<T> = InputAndWeight<T> | GeneralOperands<T>;

/** Operands as a and b, with the caller's names for messages. */
export interface Operands<T> {
  readonly a: T;
  readonly b: T;
  readonly layout: GemmLayout;
  readonly names: OperandNames;
}

/** The caller's names of the operands. */
export interface OperandNames {
  readonly a: "a" | "w";
  readonly b: "b" | "x";
}

const GENERAL: OperandNames = { a: "a", b: "b" };
const INPUT_AND_WEIGHT: OperandNames = { a: "w", b: "x" };

/** The option rows of operands; `operandsOf` checks which of them go together. */
export function operandRows<D extends Domain>(operand: D) {
  return { x: operand, w: operand, a: operand, b: operand, layout: oneOf(LAYOUTS) };
}

/** The operands as a and b. Throws `ArgumentError` unless exactly one pair of names is given, completely. */
export function operandsOf<T>(user: string, given: NamedOperands<T>): Operands<T> {
  const { x, w, a, b, layout } = given;
  if (x === undefined && w === undefined) {
    if (a !== undefined && b !== undefined) return { a, b, layout: layout ?? "TN", names: GENERAL };
  } else if (x !== undefined && w !== undefined) {
    if (a === undefined && b === undefined && layout === undefined)
      return { a: w, b: x, layout: "TN", names: INPUT_AND_WEIGHT };
  }
  throw new ArgumentError(`${user}: ${faultOf(given)}`);
}

/** Why these are not the operands of one product. */
function faultOf({
  layout,
  ...operands
}: Partial<Record<"x" | "w" | "a" | "b" | "layout", unknown>>): string {
  const has = (name: "x" | "w" | "a" | "b"): boolean => operands[name] !== undefined;
  const given = (["x", "w", "a", "b"] as const).filter(has);
  const [direct, general] = [has("x") || has("w"), has("a") || has("b")];
  if (direct && general)
    return `${given.join(" and ")} are given; an operand has one name: give x and w alone, or a and b alone`;
  if (direct && layout !== undefined)
    return `layout is ${String(layout)} and x and w are multiplied as x·wᵀ; leave layout out, or give a and b`;
  const [only] = given;
  if (only === undefined) return "x and w are missing; give them, or a and b";
  const other = { x: "w", w: "x", a: "b", b: "a" }[only];
  return `${other} is missing; give it together with ${only}`;
}

/** The product that names and layout stand for, for messages. */
export function productOf({ layout, names }: Pick<Operands<unknown>, "layout" | "names">): string {
  return names === INPUT_AND_WEIGHT ? "x·wᵀ" : `layout ${layout}`;
}
