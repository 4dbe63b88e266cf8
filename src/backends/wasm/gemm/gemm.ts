/** Matrix products on the reference. */
import { unknownOrder, unverifiedVersion } from "../../../formats/chips.js";
import { GEMM_TASK, KERNEL, OVERFLOW, PROMOTION, STAGING, WIDE } from "../../../formats/contract.gen.js";
import {
  DATAPATHS,
  type DatapathName,
  type DatapathRow,
  datapathFor,
  isNarrow,
} from "../../../formats/datapath.js";
import { unsignedWordOf, wordOf } from "../../../formats/derive.js";
import { byteLength, storageBits } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { Agreement, Support } from "../../backend.js";
import { extentOf, type GemmArgs, type GemmOperand, hasLineAmaxes } from "../../ops/gemm.js";
import type { ExportArgs } from "../call.js";
import { transposeCodes } from "../layout/layout.js";
import type { Lowering, LoweringContext } from "../lowering.js";

const NULL = 0;
/** The number of jobs into which a product with a `progress` callback is divided. */
const PROGRESS_JOBS = 100;

export const gemm: Lowering<"gemm"> = {
  supports: (args) => choose(args),
  run(context, args) {
    const choice = choose(args);
    if (!choice.ok) return;
    args.amax?.write(Float32Array.of(0));
    if (args.out.size === 0) return;
    const { batch = 1 } = args;
    for (let item = 0; item < batch; item++) multiply(context, args, choice, item);
  },
};

/** Computes one product of a batch. */
function multiply(
  context: LoweringContext,
  args: GemmArgs,
  choice: Choice & { readonly ok: true },
  item: number,
): void {
  const { batch = 1, progress } = args;
  const [rows, depth] = extentOf(args.x);
  const [columns] = extentOf(args.w);
  const staging = STAGING[choice.staging];
  context.withTemporary(rows * columns * 4, (output) => {
    withLines(context, args, "x", item, (x) =>
      withLines(context, args, "w", item, (w) => {
        const task = {
          x: operandOf({ address: x, staging, ...args.x }),
          w: operandOf({ address: w, staging, ...args.w }),
          rows,
          columns,
          depth,
          output,
          ...datapathOf(args, choice),
        };
        accumulate(
          context,
          task,
          rows * columns * depth,
          progress && ((done) => progress((item + done) / batch)),
        );
      }),
    );
    finish(context, output, args, item);
  });
}

/** Returns the address of item `item` of a batch. */
function addressIn(tensor: Tensor, { batch = 1 }: GemmArgs, item: number): number {
  return tensor.address + (tensor.byteLength / batch) * item;
}

/**
 * Calls `body` with the address of an operand as [lines, K]: the operand itself, or a transposed copy if it is stored as [K,
 * lines].
 */
function withLines(
  context: LoweringContext,
  args: GemmArgs,
  name: "x" | "w",
  item: number,
  body: (address: number) => void,
): void {
  const { data, transposed } = args[name];
  const from = addressIn(data, args, item);
  if (!transposed) {
    body(from);
    return;
  }
  const [lines, depth] = extentOf(args[name]);
  context.withTemporary(byteLength(data.dtype, [lines, depth]), (address) => {
    transposeCodes(context, from, depth, lines, storageBits(data.dtype), address);
    body(address);
  });
}

const FUSED_GELU = "the fused GELU is a GPU library's unpublished approximation; use geluEpilogue exact";

type Choice = Support & ReturnType<typeof datapathFor>;

function choose(args: GemmArgs): Choice {
  const { datapath, x, w, splitAccumulator, algorithm, preGelu } = args;
  if (preGelu) return { ok: false, reason: FUSED_GELU };
  const choice = datapathFor(datapath, x.traits, w.traits, splitAccumulator);
  if (!choice.ok) return choice;
  const unknown = algorithm && unknownOrder(algorithm);
  if (unknown) return { ok: false, reason: unknown };
  const row: DatapathRow = DATAPATHS[choice.name];
  if (splitsOf(args) > 1 && choice.splitTile === 0)
    return { ok: false, reason: `datapath ${choice.name} has no rule for split-K; use splitK 1` };
  const agrees: Agreement = row.approximate ? { approximate: row.approximate } : "bits";
  const unverified = row.measured ? algorithm && unverifiedVersion(algorithm.version) : row.source;
  return unverified === undefined ? { ...choice, agrees } : { ...choice, agrees, unverified };
}

function splitsOf({ splitK }: GemmArgs): number {
  return splitK === "auto" ? 1 : splitK;
}

function kernelFor(name: DatapathName, { x, w }: GemmArgs): number {
  const row: DatapathRow = DATAPATHS[name];
  if (!row.dotAdd) return name === "exact" ? KERNEL.exact : KERNEL.plain;
  if (isNarrow(name, x.traits, w.traits)) return KERNEL.narrow;
  return row.dotAdd.group === 1 && row.dotAdd.alignBits <= 25 ? KERNEL.wide : KERNEL.scalar;
}

/** Returns the fields of a task that the datapath determines. */
function datapathOf(args: GemmArgs, choice: Choice & { readonly ok: true }) {
  const row: DatapathRow = DATAPATHS[choice.name];
  const { zeroOperand, ...dotAdd } = row.dotAdd ?? NO_STEP;
  return {
    kernel: kernelFor(choice.name, args),
    step: dotAdd.step,
    alignBits: dotAdd.alignBits,
    fractionBits: dotAdd.fractionBits,
    zeroOperand: zeroOperand === "none" ? GEMM_TASK.noExponent : zeroOperand,
    zeroAccumulator: dotAdd.zeroAccumulator,
    group: dotAdd.group,
    promotion: PROMOTION[choice.promotion],
    interval: choice.promotion === "none" ? 0 : row.promotionInterval,
    splits: splitsOf(args),
    splitTile: choice.splitTile,
  };
}

