/** The datapaths, one row each: how a dot product is accumulated. The arithmetic itself is assembly/gemm/datapath.ts. */
import { HARDWARE_FAMILIES, type HardwareFamily, MEASURED_ON } from "./chips.js";
import { factsOf } from "./derive.js";
import type { ScalarFormat } from "./scalar.js";

/** The names by which datapaths are requested: by definition, or by the generation of tensor cores to reproduce. */
export const DATAPATH_FAMILIES = ["exact", "fp32", ...HARDWARE_FAMILIES] as const;

/** A family of datapaths: `exact`, `fp32`, or a generation of NVIDIA tensor cores to reproduce. */
export type DatapathFamily = (typeof DATAPATH_FAMILIES)[number];

/**
 * A fused dot-add, repeated along K: n products and the accumulator are aligned to the largest exponent,
 * truncated to multiples of 2^(exponent - alignBits), summed exactly, and truncated to fractionBits.
 */
export interface DotAdd {
  /** Products per step. */
  readonly step: number;
  /** Fraction bits of aligned products; lower bits are truncated. */
  readonly alignBits: number;
  /** Fraction bits to which the sum of a step is truncated; 23 is f32. */
  readonly fractionBits: number;
  /** Exponent of a zero operand; "none" where a zero product is as small as a zero accumulator. */
  readonly zeroOperand: number | "none";
  /** The exponent that an accumulator of zero counts with when products are aligned. */
  readonly zeroAccumulator: number;
  /** Products summed exactly before they are aligned; 1 aligns each. */
  readonly group: number;
}

/** One row of `DATAPATHS`: the parameters of the accumulation, and whether hardware has confirmed them. */
export interface DatapathRow {
  /** Absent for the two datapaths defined by arithmetic rather than hardware. */
  readonly dotAdd?: DotAdd;
  /** Length along K of a chain before it is added to the f32 total, for split accumulators and block scales. */
  readonly promotionInterval: number;
  /** The tile that splits of K are multiples of; 0: no split-K. */
  readonly splitTile: number;
  /** As `splitTile`, for an operand with scales per 128x128; default `splitTile`. */
  readonly squareSplitTile?: number;
  /** fma(s, acc, beta * C), and fma(beta, C, s * acc) under split-K; without beta fma(s, acc, +0), and s * acc. */
  readonly beta: "fused";
  /** The source of the parameters: a measurement, a publication, or the definition. */
  readonly source: string;
  /** Matched bit for bit on hardware; otherwise a published model. */
  readonly measured: boolean;
  /** Set if hardware follows the rule for some shapes and another rule for others. */
  readonly approximate?: string;
}

const MEASURED = { beta: "fused", source: `measured on ${MEASURED_ON}`, measured: true } as const;
const PUBLISHED = { beta: "fused", source: "arXiv 2511.10909, mmasim 2.1.1", measured: false } as const;
const DEFINITION = {
  promotionInterval: 0,
  splitTile: 0,
  beta: "fused",
  source: "definition",
  measured: true,
} as const;

/**
 * Every datapath by name: how a matrix product accumulates (datapath.md). `ada-*` and `blackwell-*` are published models, not
 * measured.
 */
export const DATAPATHS = {
  exact: DEFINITION,
  fp32: DEFINITION,
  "hopper-fp8": {
    dotAdd: dotAdd(32, 13, 13, "none", -133),
    promotionInterval: 128,
    splitTile: 128,
    squareSplitTile: 512,
    ...MEASURED,
  },
  "hopper-half": {
    dotAdd: dotAdd(16, 25, 23, "none", -133),
    promotionInterval: 0,
    splitTile: 64,
    ...MEASURED,
  },
  "hopper-tf32": {
    dotAdd: dotAdd(8, 25, 23, "none", -133),
    promotionInterval: 0,
    splitTile: 0,
    ...MEASURED,
    approximate: "an H200 followed this rule at 512x512x1024 and took a kernel with another at 128x128",
  },
  "ada-fp8": { dotAdd: dotAdd(16, 13, 13, "none", -132), promotionInterval: 128, splitTile: 0, ...PUBLISHED },
  "ada-half": { dotAdd: dotAdd(8, 24, 23, "none", -132), promotionInterval: 0, splitTile: 0, ...PUBLISHED },
  "blackwell-narrow": {
    dotAdd: dotAdd(32, 25, 23, "none", -133),
    promotionInterval: 0,
    splitTile: 0,
    ...PUBLISHED,
  },
  "blackwell-half": {
    dotAdd: dotAdd(16, 25, 23, "none", -133),
    promotionInterval: 0,
    splitTile: 0,
    ...PUBLISHED,
  },
  "blackwell-fp4": {
    dotAdd: dotAdd(64, 35, 23, "none", -139, 16),
    promotionInterval: 0,
    splitTile: 0,
    ...PUBLISHED,
  },
} as const satisfies Record<string, DatapathRow>;

