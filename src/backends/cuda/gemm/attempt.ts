/**
 * The ways to compute a product by cuBLASLt, cheapest first. An attempt says which operands are copied or padded, and whether
 * cuBLASLt's epilogue or our own finishes the result. A line of an operand is its K elements for one row of x or w.
 */
import type { BlasAlignment } from "../../../formats/chips.js";
import { type DatapathChoice, STAGED_AS, type StagingName } from "../../../formats/datapath.js";
import { isWide, roundUp, type WideDType } from "../../../tensor/shape.js";
import {
  extentOf,
  type GemmArgs,
  type GemmOperand,
  type GemmOutDType,
  hasLineAmaxes,
} from "../../ops/gemm.js";
import {
  BLAS_TYPES,
  type BlasProduct,
  type BlasScale,
  type BlasType,
  biasType,
  blockScaleOf,
  hasProduct,
  isBlasOperand,
} from "./descriptor.js";

/** An operand in the form in which cuBLASLt reads it: `lines` lines of `depth` elements. */
export interface StagedOperand {
  readonly lines: number;
  readonly depth: number;
  readonly type: BlasType;
  /** Whether cuBLASLt reads a copy whose lines are contiguous along K, instead of the operand itself. */
  readonly copied: boolean;
  /** Whether the operand is stored as [K, lines]. */
  readonly transposed: boolean;
  /** The block scales that cuBLASLt applies, if any. */
  readonly scale?: Exclude<BlasScale, "tensor"> | undefined;
}

export interface Attempt {
  readonly x: StagedOperand;
  readonly w: StagedOperand;
  readonly staging: StagingName;
  /**
   * Whether cuBLASLt's epilogue scales, adds, rounds and writes the result. If false, cuBLASLt writes f32 sums and our epilogue
   * kernel runs after it.
   */
  readonly fused: boolean;
  readonly product: BlasProduct;
}

export type ServedChoice = DatapathChoice & { readonly ok: true };

/** Returns the ways to compute a non-empty product, or the reason why there is none. */
export function attemptsFor(
  args: GemmArgs,
  choice: ServedChoice,
  alignment: BlasAlignment,
): readonly Attempt[] | string {
  const types = [typeOf(args.x, choice), typeOf(args.w, choice)] as const;
  const [xType, wType] = types;
  if (!xType || !wType || !hasProduct(xType, wType))
    return `cuBLASLt has no product of ${args.x.traits.format} and ${args.w.traits.format} operands; use datapath fp32, or the reference`;
  const scales = [scaleOf(args.x, xType, choice), scaleOf(args.w, wType, choice)] as const;
  if (scales.includes("unknown"))
    return "cuBLASLt has no product with these block scales on this GPU; use the reference";
  const context = { args, choice, alignment, types: [xType, wType] as const };
  const fused = isFusable(context) ? [attempt(context, { fused: true, padded: false })] : [];
  if (args.preGelu) return fused.length > 0 ? fused : NO_FUSED_GELU;
  return [
    ...fused,
    attempt(context, { fused: false, padded: false }),
    attempt(context, { fused: false, padded: true }),
  ];
}

const NO_FUSED_GELU =
  "cuBLASLt fuses GELU only where it rounds the result itself, to f32, bf16 or f16, in rows whose length is a multiple of 8, with its argument in the same type; use geluEpilogue exact";

interface AttemptContext {
  readonly args: GemmArgs;
  readonly choice: ServedChoice;
  readonly alignment: BlasAlignment;
  readonly types: readonly [x: BlasType, w: BlasType];
}

/** Returns the cuBLASLt type of an operand, or undefined if cuBLASLt does not support the operand. */
function typeOf({ traits: { format } }: GemmOperand, { staging }: ServedChoice): BlasType | undefined {
  return STAGED_AS[staging] ?? (isBlasOperand(format) ? format : undefined);
}

/**
 * Returns the block scales that cuBLASLt applies, or undefined if the operand has none or is dequantized by staging. "unknown"
 * means that cuBLASLt does not support them.
 */
function scaleOf({ traits: { scales } }: GemmOperand, type: BlasType, { staging }: ServedChoice) {
  if (!scales || STAGED_AS[staging]) return undefined;
  return blockScaleOf(type, scales, staging) ?? "unknown";
}

/** The result type for which cuBLASLt supported no product with block scales on the GPUs that were measured. */
const UNSCALED: WideDType = "f16";

