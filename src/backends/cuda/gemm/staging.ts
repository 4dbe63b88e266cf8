/** Operands of a product as cuBLASLt reads them: copies, rounded or padded, and block scales laid out anew. */
import { STAGING } from "../../../formats/contract.gen.js";
import { factsOf } from "../../../formats/derive.js";
import { extentOf, type GemmBlockScales, type GemmOperand } from "../../gemm-args.js";
import type { NativeArgs } from "../addon.js";
import { addressOf, type LoweringContext } from "../lowering.js";
import type { StagedOperand } from "./attempt.js";
import { BLAS_BITS, type BlasScales, scalesOf } from "./descriptor.js";

/** Where kernels take a format word, this is f32. */
const F32_WORD = 0;
const E8M0_WORD = factsOf("e8m0").word;
/** E4M3 as a scale: its sign is ignored. */
const UE4M3_WORD = factsOf("e4m3").word & ~(1 << 8);

/** Bytes of the copies of an operand's items; 0 where it is read as it lies. */
export function copyBytes({ copied, lines, depth, type }: StagedOperand, batch: number): number {
  return copied ? (batch * lines * depth * BLAS_BITS[type]) / 8 : 0;
}

/** Where and how such a copy lies. */
export function targetOf({ lines, depth, type }: StagedOperand) {
  return { outLines: lines, outPitch: (depth * BLAS_BITS[type]) / 8 };
}

/** The scales of an operand, if they lie as cuBLASLt reads them. */
export function scaleAddress({ blockScales, tensorScale }: GemmOperand): number | undefined {
  return addressOf(blockScales?.tensor ?? tensorScale);
}

/** Bytes of the copy of block scales that cuBLASLt reads; 0 where they lie as it reads them. */
export function scaleBytes({ blockScales }: GemmOperand, { scale, lines, depth }: StagedOperand): number {
  if (!scale || !blockScales) return 0;
  const wanted = scalesOf(scale, lines, depth);
  return liesSo(blockScales, wanted) ? 0 : wanted.bytes;
}

function liesSo({ tensor, lineStride, blockStride }: GemmBlockScales, wanted: BlasScales): boolean {
  return (
    !wanted.swizzled &&
    lineStride === wanted.lineStride &&
    blockStride === wanted.blockStride &&
    tensor.byteLength >= wanted.bytes
  );
}

/** Writes block scales as cuBLASLt reads them. */
export function layScales(
  { addon, device }: LoweringContext,
  operand: GemmOperand,
  { scale, lines, depth }: StagedOperand,
  address: number,
): void {
  const { blockScales } = operand;
  if (!scale || !blockScales) return;
  const [given, length] = extentOf(operand);
  const wanted = scalesOf(scale, lines, depth);
  const scaleLines = Math.ceil(given / blockScales.lines);
  const blocks = Math.ceil(length / blockScales.length);
  addon.relayout(device, {
    wide: blockScales.tensor.dtype === "f32",
    fromScales: blockScales.tensor.address,
    fromScaleBytes: blockScales.tensor.byteLength,
    fromLines: scaleLines,
    fromBlocks: blocks,
    fromLineStride: blockScales.lineStride,
    fromBlockStride: blockScales.blockStride,
    fromSwizzled: false,
    toScales: address,
    toScaleBytes: wanted.bytes,
    toLines: scaleLines,
    toBlocks: blocks,
    toLineStride: wanted.lineStride,
    toBlockStride: wanted.blockStride,
    toSwizzled: wanted.swizzled,
  });
}

interface StagingTarget {
  readonly staging: number;
  readonly out: number;
  readonly outLines: number;
  /** Bytes. */
  readonly outPitch: number;
}

/**
 * Copies an operand to dense lines along K, rounded as `staging` says, zeros beyond its own: the items of a batch, or all
 * as one item, where lines follow on lines in both places.
 */
export function stageOperand(
  { addon, device }: LoweringContext,
  operand: GemmOperand,
  { out, outLines, outPitch, staging }: StagingTarget,
  batch: number,
): void {
  const { data, transposed = false, traits, blockScales } = operand;
  const [lines, depth] = extentOf(operand);
  const together = !transposed && outLines === lines ? batch : 1;
  addon.gemmOperand(device, {
    batch: batch / together,
    data: data.address,
    word: wordOf(traits.format),
    transposed,
    lines: lines * together,
    depth,
    ...(blockScales && staging !== STAGING.plain ? scalesIn(blockScales) : {}),
    staging,
    out,
    outLines: outLines * together,
    outPitch,
  });
}

function scalesIn({ tensor, lines, length, lineStride, blockStride }: GemmBlockScales): NativeArgs {
  return {
    scales: tensor.address,
    scaleWord: tensor.dtype === "e8m0" ? E8M0_WORD : tensor.dtype === "e4m3" ? UE4M3_WORD : F32_WORD,
    lineShift: Math.log2(lines),
    length,
    lineStride,
    blockStride,
  };
}

/** The format word of elements, as kernels read it. */
export function wordOf(format: GemmOperand["traits"]["format"]): number {
  return format === "f32" ? F32_WORD : factsOf(format).word;
}
