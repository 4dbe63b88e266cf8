/** Products of a few bf16 rows with codes by our kernel for Hopper (kernels/gemm/few-rows.h). */
import type { BlockScaleFormat } from "../../../formats/datapath.js";
import type { ScalarFormat } from "../../../formats/scalar.js";
import { extentOf, type GemmArgs, type GemmOperand } from "../../ops/gemm.js";
import type { DeviceFacts } from "../addon.js";
import { isMultipliedAsStored, type ServedChoice } from "./attempt.js";

/** The elements along K that the kernel copies at once. The slice of K of every split is a multiple of it. */
const STEP = 128;
const MAX_ROWS = 64;
const MAX_SPLITS = 32;
/** The columns of a block, the maximum number of slices of K in a block, and of blocks in a cluster. */
const BLOCK_COLUMNS = 64;
const MAX_BLOCK_SLICES = 4;
const MAX_CLUSTER = 8;

/** The weights that the kernel reads: the format of codes, and of scales for each `length` elements along K. */
interface Weight {
  readonly format: ScalarFormat;
  readonly scales?: { readonly format: BlockScaleFormat; readonly length: number };
}

const WEIGHTS: readonly Weight[] = [
  { format: "e2m1", scales: { format: "e4m3", length: 16 } },
  { format: "e2m1", scales: { format: "e8m0", length: 32 } },
  { format: "e4m3" },
  { format: "e4m3", scales: { format: "e8m0", length: 32 } },
  { format: "e4m3", scales: { format: "f32", length: STEP } },
];

/**
 * Returns the number of splits of K with which the kernel computes a product, or undefined if it does not compute it. A splitK of
 * "auto" is chosen by N and K, so that the bits of a row do not depend on the number of rows.
 */
export function fewRowsSplits(args: GemmArgs, choice: ServedChoice, facts: DeviceFacts): number | undefined {
  const { x, w, batch = 1, algorithm, preGelu, splitK } = args;
  const [rows, depth] = extentOf(x);
  const isServed =
    facts.major === 9 &&
    facts.minor === 0 &&
    choice.name === "hopper-half" &&
    isMultipliedAsStored(x, choice.staging) &&
    !x.transposed &&
    isWeight(w) &&
    batch === 1 &&
    !algorithm &&
    !preGelu &&
    rows <= MAX_ROWS &&
    depth % STEP === 0;
  if (!isServed) return undefined;
  if (splitK === "auto") return chosenSplits(extentOf(w)[0], depth, choice.splitTile);
  return hasSplits(splitK, depth, choice.splitTile) ? splitK : undefined;
}

/** Whether the kernel reads this weight: its formats, and scales of a line next to each other, aligned for copies of one step. */
function isWeight({ traits, transposed, blockScales }: GemmOperand): boolean {
  const { format, scales } = traits;
  const weight = WEIGHTS.find(
    (each) =>
      each.format === format &&
      each.scales?.format === scales?.format &&
      each.scales?.length === scales?.length,
  );
  if (!weight || transposed) return false;
  if (!scales || !blockScales) return true;
  const { blockStride, lineStride } = blockScales;
  return blockStride === 1 && (scales.format === "f32" || lineStride % (STEP / scales.length) === 0);
}

function hasSplits(splits: number, depth: number, splitTile: number): boolean {
  const length = Math.ceil(Math.ceil(depth / splitTile) / splits) * splitTile;
  return splits <= MAX_SPLITS && splits / slicesOfBlock(splits) <= MAX_CLUSTER && length % STEP === 0;
}

/** The number of slices of K in a block, as the launcher chooses it. */
function slicesOfBlock(splits: number): number {
  for (let slices = MAX_BLOCK_SLICES; slices > 1; slices--) if (splits % slices === 0) return slices;
  return 1;
}

/** The number of thread blocks that fills an H200 (measured): it does not run more blocks of clusters at a time. */
const ENOUGH_BLOCKS = 96;

/** Returns the smallest of 4, 8 and 16 splits that gives enough blocks, else the largest possible one of them, else 1. */
function chosenSplits(columns: number, depth: number, splitTile: number): number {
  const blocks = Math.ceil(columns / BLOCK_COLUMNS);
  const candidates = [MAX_BLOCK_SLICES, 2 * MAX_BLOCK_SLICES, 4 * MAX_BLOCK_SLICES].filter((splits) =>
    hasSplits(splits, depth, splitTile),
  );
  const enough = candidates.find((splits) => (blocks * splits) / MAX_BLOCK_SLICES >= ENOUGH_BLOCKS);
  return enough ?? candidates.at(-1) ?? 1;
}
