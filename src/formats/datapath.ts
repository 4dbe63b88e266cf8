/**
 * The datapaths, one row each. A datapath defines how a dot product is accumulated. assembly/gemm/datapath.ts does the
 * arithmetic.
 */
import { HARDWARE_FAMILIES, type HardwareFamily, MEASURED_ON } from "./chips.js";
import { factsOf } from "./derive.js";
import type { ScalarFormat } from "./scalar.js";

/** The datapath families: `exact` and `fp32` are defined by arithmetic, the others reproduce a generation of tensor cores. */
export const DATAPATH_FAMILIES = ["exact", "fp32", ...HARDWARE_FAMILIES] as const;

/** A family of datapaths: `exact`, `fp32`, or a generation of NVIDIA tensor cores to reproduce. */
export type DatapathFamily = (typeof DATAPATH_FAMILIES)[number];

/**
 * A fused dot-add step of a tensor core, repeated along K. Let e be the largest exponent of the step's products and of the
 * accumulator. Each product and the accumulator are truncated to multiples of 2^(e - alignBits) and summed exactly. The sum is
 * truncated to `fractionBits` fraction bits and becomes the new accumulator.
 */
export interface DotAdd {
  /** The number of products per step. */
  readonly step: number;
  /** The number of bits below the largest exponent that aligned terms keep. Lower bits are truncated. */
  readonly alignBits: number;
  /** The number of fraction bits to which the sum of a step is truncated. 23 is the precision of f32. */
  readonly fractionBits: number;
  /** The exponent with which a zero operand counts in the alignment. "none": a product that is zero does not count. */
  readonly zeroOperand: number | "none";
  /** The exponent with which an accumulator of zero counts in the alignment. */
  readonly zeroAccumulator: number;
  /** The number of products that are summed exactly before the alignment. With 1, each product is aligned by itself. */
  readonly group: number;
}

