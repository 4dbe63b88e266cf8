/** Operands of a product as cuBLASLt reads them: copies, rounded or padded, and block scales laid out anew. */
import { STAGING } from "../../../formats/contract.gen.js";
import type { BlockScaleFormat, StagingName } from "../../../formats/datapath.js";
import { unsignedWordOf, wordOf } from "../../../formats/derive.js";
import { extentOf, type GemmBlockScales, type GemmOperand } from "../../gemm-args.js";
import { addressOf, type LoweringContext } from "../lowering.js";
import type { StagedOperand } from "./attempt.js";
import { BLAS_TYPES, type BlasScales, scalesOf } from "./descriptor.js";

/** Bytes of the copies of an operand's items; 0 where it is read as it lies. */
export function copyBytes({ copied, lines, depth, type }: StagedOperand, batch: number): number {
  return copied ? (batch * lines * depth * BLAS_TYPES[type].bits) / 8 : 0;
}

/** Where and how such a copy lies. */
export function targetOf({ lines, depth, type }: StagedOperand) {
  return { outLines: lines, outPitch: (depth * BLAS_TYPES[type].bits) / 8 };
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
    from: {
      scales: blockScales.tensor.address,
      placement: {
        bytes: blockScales.tensor.byteLength,
        lines: scaleLines,
        blocks,
        lineStride: blockScales.lineStride,
        blockStride: blockScales.blockStride,
        swizzled: false,
      },
    },
    to: { scales: address, placement: { lines: scaleLines, blocks, ...wanted } },
  });
}

interface StagingTarget {
  readonly staging: (typeof STAGING)[StagingName];
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
    scales:
      blockScales && traits.scales && staging !== STAGING.plain
        ? scalesIn(blockScales, traits.scales.format)
        : undefined,
    staging,
    out,
    outLines: outLines * together,
    outPitch,
  });
}

function scalesIn(
  { tensor, lines, length, lineStride, blockStride }: GemmBlockScales,
  format: BlockScaleFormat,
) {
  return {
    data: tensor.address,
    word: unsignedWordOf(format),
    lineShift: Math.log2(lines),
    length,
    lineStride,
    blockStride,
  };
}