/** The name of one datapath, a key of `DATAPATHS`. */
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

/** Types of block scales. */
export type BlockScaleFormat = "f32" | "e8m0" | "e4m3";

/** The properties of an operand that decide how it is multiplied. */
export interface OperandTraits {
  /** The format of its elements. */
  readonly format: ScalarFormat | "f32";
  /** Block scales, if any: their format, and the lines and elements along K that share one. */
  readonly scales?: {
    readonly format: BlockScaleFormat;
    readonly lines: number;
    readonly length: number;
    /** Whether every scale is a power of two. */
    readonly pow2: boolean;
  };
}

/** The class of a pair of operands. */
export type OperandClass =
  | "fp8"
  | "fp8Block"
  | "narrow"
  | "mx"
  | "fp4Block"
  | "bf16"
  | "f16"
  | "tf32"
  | "f32";

/** How elements become operands; see `Staging` in assembly/contract.ts. */
export type StagingName = "plain" | "bf16" | "tf32" | "scaled" | "grouped";

/** The type that elements are rounded to before multiplication; absent if they are multiplied as they are. */
export const STAGED_AS: Readonly<Partial<Record<StagingName, "bf16" | "f32">>> = {
  bf16: "bf16",
  tf32: "f32",
};

/** How chains are added to the total; see `Promotion` in assembly/contract.ts. */
export type PromotionName = "none" | "add" | "scaleProduct" | "scaleChain";

/** The row for a pair of operands, or why there is none. */
export type DatapathChoice =
  | {
      readonly ok: true;
      readonly name: DatapathName;
      readonly staging: StagingName;
      readonly promotion: PromotionName;
      /** The tile that splits of K are multiples of; 0: no split-K. */
      readonly splitTile: number;
    }
  | { readonly ok: false; readonly reason: string };

type Serving = Partial<Record<OperandClass, readonly [DatapathName, StagingName]>>;

