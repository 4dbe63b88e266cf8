/** The datapaths, one row each: how a dot product is accumulated. The arithmetic itself is assembly/datapath.ts. */

/** How a datapath is asked for: by definition, or by the generation of tensor cores to reproduce. */
export type DatapathFamily = "exact" | "fp32" | "ada" | "hopper" | "blackwell";

/**
 * A fused dot-add, repeated along K: n products and the accumulator are aligned to the largest exponent,
 * truncated to multiples of 2^(exponent - alignBits), summed exactly, and truncated to fractionBits.
 */
export interface DotAdd {
  /** Products a step. */
  readonly step: number;
  readonly alignBits: number;
  readonly fractionBits: number;
  /** Exponent of a zero operand; "none" where a zero product is as small as a zero accumulator. */
  readonly zeroOperand: number | "none";
  readonly zeroAccumulator: number;
  /** Products summed exactly before they are aligned; 1 aligns each. */
  readonly group: number;
}

export interface DatapathRow {
  /** Absent for the two datapaths that are arithmetic, not hardware. */
  readonly dotAdd?: DotAdd;
  /** k's of a chain before it joins the f32 total, where the accumulator is split or scales are per block. */
  readonly promotionInterval: number;
  /** Split-K cuts K in whole tiles of this; 0: no split-K. */
  readonly splitTile: number;
  /** With beta: fma(s, acc, beta * C), and fma(beta, C, s * acc) under split-K. */
  readonly beta: "fused";
  readonly source: string;
  /** Matched bit for bit on hardware; otherwise a published model. */
  readonly measured: boolean;
}

const MEASURED = { beta: "fused", source: "measured on H200, cuBLASLt 13.1", measured: true } as const;
const PUBLISHED = { beta: "fused", source: "arXiv 2511.10909, mmasim 2.1.1", measured: false } as const;
const DEFINITION = { promotionInterval: 0, splitTile: 0, beta: "fused", source: "definition", measured: true } as const;

export const DATAPATHS = {
  exact: DEFINITION,
  fp32: DEFINITION,
  "hopper-fp8": {
    dotAdd: dotAdd(32, 13, 13, -126, -126),
    promotionInterval: 128,
    splitTile: 128,
    ...MEASURED,
  },
  "hopper-half": { dotAdd: dotAdd(16, 25, 23, -126, -126), promotionInterval: 0, splitTile: 64, ...MEASURED },
  "hopper-tf32": { dotAdd: dotAdd(8, 25, 23, -126, -126), promotionInterval: 0, splitTile: 0, ...MEASURED },
  "ada-fp8": { dotAdd: dotAdd(16, 13, 13, "none", -132), promotionInterval: 128, splitTile: 0, ...PUBLISHED },
  "ada-half": { dotAdd: dotAdd(8, 24, 23, "none", -132), promotionInterval: 0, splitTile: 0, ...PUBLISHED },
  "blackwell-narrow": {
    dotAdd: dotAdd(32, 25, 23, "none", -133),
    promotionInterval: 0,
    splitTile: 0,
    ...PUBLISHED,
  },
  "blackwell-half": { dotAdd: dotAdd(16, 25, 23, "none", -133), promotionInterval: 0, splitTile: 0, ...PUBLISHED },
  "blackwell-fp4": {
    dotAdd: dotAdd(64, 35, 23, "none", -139, 16),
    promotionInterval: 0,
    splitTile: 0,
    ...PUBLISHED,
  },
} as const satisfies Record<string, DatapathRow>;

export type DatapathName = keyof typeof DATAPATHS;

function dotAdd(
  step: number,
  alignBits: number,
  fractionBits: number,
  zeroOperand: number | "none",
  zeroAccumulator: number,
  group = 1,
): DotAdd {
  return { step, alignBits, fractionBits, zeroOperand, zeroAccumulator, group };
}

/** What two operands are to a datapath. A mixed pair has the class that covers both, if there is one. */
export type OperandClass = "fp8" | "fp8Block" | "narrow" | "mx" | "fp4Block" | "bf16" | "f16" | "tf32" | "f32";

/** How elements become operands; see `Staging` in assembly/contract.ts. */
export type StagingName = "plain" | "bf16" | "tf32" | "scaled" | "grouped";

/** The row that serves a pair of operands, or why there is none. */
export type DatapathChoice =
  | { readonly ok: true; readonly name: DatapathName; readonly staging: StagingName }
  | { readonly ok: false; readonly reason: string };

type Serving = Partial<Record<OperandClass, readonly [DatapathName, StagingName]>>;

/** A chip without an instruction for a block format multiplies its elements rounded to bf16 (datapath.md §3). */
const SERVED: Record<"ada" | "hopper" | "blackwell", Serving> = {
  ada: {
    fp8: ["ada-fp8", "plain"],
    mx: ["ada-half", "bf16"],
    fp4Block: ["ada-half", "bf16"],
    bf16: ["ada-half", "plain"],
    f16: ["ada-half", "plain"],
  },
  hopper: {
    fp8: ["hopper-fp8", "plain"],
    fp8Block: ["hopper-fp8", "plain"],
    mx: ["hopper-half", "bf16"],
    fp4Block: ["hopper-half", "bf16"],
    bf16: ["hopper-half", "plain"],
    f16: ["hopper-half", "plain"],
    tf32: ["hopper-tf32", "tf32"],
  },
  blackwell: {
    fp8: ["blackwell-narrow", "plain"],
    fp8Block: ["blackwell-narrow", "scaled"],
    narrow: ["blackwell-narrow", "plain"],
    mx: ["blackwell-narrow", "scaled"],
    fp4Block: ["blackwell-fp4", "grouped"],
    bf16: ["blackwell-half", "plain"],
    f16: ["blackwell-half", "plain"],
  },
};

const REASONS: Partial<Record<OperandClass, string>> = {
  f32: "its tensor cores would round f32 operands to tf32, by rules that differ with the shape; use datapath fp32 or exact, or cast to tf32, bf16 or f16",
  fp8Block: "it has no GEMM with scales per block of 128; use datapath hopper or exact",
  narrow: "it has no instruction for these formats without block scales; use datapath blackwell or exact",
  tf32: "no rule for tf32 is known there; use datapath hopper, fp32 or exact",
};

/** The row by which `family` multiplies operands of a class. */
export function datapathFor(family: DatapathFamily, operands: OperandClass): DatapathChoice {
  if (family === "exact" || family === "fp32") return { ok: true, name: family, staging: "plain" };
  const served = SERVED[family][operands];
  if (served) return { ok: true, name: served[0], staging: served[1] };
  return { ok: false, reason: `datapath ${family} does not multiply ${operands} operands: ${REASONS[operands] ?? "it has no rule for them"}` };
}
