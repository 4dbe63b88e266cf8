/** Staging of operands for cuBLASLt: rounded or padded copies of elements, and block scales in cuBLASLt's layout. */
import { STAGING } from "../../../formats/contract.gen.js";
import type { StagingName } from "../../../formats/datapath.js";
import { unsignedWordOf, wordOf } from "../../../formats/derive.js";
import { extentOf, type GemmBlockScales, type GemmOperand } from "../../ops/gemm.js";
import { addressOf, type LoweringContext } from "../lowering.js";
import type { StagedOperand } from "./attempt.js";
import { BLAS_TYPES, type BlasScales, scalesOf } from "./descriptor.js";

/** Returns the size in bytes of an operand's copy for all batch items, or 0 if the operand is read in place. */
export function copyBytes({ copied, lines, depth, type }: StagedOperand, batch: number): number {
  return copied ? (batch * lines * depth * BLAS_TYPES[type].bits) / 8 : 0;
}

/** Returns the layout of an operand's copy. */
export function targetOf({ lines, depth, type }: StagedOperand) {
  return { outLines: lines, outPitch: (depth * BLAS_TYPES[type].bits) / 8 };
}

/** Returns the address of an operand's scales as stored in the tensor, or undefined if it has none. */
export function scaleAddress({ blockScales, tensorScale }: GemmOperand): number | undefined {
  return addressOf(blockScales?.tensor ?? tensorScale);
}

/** Returns the size in bytes of the copy of block scales, or 0 if cuBLASLt can read the scales in place. */
export function scaleBytes({ blockScales }: GemmOperand, { scale, lines, depth }: StagedOperand): number {
  if (!scale || !blockScales) return 0;
  const blasScales = scalesOf(scale, lines, depth);
  return hasLayout(blockScales, blasScales) ? 0 : blasScales.bytes;
}

function hasLayout({ tensor, lineStride, blockStride }: GemmBlockScales, blasScales: BlasScales): boolean {
  return (
    !blasScales.swizzled &&
    lineStride === blasScales.lineStride &&
    blockStride === blasScales.blockStride &&
    tensor.byteLength >= blasScales.bytes
  );
}

/** Copies block scales to the layout that cuBLASLt reads. */
export function relayoutScales(
  { addon, device }: LoweringContext,
  operand: GemmOperand,
  { scale, lines, depth }: StagedOperand,
  address: number,
): void {
  const { blockScales } = operand;
  if (!scale || !blockScales) return;
  const [lineCount, length] = extentOf(operand);
  const blasScales = scalesOf(scale, lines, depth);
  const scaleLines = Math.ceil(lineCount / blockScales.lines);
  const blocks = Math.ceil(length / blockScales.length);
  addon.relayout(device, {
    from: {
      data: blockScales.tensor,
      placement: {
        bytes: blockScales.tensor.byteLength,
        lines: scaleLines,
        blocks,
        lineStride: blockScales.lineStride,
        blockStride: blockScales.blockStride,
        swizzled: false,
      },
    },
    to: { data: { address }, placement: { lines: scaleLines, blocks, ...blasScales } },
    unit: blockScales.tensor.dtype === "f32" ? 4 : 1,
  });
}

interface StagingTarget {
  readonly staging: (typeof STAGING)[StagingName];
  readonly out: number;
  readonly outLines: number;
  /** The distance between consecutive lines, in bytes. */
  readonly outPitch: number;
}

/**
 * Copies an operand so that its lines are contiguous along K, rounded as `staging` says and padded with zeros. The items of a
 * batch are copied one by one, or as a single matrix if neither the operand nor the copy has gaps between items.
 */
export function stageOperand(
  { addon, device }: LoweringContext,
  operand: GemmOperand,
  { out, outLines, outPitch, staging }: StagingTarget,
  batch: number,
): void {
  const { data, transposed = false, traits } = operand;
  const [lines, depth] = extentOf(operand);
  const itemsPerCopy = !transposed && outLines === lines ? batch : 1;
  addon.gemmOperand(device, {
    batch: batch / itemsPerCopy,
    data,
    word: wordOf(traits.format),
    transposed,
    lines: lines * itemsPerCopy,
    depth,
    scales: staging === STAGING.plain ? undefined : blockScalesOf(operand),
    staging,
    out: { address: out },
    outLines: outLines * itemsPerCopy,
    outPitch,
  });
}

/** Returns the block scales of an operand as our kernels take them, or undefined if it has none. */
export function blockScalesOf({ blockScales, traits }: GemmOperand) {
  if (!blockScales || !traits.scales) return undefined;
  const { tensor, lines, length, lineStride, blockStride } = blockScales;
  return {
    data: tensor,
    word: unsignedWordOf(traits.scales.format),
    lineShift: Math.log2(lines),
    length,
    lineStride,
    blockStride,
  };
}
