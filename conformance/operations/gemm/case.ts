/** One matrix product as plain data, and the shape and type of its result. */
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import type { GemmLayout } from "../../../src/ops/gemm/named-operands.js";
import type { Direction } from "../../../src/tensor/quantized.js";
import { isWide, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import type { PlainTensor } from "../../values/plain.js";
import type { ResultDType } from "../../values/rounded.js";
import { type OperandCase, storedShape } from "./operand.js";

/** The options of `gemm`, with plain data for tensors. */
export interface GemmCase {
  /** The operand A, whose lines are columns of the result. */
  readonly a: OperandCase;
  /** The operand B, whose lines are rows of the result. */
  readonly b: OperandCase;
  /** Which operands are stored transposed. */
  readonly layout: GemmLayout;
  /** The datapath, which defines how products are summed. */
  readonly datapath: DatapathFamily;
  /** Whether FP8 partial sums leave the tensor core after every 128 elements along K. */
  readonly useSplitAccumulator: boolean;
  /** The number of splits of K, or `auto`. */
  readonly splitK: number | "auto";
  /** The factor of the product. */
  readonly alpha: number;
  /** The factor of `c`; absent for the default. */
  readonly beta?: number | undefined;
  /** The addend. If the product accumulates, `out` holds it. */
  readonly c?: PlainTensor<WideDType> | undefined;
  /** Whether the product is added to `out`, which holds `c` before the call. */
  readonly accumulate: boolean;
  /** Whether the caller passes `out`. */
  readonly intoOut: boolean;
  /** The vector that is added to every row. Absent: no bias. */
  readonly bias?: PlainTensor<WideDType> | undefined;
  /** Whether GELU is applied. */
  readonly gelu: boolean;
  /** The type of the value before GELU; absent for the default. */
  readonly auxDtype?: WideDType | undefined;
  /**
   * The argument of GELU in the forward pass. If present, the product is multiplied by the derivative of GELU there.
   */
  readonly geluInput?: PlainTensor<WideDType> | undefined;
  /** Whether the bias gradient is requested. */
  readonly biasGradient: boolean;
  /** The type of the result; absent for the default. */
  readonly outDtype?: ResultDType | undefined;
  /** The factor of an FP8 result. */
  readonly outScale: number;
}

/** The directions in which a layout stores its operands: an operand whose lines run along K is rowwise. */
export function directionsOf(layout: GemmLayout): { readonly a: Direction; readonly b: Direction } {
  return { a: layout === "TN" ? "rowwise" : "columnwise", b: layout === "NT" ? "columnwise" : "rowwise" };
}

/** The shape of the result. */
export function resultShape({ a, b, layout }: Pick<GemmCase, "a" | "b" | "layout">): Shape {
  const columns = a.codes.matrix[0];
  if (layout === "NT") return [b.codes.matrix[0], columns];
  return [...storedShape(b, "rowwise").slice(0, -1), columns];
}

/** The type of the result: `outDtype`, else the type of b if that is wide, else f32. */
export function resultType({ outDtype, b }: Pick<GemmCase, "outDtype" | "b">): ResultDType {
  if (outDtype) return outDtype;
  const defaultType = b.source.kind === "plain" ? b.codes.dtype : "f32";
  return isWide(defaultType) ? defaultType : "f32";
}

/** A batch of products as plain data. */
export interface BatchedCase extends Pick<GemmCase, "layout" | "datapath" | "alpha" | "intoOut"> {
  readonly format: WideDType;
  /** The size of each item. */
  readonly size: {
    readonly batch: number;
    readonly rows: number;
    readonly columns: number;
    readonly depth: number;
  };
  readonly items: readonly Pick<GemmCase, "a" | "b">[];
  readonly outDtype?: WideDType | undefined;
}

/** One item of a batch as a single product. */
export function itemCase(
  { layout, datapath, alpha, format, outDtype }: BatchedCase,
  { a, b }: Pick<GemmCase, "a" | "b">,
): GemmCase {
  const plain = {
    useSplitAccumulator: false,
    splitK: 1,
    accumulate: false,
    gelu: false,
    biasGradient: false,
  } as const;
  const single = { a: { ...a, lead: 1 }, b: { ...b, lead: 1 } };
  return {
    ...plain,
    ...single,
    layout,
    datapath,
    alpha,
    intoOut: false,
    outScale: 1,
    outDtype: outDtype ?? format,
  };
}