const NO_STEP = {
  step: 0,
  alignBits: 0,
  fractionBits: 0,
  zeroOperand: 0,
  zeroAccumulator: 0,
  group: 1,
} as const;

interface OperandInMemory extends GemmOperand {
  /** The address of the operand as [lines, K]. */
  readonly address: number;
  readonly staging: number;
}

/** The block scales of an operand that has none. */
export const NO_SCALES = {
  scale: NULL,
  scaleWord: 0,
  block: 0,
  rowShift: 0,
  rowStride: 0,
  blockStride: 0,
} as const;

function operandOf({ data, traits, blockScales, address, staging }: OperandInMemory) {
  const codes = { width: storageBits(data.dtype), word: wordOf(traits.format), staging };
  if (!blockScales || !traits.scales) return { data: address, ...codes, ...NO_SCALES };
  const { tensor, lines, length, lineStride, blockStride } = blockScales;
  return {
    data: address,
    ...codes,
    scale: tensor.address,
    scaleWord: unsignedWordOf(traits.scales.format),
    block: length,
    rowShift: Math.log2(lines),
    rowStride: lineStride,
    blockStride,
  };
}

/** Runs all work units of a product, as several jobs if there is a `progress` callback. */
function accumulate(
  context: LoweringContext,
  task: ExportArgs<"gemm">,
  work: number,
  progress: GemmArgs["progress"],
): void {
  const { pool } = context;
  const units = pool.call("gemmUnits", task);
  const scratch = pool.call("gemmScratch", task);
  const stride = progress ? Math.max(pool.size, Math.ceil(units / PROGRESS_JOBS)) : units;
  for (let first = 0; first < units; first += stride) {
    const job = { first, total: Math.min(stride, units - first), weight: Math.ceil(work / units), scratch };
    pool.run("gemm", job, task);
    progress?.(Math.min(1, (first + stride) / units));
  }
}

function numberIn(tensor: Tensor<"f32"> | undefined): number {
  return tensor?.dataSync()[0] ?? 1;
}

/**
 * Returns alpha multiplied by the amaxes of NVFP4 operands: ((alpha * amaxW) * amaxX) * (1 / divisors). The divisors are
 * multiplied and inverted first. Every operation is rounded to f32. If lines have amaxes, alpha includes no amax (numerics.md
 * §5.10).
 */
function fullAlpha({ alpha, w, x }: GemmArgs): number {
  if (!w.amaxDivisor && !x.amaxDivisor) return alpha;
  const inverse = Math.fround(1 / ((w.amaxDivisor ?? 1) * (x.amaxDivisor ?? 1)));
  const [ofW, ofX] = hasLineAmaxes({ w, x }) ? [1, 1] : [numberIn(w.amax), numberIn(x.amax)];
  const scaled = Math.fround(Math.fround(Math.fround(alpha) * ofW) * ofX);
  return Math.fround(scaled * inverse);
}

function finish({ pool }: LoweringContext, output: number, args: GemmArgs, item: number): void {
  const { w, x, beta, c, bias, out, outScale, amax } = args;
  const [[rows], [columns]] = [extentOf(x), extentOf(w)];
  const hasLineScales = w.lineScales !== undefined || x.lineScales !== undefined;
  const narrow = storageBits(out.dtype) === 8;
  const scales = {
    alpha: fullAlpha(args),
    scaleA: hasLineScales ? 1 : numberIn(w.tensorScale),
    scaleB: hasLineScales ? 1 : numberIn(x.tensorScale),
    lineScaleW: hasLineScales ? addressOf(w.lineScales ?? w.tensorScale) : NULL,
    lineStrideW: w.lineScales ? 1 : 0,
    lineScaleX: hasLineScales ? addressOf(x.lineScales ?? x.tensorScale) : NULL,
    lineStrideX: x.lineScales ? 1 : 0,
  };
  const amaxes = {
    hasLineAmaxes: hasLineAmaxes(args),
    lineAmaxW: addressOf(w.lineAmaxes ?? w.amax),
    lineAmaxStrideW: w.lineAmaxes ? 1 : 0,
    lineAmaxX: addressOf(x.lineAmaxes ?? x.amax),
    lineAmaxStrideX: x.lineAmaxes ? 1 : 0,
  };
  const job = { total: rows, weight: columns * 4 };
  pool.run("gemmEpilogue", job, {
    output,
    rows,
    columns,
    splits: splitsOf(args),
    ...scales,
    ...amaxes,
    beta,
    addend: c ? addressIn(c, args, item) : NULL,
    addendType: c ? WIDE[c.dtype] : WIDE.f32,
    bias: addressOf(bias),
    biasType: bias ? WIDE[bias.dtype] : WIDE.f32,
    target: addressIn(out, args, item),
    targetWord: wordOf(out.dtype),
    targetOverflow: narrow ? OVERFLOW.saturate : OVERFLOW.nonfinite,
    targetScale: narrow ? outScale : 1,
    amax: addressOf(amax),
  });
}

function addressOf(tensor: Tensor | undefined): number {
  return tensor?.address ?? NULL;
}