/** Whether f32 operands are rounded to tf32. */
function isTf32({ staging }: ServedChoice): boolean {
  const staged = STAGED_AS[staging];
  return staged !== undefined && BLAS_TYPES[staged].kind === "single";
}

/** The properties of a product that the rules below test. */
interface Fusing extends AttemptContext {
  readonly columns: number;
  readonly alpha: number;
  /** The type of the operand x for cuBLASLt. */
  readonly type: BlasType;
  /** Whether C is added. */
  readonly isAdded: boolean;
  /** Whether there is no bias, or one of the type that cuBLASLt takes. */
  readonly fitsBias: boolean;
}

/** The products for which cuBLASLt's epilogue must not be used, with the reason: it is not bitwise equal, or was not measured. */
const NOT_FUSED: readonly (readonly [reason: string, applies: (product: Fusing) => boolean])[] = [
  [
    "the order of line scales was not measured",
    ({ args: { x, w } }) => Boolean(x.lineScales || w.lineScales),
  ],
  ["cuBLASLt has no row factors besides alpha", ({ args }) => hasLineAmaxes(args)],
  ["it rounds to wide types only", ({ args: { out } }) => !isWide(out.dtype)],
  [
    "rows are not aligned",
    ({ args: { out }, columns, alignment }) =>
      isWide(out.dtype) && (columns * BLAS_TYPES[out.dtype].bits) % alignment.rowBits !== 0,
  ],
  // cuBLASLt may skip a multiplication by zero, and lose NaN and infinities of the sums
  ["alpha is 0", ({ alpha }) => alpha === 0],
  [
    "a negative alpha with factors on the device",
    ({ args, type, alpha }) => alpha < 0 && readsScalars(args, type),
  ],
  [
    "the argument of GELU has another type, or unaligned rows",
    ({ args: { preGelu, out }, columns, alignment }) =>
      preGelu !== undefined && (preGelu.dtype !== out.dtype || columns % alignment.auxColumns !== 0),
  ],
];

/** The products for which its epilogue was measured to be bitwise equal (datapath.md §2), by the kind of their operands. */
const FUSED: readonly (readonly [
  applies: (product: Fusing) => boolean,
  isEqual: (product: Fusing) => boolean,
])[] = [
  [
    ({ choice }) => isTf32(choice),
    ({ args: { bias, out }, isAdded }) => out.dtype === "f32" && !isAdded && !bias,
  ],
  [
    ({ args: { x, w }, choice }) => choice.staging === "plain" && Boolean(x.traits.scales || w.traits.scales),
    ({ args: { out }, alpha, isAdded, fitsBias }) =>
      out.dtype !== UNSCALED && alpha === 1 && !isAdded && fitsBias,
  ],
  [
    ({ type }) => BLAS_TYPES[type].kind === "half",
    ({ args: { c, out }, type, isAdded, fitsBias }) =>
      (!isAdded || c?.dtype === out.dtype) && (out.dtype === "f32" || out.dtype === type) && fitsBias,
  ],
  [() => true, ({ args: { c, out }, isAdded, fitsBias }) => (!isAdded || c?.dtype === out.dtype) && fitsBias],
];

/** Whether cuBLASLt's epilogue was measured to be bitwise equal to ours for this product. */
function isFusable(context: AttemptContext): boolean {
  const { c, bias, out } = context.args;
  const [type] = context.types;
  const product: Fusing = {
    ...context,
    type,
    columns: extentOf(context.args.w)[0],
    alpha: Math.fround(context.args.alpha),
    isAdded: Math.fround(context.args.beta) !== 0 && c !== undefined,
    fitsBias: !bias || (isWide(out.dtype) && bias.dtype === biasType(type, out.dtype)),
  };
  if (NOT_FUSED.some(([, applies]) => applies(product))) return false;
  return FUSED.find(([applies]) => applies(product))?.[1](product) ?? false;
}

/**
 * Whether alpha and beta must be read on the device, because they include factors that cuBLASLt does not accept as scales of
 * the operands.
 */
function readsScalars(args: GemmArgs, type: BlasType): boolean {
  const { x, w } = args;
  if (x.amax || w.amax || isAddedInPlace(args)) return true;
  return BLAS_TYPES[type].bits > 8 && (x.tensorScale !== undefined || w.tensorScale !== undefined);
}

/**
 * Whether the result is added to `out` itself. Some kernels of cuBLASLt then round the result before they add it to memory, so
 * that it is rounded twice. They are chosen only if the host passes beta = 1, so beta is passed on the device.
 */