/** A chip without an instruction for a block format multiplies its elements rounded to bf16 (datapath.md §3). */
const SERVED: Record<HardwareFamily, Serving> = {
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

/** Whether a family multiplies block-scaled operands by their scales as they are, rather than as bf16 in their place. */
export function hasBlockScaling(family: DatapathFamily): boolean {
  return isHardware(family) && SERVED[family].mx?.[1] === "scaled";
}

/** Whether block-scaled operands are multiplied as bf16 in their place, for want of an instruction. */
export function isEmulated({ staging }: { readonly staging: StagingName }): boolean {
  return staging === "bf16";
}

/** Whether a family takes f32 block scales as exponents, so that it matters whether they are powers of two. */
export function readsBlockExponents(family: DatapathFamily): boolean {
  return isHardware(family) && SERVED[family].fp8Block?.[1] === "scaled";
}

/** The operands that a family has no instruction for and multiplies as bf16 in their place. */
export function emulatedBy(family: DatapathFamily): readonly string[] {
  if (!isHardware(family)) return [];
  return CLASS_NAMES.filter((name) => SERVED[family][name]?.[1] === "bf16");
}

function isHardware(family: DatapathFamily): family is HardwareFamily {
  return family !== "exact" && family !== "fp32";
}

const REASONS: Partial<Record<OperandClass, string>> = {
  f32: "its tensor cores round f32 operands to tf32, by rules that differ with the shape; use datapath fp32 or exact, or encode to tf32, bf16 or f16",
  fp8Block: "it has no GEMM with scales per block of 128; use datapath hopper or exact",
  narrow: "it has no instruction for these formats without block scales; use datapath blackwell or exact",
  tf32: "its rule for tf32 is not known; use datapath hopper, fp32 or exact",
};

/** What makes a class of operands: the elements that tensor cores have a type for (PTX's mma), and what scales their blocks. */
interface ClassRow {
  readonly elements: readonly OperandTraits["format"][];
  /** Formats of block scales. Absent: the operand has none. */
  readonly scales?: readonly BlockScaleFormat[];
}

const CLASSES: Readonly<Record<OperandClass, ClassRow>> = {
  fp8: { elements: ["e4m3", "e5m2"] },
  fp8Block: { elements: ["e4m3", "e5m2"], scales: ["f32"] },
  narrow: { elements: ["e2m3", "e3m2", "e2m1"] },
  mx: { elements: ["e4m3", "e5m2", "e2m3", "e3m2"], scales: ["e8m0"] },
  fp4Block: { elements: ["e2m1"], scales: ["e8m0", "e4m3"] },
  bf16: { elements: ["bf16"] },
  f16: { elements: ["f16"] },
  tf32: { elements: ["tf32"] },
  f32: { elements: ["f32"] },
};

const CLASS_NAMES = Object.keys(CLASSES) as readonly OperandClass[];

/** The class of an operand; undefined if no tensor core has a type for it. */
function classOf({ format, scales }: OperandTraits): OperandClass | undefined {
  return CLASS_NAMES.find((name) => {
    const row = CLASSES[name];
    const scaled = scales ? row.scales?.includes(scales.format) === true : !row.scales;
    return scaled && row.elements.includes(format);
  });
}

/** The class of a pair, if one covers both. */
function pairClass(x: OperandTraits, w: OperandTraits): OperandClass | undefined {
  const [a, b] = [classOf(x), classOf(w)];
  if (!a || !b || x.scales?.format !== w.scales?.format) return undefined;
  if (a === b) return a;
  const both = new Set([a, b]);
  if (both.has("mx") && both.has("fp4Block")) return "mx";
  return both.has("fp8") && both.has("narrow") ? "narrow" : undefined;
}

/** Why a pair is in no class. */
function noClass(family: DatapathFamily, x: OperandTraits, w: OperandTraits): string {
  const alien = [x, w].find((operand) => !classOf(operand));
  const why = alien
    ? `no tensor core has a type for ${describe(alien)}`
    : "it has no instruction for the pair";
  return `datapath ${family} does not multiply ${describe(x)} by ${describe(w)}: ${why}; use datapath exact or fp32`;
}

function describe({ format, scales }: OperandTraits): string {
  return scales ? `${format} with ${scales.format} scales per ${scales.lines}x${scales.length}` : format;
}

/** For scales per block of 128: the association that cuBLASLt uses, or why there is none (datapath.md §2). */
function blockPromotion(x: OperandTraits, w: OperandTraits): PromotionName | string {
  const squares = [x, w].filter(({ scales }) => scales?.lines !== 1).length;
  if (squares < 2) return squares === 0 ? "scaleChain" : "scaleProduct";
  return "cuBLASLt does not multiply operands that are both scaled 128x128; scale one 1x128, or use datapath exact";
}

/** The row by which `family` multiplies x by w. */
export function datapathFor(
  family: DatapathFamily,
  x: OperandTraits,
  w: OperandTraits,
  splitAccumulator: boolean,
): DatapathChoice {
  if (!isHardware(family))
    return { ok: true, name: family, staging: "plain", promotion: "none", splitTile: 0 };
  const operands = pairClass(x, w);
  if (!operands) return { ok: false, reason: noClass(family, x, w) };
  const served = SERVED[family][operands];
  if (!served) {
    const why = REASONS[operands] ?? "it has no rule for them";
    return { ok: false, reason: `datapath ${family} does not multiply ${operands} operands: ${why}` };
  }
  const [name, staging] = served;
  const row: DatapathRow = DATAPATHS[name];
  const { splitTile } = row;
  if (operands !== "fp8Block") {
    const promotion = splitAccumulator && row.promotionInterval > 0 ? "add" : "none";
    return { ok: true, name, staging, promotion, splitTile };
  }
  if (staging === "scaled") {
    if (x.scales?.pow2 && w.scales?.pow2) return { ok: true, name, staging, promotion: "none", splitTile };
    return {
      ok: false,
      reason: `datapath ${family} takes block scales as exponents, so they must be powers of two; quantize with pow2Scales`,
    };
  }
  const promotion = blockPromotion(x, w);
  if (promotion === "scaleChain") return { ok: true, name, staging, promotion, splitTile };
  if (promotion === "scaleProduct")
    return { ok: true, name, staging, promotion, splitTile: row.squareSplitTile ?? splitTile };
  return { ok: false, reason: promotion };
}

/** Whether the fast kernel for 8-bit operands serves a row: 13 bits, and operands that stay within them. */
export function isNarrow(name: DatapathName, ...operands: readonly OperandTraits[]): boolean {
  const row: DatapathRow = DATAPATHS[name];
  return (
    row.dotAdd?.alignBits === 13 &&
    operands.every(({ format }) => format !== "f32" && factsOf(format).bits <= 8)
  );
}