/** One row of `DATAPATHS`: how products are accumulated, and whether measurements on hardware confirm it. */
export interface DatapathRow {
  /** The dot-add step. Absent for `exact` and `fp32`, which are defined by arithmetic instead of hardware. */
  readonly dotAdd?: DotAdd;
  /**
   * The length along K of a chain: a partial sum that is added to the f32 total (promoted). Applies to split accumulators and
   * block scales. 0: no promotion.
   */
  readonly promotionInterval: number;
  /** Split-K divides K at multiples of this many elements. 0: split-K is not supported. */
  readonly splitTile: number;
  /** As `splitTile`, for products with an operand that has one scale per 128x128 tile. Default: `splitTile`. */
  readonly squareSplitTile?: number;
  /**
   * How the epilogue combines the scaled accumulator s * acc with beta * C. "fused": fma(s, acc, beta * C), but fma(beta, C, s
   * * acc) with split-K. Without C: fma(s, acc, +0), but s * acc with split-K.
   */
  readonly beta: "fused";
  /** Where the parameters come from: a measurement, a publication, or the definition. */
  readonly source: string;
  /** Whether results of hardware were bitwise equal. If false, the row is a published model. */
  readonly measured: boolean;
  /** Set if hardware follows this rule for some shapes only; the text says which. */
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

/** Every datapath by name (datapath.md). `ada-*` and `blackwell-*` are published models that were not measured. */
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

/** The name of a datapath, a key of `DATAPATHS`. */
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

/** The dtype of block scales. */
export type BlockScaleFormat = "f32" | "e8m0" | "e4m3" | "ue5m3";

/** The properties of an operand that decide how it is multiplied. */
export interface OperandTraits {
  /** The format of its elements. */
  readonly format: ScalarFormat | "f32";
  /**
   * The block scales, if any: their dtype, and the block that shares one scale, as `lines` rows by `length` elements along K.
   */
  readonly scales?: {
    readonly format: BlockScaleFormat;
    readonly lines: number;
    readonly length: number;
    /** Whether every scale is a power of two. */
    readonly pow2: boolean;
  };
}

/** A class of operands, which the same tensor-core instructions multiply. */
export type OperandClass =
  | "fp8"
  | "fp8Block"
  | "narrow"
  | "mx"
  | "fp4Block"
  | "fp4Ue5m3"
  | "mixed"
  | "bf16"
  | "f16"
  | "tf32"
  | "f32";

/** How elements are converted to multiplier inputs. See `Staging` in assembly/contract.ts. */
export type StagingName = "plain" | "bf16" | "tf32" | "scaled" | "grouped";

/** The dtype to which elements are rounded before the multiplication. Absent if they are multiplied unchanged. */
export const STAGED_AS: Readonly<Partial<Record<StagingName, "bf16" | "f32">>> = {
  bf16: "bf16",
  tf32: "f32",
};

/** How a chain (partial sum) is added to the total. See `Promotion` in assembly/contract.ts. */
export type PromotionName = "none" | "add" | "scaleProduct" | "scaleChain";

/** The datapath of a pair of operands, or the reason why there is none. */
export type DatapathChoice =
  | {
      readonly ok: true;
      readonly name: DatapathName;
      readonly staging: StagingName;
      readonly promotion: PromotionName;
      /** Split-K divides K at multiples of this many elements. 0: split-K is not supported. */
      readonly splitTile: number;
    }
  | { readonly ok: false; readonly reason: string };

type Serving = Partial<Record<OperandClass, readonly [DatapathName, StagingName]>>;

/**
 * The datapath and staging of each class of operands. A chip without an instruction for a block format rounds its elements to
 * bf16 and multiplies the rounded elements (datapath.md §3).
 */
const SERVED: Record<HardwareFamily, Serving> = {
  ada: {
    fp8: ["ada-fp8", "plain"],
    mx: ["ada-half", "bf16"],
    fp4Block: ["ada-half", "bf16"],
    fp4Ue5m3: ["ada-half", "bf16"],
    mixed: ["ada-half", "bf16"],
    bf16: ["ada-half", "plain"],
    f16: ["ada-half", "plain"],
  },
  hopper: {
    fp8: ["hopper-fp8", "plain"],
    fp8Block: ["hopper-fp8", "plain"],
    mx: ["hopper-half", "bf16"],
    fp4Block: ["hopper-half", "bf16"],
    fp4Ue5m3: ["hopper-half", "bf16"],
    mixed: ["hopper-half", "bf16"],
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
    mixed: ["blackwell-half", "bf16"],
    bf16: ["blackwell-half", "plain"],
    f16: ["blackwell-half", "plain"],
  },
};

/** Whether a family has instructions that apply block scales, instead of multiplying dequantized bf16 values. */
export function hasBlockScaling(family: DatapathFamily): boolean {
  return isHardware(family) && SERVED[family].mx?.[1] === "scaled";
}

/** Whether block-scaled operands are dequantized to bf16 and multiplied as bf16, because there is no instruction for them. */
export function isEmulated({ staging }: { readonly staging: StagingName }): boolean {
  return staging === "bf16";
}

/** Whether a family applies f32 block scales as exponents. It then matters whether all scales are powers of two. */
export function readsBlockExponents(family: DatapathFamily): boolean {
  return isHardware(family) && SERVED[family].fp8Block?.[1] === "scaled";
}

/**
 * Returns the classes of operands that a family multiplies as dequantized bf16 values, because it has no instruction for them.
 */
export function emulatedBy(family: DatapathFamily): readonly string[] {
  if (!isHardware(family)) return [];
  return CLASS_NAMES.filter((name) => SERVED[family][name]?.[1] === "bf16");
}

function isHardware(family: DatapathFamily): family is HardwareFamily {
  return family !== "exact" && family !== "fp32";
}

/** Returns the family that multiplies operands of a wide type: `fp32` for f32, which tensor cores round; else `family`. */
export function familyFor(format: OperandTraits["format"], family: DatapathFamily): DatapathFamily {
  return format === "f32" && family !== "exact" ? "fp32" : family;
}

const REASONS: Partial<Record<OperandClass, string>> = {
  f32: "its tensor cores round f32 operands to tf32, by rules that differ with the shape; use datapath fp32 or exact, or encode to tf32, bf16 or f16",
  fp8Block: "it has no GEMM with scales per block of 128; use datapath hopper or exact",
  narrow: "it has no instruction for these formats without block scales; use datapath blackwell or exact",
  fp4Ue5m3: "its tensor cores take no ue5m3 scales; use datapath hopper or exact",
  tf32: "its rule for tf32 is not known; use datapath hopper, fp32 or exact",
};

/** The conditions of a class of operands: the element formats (types of PTX's mma) and the dtypes of block scales. */
interface ClassRow {
  readonly elements: readonly OperandTraits["format"][];
  /** The dtypes of the block scales. Absent: the operands have no block scales. */
  readonly scales?: readonly BlockScaleFormat[];
}

const CLASSES: Readonly<Record<Exclude<OperandClass, "mixed">, ClassRow>> = {
  fp8: { elements: ["e4m3", "e5m2"] },
  fp8Block: { elements: ["e4m3", "e5m2"], scales: ["f32"] },
  narrow: { elements: ["e2m3", "e3m2", "e2m1"] },
  mx: { elements: ["e4m3", "e5m2", "e2m3", "e3m2"], scales: ["e8m0"] },
  fp4Block: { elements: ["e2m1"], scales: ["e8m0", "e4m3"] },
  fp4Ue5m3: { elements: ["e2m1"], scales: ["ue5m3"] },
  bf16: { elements: ["bf16"] },
  f16: { elements: ["f16"] },
  tf32: { elements: ["tf32"] },
  f32: { elements: ["f32"] },
};

const CLASS_NAMES = Object.keys(CLASSES) as readonly (keyof typeof CLASSES)[];

/** The classes of codes that are multiplied by bf16 operands, after they are rounded to bf16. */
const MIXED: ReadonlySet<OperandClass> = new Set(["fp8", "fp8Block", "narrow", "mx", "fp4Block", "fp4Ue5m3"]);

/** Returns the class of an operand, or undefined if no tensor core supports it. */
function classOf({ format, scales }: OperandTraits): keyof typeof CLASSES | undefined {
  return CLASS_NAMES.find((name) => {
    const row = CLASSES[name];
    const scaled = scales ? row.scales?.includes(scales.format) === true : !row.scales;
    return scaled && row.elements.includes(format);
  });
}

/** Returns the class of a pair of operands, or undefined if no class covers both. */
function pairClass(x: OperandTraits, w: OperandTraits): OperandClass | undefined {
  const [a, b] = [classOf(x), classOf(w)];
  if (!a || !b) return undefined;
  if ((a === "bf16" && MIXED.has(b)) || (b === "bf16" && MIXED.has(a))) return "mixed";
  if (x.scales?.format !== w.scales?.format) return undefined;
  if (a === b) return a;
  const both = new Set([a, b]);
  if (both.has("mx") && both.has("fp4Block")) return "mx";
  return both.has("fp8") && both.has("narrow") ? "narrow" : undefined;
}

/** Returns the error message for a pair that is in no class. */
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

/**
 * For two operands with f32 scales per block of 128: returns how cuBLASLt applies the scales to a chain, or the reason why it
 * does not multiply them (datapath.md §2).
 */
function blockPromotion(x: OperandTraits, w: OperandTraits): PromotionName | string {
  const squares = [x, w].filter(({ scales }) => scales?.lines !== 1).length;
  if (squares < 2) return squares === 0 ? "scaleChain" : "scaleProduct";
  return "cuBLASLt does not multiply operands that are both scaled 128x128; scale one 1x128, or use datapath exact";
}

/** Returns the datapath by which `family` multiplies x by w, or the reason why it does not. */
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

/**
 * Whether the reference's fast kernel for 8-bit operands serves a datapath and operands: products are aligned to 13 bits, and
 * operands have at most 8 bits.
 */
export function isNarrow(name: DatapathName, ...operands: readonly OperandTraits[]): boolean {
  const row: DatapathRow = DATAPATHS[name];
  return (
    row.dotAdd?.alignBits === 13 &&
    operands.every(({ format }) => format !== "f32" && factsOf(format).bits <= 8)
  );
}