export function isAddedInPlace({ beta, c, out }: GemmArgs): boolean {
  return c !== undefined && c.address === out.address && Math.fround(beta) === 1;
}

interface AttemptKind {
  readonly fused: boolean;
  readonly padded: boolean;
}

function attempt(context: AttemptContext, { fused, padded }: AttemptKind): Attempt {
  const { args, choice, alignment, types } = context;
  const [x, w] = stage(context, padded);
  const [type] = types;
  const out = fused ? (args.out.dtype as BlasType & GemmOutDType) : "f32";
  const isFp8 = BLAS_TYPES[type].kind === "fp8";
  const deviceScalars = fused && readsScalars(args, type);
  const takesScales = fused && isFp8 && !deviceScalars;
  const { batch = 1 } = args;
  const pitch = roundUp(w.lines, alignment.rowBits / BLAS_TYPES[out].bits);
  const product: BlasProduct = {
    x: { ...x, pitch: pitchOf(x), scale: x.scale ?? tensorScale(takesScales, args.x) },
    w: { ...w, pitch: pitchOf(w), scale: w.scale ?? tensorScale(takesScales, args.w) },
    depth: x.depth,
    out: { type: out, pitch },
    bias: fused ? args.bias?.dtype : undefined,
    preGelu: fused ? args.preGelu?.dtype : undefined,
    fastAccumulation: isFp8 && choice.promotion === "none" && !x.scale,
    tf32: isTf32(choice),
    deviceScalars,
    ...(batch > 1 ? { batch: { count: batch, x: sizeOf(x), w: sizeOf(w), out: x.lines * pitch } } : {}),
  };
  return { x, w, staging: choice.staging, fused, product };
}

function sizeOf({ lines, depth }: StagedOperand): number {
  return lines * depth;
}

function pitchOf({ transposed, lines, depth }: StagedOperand): number {
  return transposed ? lines : depth;
}

function tensorScale(isApplied: boolean, operand: GemmOperand): "tensor" | undefined {
  return isApplied && operand.tensorScale ? "tensor" : undefined;
}

/**
 * Decides how each operand is staged; both get the same depth. An operand is read in place if its rows are aligned, else copied
 * and padded with zeros.
 */
function stage({ args, choice, alignment, types }: AttemptContext, padded: boolean) {
  const { rowBits, paddedLines, paddedBits } = alignment;
  const candidates = [args.x, args.w].map((operand, i) => {
    const [lines, depth] = extentOf(operand);
    const type = types[i] as BlasType;
    const scale = scaleOf(operand, type, choice) as StagedOperand["scale"];
    const isHalf = BLAS_TYPES[type].kind === "half";
    const pitch = operand.transposed ? lines : depth;
    const isAligned =
      isMultipliedAsStored(operand, choice.staging) &&
      (!operand.transposed || isHalf) &&
      (pitch * BLAS_TYPES[type].bits) % rowBits === 0 &&
      (choice.promotion === "none" || !scale || depth % 128 === 0);
    return {
      lines: padded ? roundUp(lines, paddedLines) : lines,
      extent: { lines, depth },
      step: (padded || scale ? paddedBits : rowBits) / BLAS_TYPES[type].bits,
      type,
      scale,
      isAligned,
      transposed: operand.transposed ?? false,
    };
  }) as [Staging, Staging];
  const [x, w] = candidates;
  const step = Math.max(x.step, w.step);
  const depth = padded || !x.isAligned || !w.isAligned ? roundUp(x.extent.depth, step) : x.extent.depth;
  return candidates.map(({ lines, extent, type, scale, isAligned, transposed }): StagedOperand => {
    const copied = !isAligned || lines !== extent.lines || depth !== extent.depth;
    return { lines, depth, type, copied, transposed: transposed && !copied, scale };
  }) as [StagedOperand, StagedOperand];
}

/** Whether an operand is multiplied in the form in which it is stored, because `staging` would not change its elements. */
export function isMultipliedAsStored({ traits: { format } }: GemmOperand, staging: StagingName): boolean {
  const type = STAGED_AS[staging];
  return !type || format === type;
}

interface Staging {
  readonly lines: number;
  readonly extent: { readonly lines: number; readonly depth: number };
  readonly step: number;
  readonly type: BlasType;
  readonly scale: StagedOperand["scale"];
  readonly isAligned: boolean;
  readonly transposed: boolean;
}
