/** The operands of a product as plain numbers, as a datapath reads them (datapath.md §1, §3). */
import type { GemmOperand } from "../backends/ops/gemm.js";
import { extentOf } from "../backends/ops/gemm.js";
import type { StagingName } from "../formats/datapath.js";
import { factsOf, valueOfCode } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { storageBits } from "../tensor/shape.js";
import { f32Bits, floorLog2 } from "./binary.js";
import { roundTo } from "./rounding.js";
import { mul } from "./steps.js";

/** One element of an operand, and the value that the datapath multiplies. */
export interface ExplainedFactor {
  /** The stored bits: a code, or the bits of an f32. */
  readonly code: number;
  /** The value of the code. */
  readonly element: number;
  /** The scale of its block. Absent without block scales. */
  readonly scale?: number;
  /** The multiplied value. It excludes scales that the datapath applies to a chain as a whole. */
  readonly value: number;
  /** The exponent that the factor contributes to the alignment. Absent for a zero that takes no part in it. */
  readonly exponent?: number;
}

const F32_MIN_EXPONENT = -126;
/** The exponent of an f32 scale of 0 or of a subnormal one, as if it were a power of two. */
const F32_SCALE_EXPONENT = -127;

/** A multiplied value and its exponent. */
type Staged = Pick<ExplainedFactor, "value" | "exponent">;

/** How a datapath reads element q under scale s. `least` is the smallest exponent of the format, `scale` the exponent of s. */
type Reading = (q: number, s: number, least: number, scale: number) => Staged;

const STAGED: Readonly<Record<StagingName, Reading>> = {
  plain: (q, _s, least) => withExponent(q, least),
  bf16: (q, s) => withExponent(narrow(q * s, "bf16"), F32_MIN_EXPONENT),
  tf32: (q) => withExponent(narrow(q, "tf32"), F32_MIN_EXPONENT),
  scaled: (q, s, least, scale) => {
    const exponent = exponentOf(q, least);
    const value = q * s;
    return exponent === undefined || value === 0 ? { value } : { value, exponent: exponent + scale };
  },
  // a group's exponent is the exponent of its scales
  grouped: (q, s, _least, scale) => ({ value: q * s, exponent: scale }),
};

/** Reads the elements of one operand. */
export class OperandReader {
  readonly depth: number;
  readonly #lines: number;
  readonly #data: ArrayLike<number>;
  readonly #scales: ArrayLike<number> | undefined;

  constructor(
    private readonly operand: GemmOperand,
    private readonly staging: StagingName,
  ) {
    [this.#lines, this.depth] = extentOf(operand);
    this.#data = operand.data.dataSync();
    this.#scales = operand.blockScales?.tensor.dataSync();
  }

  /** The scale of the block of an element; 1 without block scales. */
  scaleOf(line: number, k: number): number {
    const { blockScales, traits } = this.operand;
    if (!blockScales || !this.#scales || !traits.scales) return 1;
    const { lines, length, lineStride, blockStride } = blockScales;
    const stored = this.#scales[Math.floor(line / lines) * lineStride + Math.floor(k / length) * blockStride];
    const { format } = traits.scales;
    if (format === "f32") return stored as number;
    // the sign of a scale is ignored
    return Math.abs(valueOfCode(format, stored as number));
  }

  /** The element, and how the datapath reads it. */
  factor(line: number, k: number): ExplainedFactor {
    const { format } = this.operand.traits;
    const stored = this.#elementAt(line, k);
    const element = format === "f32" ? stored : valueOfCode(format, stored);
    const code = format === "f32" ? f32Bits(stored) : stored;
    if (!this.#scales) return { code, element, ...this.#staged(element, 1) };
    const scale = this.scaleOf(line, k);
    return { code, element, scale, ...this.#staged(element, scale) };
  }

  #elementAt(line: number, k: number): number {
    const { data, transposed } = this.operand;
    const index = transposed ? k * this.#lines + line : line * this.depth + k;
    if (storageBits(data.dtype) >= 8) return this.#data[index] as number;
    return ((this.#data[index >> 1] as number) >> ((index & 1) * 4)) & 15;
  }

  #staged(q: number, s: number): Staged {
    const { traits } = this.operand;
    return STAGED[this.staging](q, s, minExponent(traits.format), this.#scaleExponent(s));
  }

  #scaleExponent(s: number): number {
    const format = this.operand.traits.scales?.format ?? "f32";
    return exponentOf(s, format === "f32" ? F32_SCALE_EXPONENT : minExponent(format)) ?? 0;
  }
}

function minExponent(format: ScalarFormat | "f32"): number {
  return format === "f32" ? F32_MIN_EXPONENT : Math.log2(factsOf(format).minNormal);
}

/** Rounds to nearest, ties to even, with overflow to infinity. x may have more bits than an f32. */
function narrow(x: number, format: "bf16" | "tf32"): number {
  return roundTo(x, { format, rounding: "tiesToEven", overflow: "nonfinite" }).result;
}

/** floor(log2 |x|), but at least `least`; undefined for zero, infinities and NaN. */
function exponentOf(x: number, least: number): number | undefined {
  return x === 0 || !Number.isFinite(x) ? undefined : Math.max(floorLog2(x), least);
}

function withExponent(value: number, least: number): Pick<ExplainedFactor, "value" | "exponent"> {
  const exponent = exponentOf(value, least);
  return exponent === undefined ? { value } : { value, exponent };
}

/** An element times the scale of its block, rounded to f32. */
export function dequantized({ element, scale }: ExplainedFactor): number {
  return scale === undefined ? element : mul(element, scale);
}
