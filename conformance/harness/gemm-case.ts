/** One matrix product as plain data, and what its result looks like. */
import type { DatapathFamily } from "../../src/formats/datapath.js";
import type { GemmLayout } from "../../src/ops/gemm.js";
import type { Direction } from "../../src/tensor/quantized.js";
import { isWide, type Shape, type WideDType } from "../../src/tensor/shape.js";
import { type OperandCase, storedShape } from "./gemm-operand.js";
import type { PlainTensor } from "./plain.js";
import type { ResultDType } from "./rounded.js";

/** As `GemmOptions`, the tensors as plain data. */
export interface GemmCase {
  readonly a: OperandCase;
  readonly b: OperandCase;
  readonly layout: GemmLayout;
  readonly datapath: DatapathFamily;
  readonly useSplitAccumulator: boolean;
  readonly splitK: number | "auto";
  readonly alpha: number;
  readonly beta?: number | undefined;
  /** What is added to; it lies in `out` where the product accumulates. */
  readonly c?: PlainTensor<WideDType> | undefined;
  readonly accumulate: boolean;
  /** Whether the caller gives `out`. */
  readonly intoOut: boolean;
  readonly bias?: PlainTensor<WideDType> | undefined;
  readonly gelu: boolean;
  readonly auxDtype?: WideDType | undefined;
  readonly geluInput?: PlainTensor<WideDType> | undefined;
  readonly biasGradient: boolean;
  readonly outDtype?: ResultDType | undefined;
  readonly outScale: number;
}

/** How the operands of a layout are stored: lines that run along K are rowwise. */
export function directionsOf(layout: GemmLayout): { readonly a: Direction; readonly b: Direction } {
  return { a: layout === "TN" ? "rowwise" : "columnwise", b: layout === "NT" ? "columnwise" : "rowwise" };
}

/** The shape of the result. */
export function resultShape({ a, b, layout }: Pick<GemmCase, "a" | "b" | "layout">): Shape {
  const columns = a.codes.matrix[0];
  if (layout === "NT") return [b.codes.matrix[0], columns];
  return [...storedShape(b, "rowwise").slice(0, -1), columns];
}

/** The type of the result: as asked for, else b's where it is wide, else f32. */
export function resultType({ outDtype, b }: Pick<GemmCase, "outDtype" | "b">): ResultDType {
  if (outDtype) return outDtype;
  const own = b.source.kind === "plain" ? b.codes.dtype : "f32";
  return isWide(own) ? own : "f32";
}
