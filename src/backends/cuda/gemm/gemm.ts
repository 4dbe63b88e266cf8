/** Matrix products on a GPU. cuBLASLt computes them on tensor cores; our own kernel computes the datapath fp32. */
import { STAGING } from "../../../formats/contract.gen.js";
import { wordOf } from "../../../formats/derive.js";
import type { GemmAlgorithm } from "../../../formats/gemm-algorithm.js";
import { isWide, roundUp, storageBits, type WideDType } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import { extentOf, type GemmArgs, type GemmOperand, hasLineAmaxes } from "../../ops/gemm.js";
import type { NativeArgs } from "../addon.js";
import { addressOf, type Lowering, type LoweringContext } from "../lowering.js";
import { isMultipliedAsStored } from "./attempt.js";
import { type Route, routeOf } from "./route.js";
import {
  blockScalesOf,
  copyBytes,
  relayoutScales,
  scaleAddress,
  scaleBytes,
  stageOperand,
  targetOf,
} from "./staging.js";

export const gemm: Lowering<"gemm"> = {
  supports: (args, context) => routeOf(context, args).support,
  run(context, args) {
    const route = routeOf(context, args);
    if (route.kind === "empty") finish(context, args, { splits: 1 });
    if (route.kind === "plain") multiplyByPlainKernel(context, args);
    if (route.kind === "fewRows") multiplyFewRows(context, args, route.splits);
    if (route.kind === "blas") multiplyByLibrary(context, args, route);
    args.progress?.(1);
  },
};

/** Returns the cuBLASLt algorithm that `gemm.run` uses, or undefined if our own kernel computes the product. */
export function algorithmFor(context: LoweringContext, args: GemmArgs): GemmAlgorithm | undefined {
  const route = routeOf(context, args);
  return route.kind === "blas" ? route.algorithm : undefined;
}

/** Returns the number of splits of K with which `gemm.run` computes a supported product. */
export function splitKFor(context: LoweringContext, args: GemmArgs): number {
  const route = routeOf(context, args);
  if (route.kind === "blas" || route.kind === "fewRows") return route.splits;
  return args.splitK === "auto" ? 1 : args.splitK;
}

/** Calls `body` with the addresses of temporary blocks of these sizes. The address is 0 for size 0. */
function withTemporaries(
  context: LoweringContext,
  sizes: readonly number[],
  body: (addresses: readonly number[]) => void,
): void {
  const addresses = sizes.map(() => 0);
  const taking = (i: number): void => {
    const bytes = sizes[i];
    if (bytes === undefined) body(addresses);
    else if (bytes === 0) taking(i + 1);
    else
      context.withTemporary(bytes, (address) => {
        addresses[i] = address;
        taking(i + 1);
      });
  };
  taking(0);
}

/** Converts the operands to f32 and computes acc = acc + a * b in f32, with k ascending. */
function multiplyByPlainKernel(context: LoweringContext, args: GemmArgs): void {
  const { addon, device } = context;
  const { batch = 1 } = args;
  const [[rows, depth], [columns]] = [extentOf(args.x), extentOf(args.w)];
  const pitch = roundUp(depth, PLAIN_STEP);
  const bytes = (operand: GemmOperand, lines: number): number =>
    isPlain(operand) ? 0 : batch * lines * pitch * 4;
  const sizes = [bytes(args.x, rows), bytes(args.w, columns), batch * rows * columns * 4];
  withTemporaries(context, sizes, ([x, w, sums = 0]) => {
    const copy = { staging: STAGING.scaled, outPitch: pitch * 4 };
    if (x) stageOperand(context, args.x, { out: x, outLines: rows, ...copy }, batch);
    if (w) stageOperand(context, args.w, { out: w, outLines: columns, ...copy }, batch);
    addon.gemmPlain(device, {
      batch,
      x: x ? { address: x } : args.x.data,
      w: w ? { address: w } : args.w.data,
      xPitch: pitch,
      wPitch: pitch,
      rows,
      columns,
      depth,
      out: { address: sums },
      outPitch: columns,
    });
    finish(context, args, { sums, sumsPitch: columns, splits: 1 });
  });
}

/** The number of f32 elements that our kernel loads at once. */
const PLAIN_STEP = 4;

/** Whether our kernel can read an operand in place. */
function isPlain({ data, transposed, blockScales }: GemmOperand): boolean {
  return data.dtype === "f32" && !transposed && !blockScales && (data.shape.at(-1) ?? 0) % PLAIN_STEP === 0;
}

/** Multiplies a few bf16 rows by codes. The kernel applies the factors, unless our epilogue has more to do. */
function multiplyFewRows(context: LoweringContext, args: GemmArgs, splits: number): void {
  const { addon, device } = context;
  const { x, w, out } = args;
  const [[rows, depth], [columns]] = [extentOf(x), extentOf(w)];
  const product = {
    x: x.data,
    data: w.data,
    word: wordOf(w.traits.format),
    scales: blockScalesOf(w),
    rows,
    columns,
    depth,
    splits,
  };
  if (isScaledOnly(args)) {
    addon.gemmFewRows(device, { factors: factors(args), ...product, out: out as Tensor<WideDType> });
    return;
  }
  context.withTemporary(rows * columns * 4, (sums) => {
    const target = { address: sums, dtype: "f32" } as const;
    addon.gemmFewRows(device, { factors: { alpha: 1, inverse: 1 }, ...product, out: target });
    finish(context, args, { sums, sumsPitch: columns, splits });
  });
}

/** Whether a result is its sum times factors of the whole product, rounded to a wide dtype. */
function isScaledOnly(args: GemmArgs): boolean {
  const { x, w, beta, bias, out } = args;
  return (
    Math.fround(beta) === 0 &&
    !bias &&
    isWide(out.dtype) &&
    !x.lineScales &&
    !w.lineScales &&
    !hasLineAmaxes(args)
  );
}

function multiplyByLibrary(context: LoweringContext, args: GemmArgs, route: BlasRoute): void {
  const { x, w, fused, product } = route.attempt;
  const { batch = 1 } = args;
  const sizes = [
    copyBytes(x, batch),
    copyBytes(w, batch),
    scaleBytes(args.x, x),
    scaleBytes(args.w, w),
    fused ? 0 : batch * x.lines * product.out.pitch * 4,
    product.deviceScalars ? 8 : 0,
  ];
  if (sizes.every((bytes) => bytes === 0)) launchProducts(context, args, route, NO_TEMPORARIES);
  else withTemporaries(context, sizes, (addresses) => stageAndMultiply(context, args, route, addresses));
}

type BlasRoute = Route & { readonly kind: "blas" };

/** The addresses of a product's temporary memory. An address is 0 if that block is not needed. */
interface Temporaries {
  readonly xCopy: number;
  readonly wCopy: number;
  readonly xScales: number;
  readonly wScales: number;
  readonly sums: number;
  readonly scalars: number;
}

const NO_TEMPORARIES: Temporaries = { xCopy: 0, wCopy: 0, xScales: 0, wScales: 0, sums: 0, scalars: 0 };

/** Stages the operands and multiplies. Then runs our epilogue, unless cuBLASLt's epilogue has finished the result. */
function stageAndMultiply(
  context: LoweringContext,
  args: GemmArgs,
  route: BlasRoute,
  [xCopy = 0, wCopy = 0, xScales = 0, wScales = 0, sums = 0, scalars = 0]: readonly number[],
): void {
  const { addon, device } = context;
  const { attempt, splits } = route;
  const { batch = 1 } = args;
  const { x, w, fused, product } = attempt;
  const stagingOf = (operand: GemmOperand) =>
    STAGING[isMultipliedAsStored(operand, attempt.staging) ? "plain" : attempt.staging];
  if (xCopy) stageOperand(context, args.x, { staging: stagingOf(args.x), out: xCopy, ...targetOf(x) }, batch);
  if (wCopy) stageOperand(context, args.w, { staging: stagingOf(args.w), out: wCopy, ...targetOf(w) }, batch);
  if (xScales) relayoutScales(context, args.x, x, xScales);
  if (wScales) relayoutScales(context, args.w, w, wScales);
  if (scalars)
    addon.gemmAlpha(device, { factors: factors(args), beta: args.beta, out: { address: scalars } });
  launchProducts(context, args, route, { xCopy, wCopy, xScales, wScales, sums, scalars });
  if (!fused) finish(context, args, { sums, sumsPitch: product.out.pitch, sumsLines: x.lines, splits });
}

function launchProducts(
  { addon, device }: LoweringContext,
  args: GemmArgs,
  { attempt: { fused }, products }: BlasRoute,
  { xCopy, wCopy, xScales, wScales, sums, scalars }: Temporaries,
): void {
  const isAddedByProduct = fused && Math.fround(args.beta) !== 0;
  for (const product of products) {
    const isFirst = product === products[0];
    addon.gemm(device, {
      plan: product.plan,
      a: wCopy || args.w.data.address,
      aOffset: product.wOffset,
      b: xCopy || args.x.data.address,
      bOffset: product.xOffset,
      c: isAddedByProduct ? addressOf(args.c) : undefined,
      d: sums || args.out.address,
      aScale: wScales || scaleAddress(args.w),
      bScale: xScales || scaleAddress(args.x),
      bias: fused ? addressOf(args.bias) : undefined,
      aux: addressOf(args.preGelu),
      alpha: fused ? args.alpha : 1,
      beta: !isFirst ? 1 : isAddedByProduct ? args.beta : 0,
      scalars: scalars || undefined,
    });
  }
}

/**
 * Returns the factors of the sums: alpha, the amaxes of NVFP4 operands, and the scales of tensors or of lines. If lines have
 * amaxes, no amax is a factor here.
 */
function factors({ alpha, w, x }: GemmArgs): NativeArgs<"gemmAlpha">["factors"] {
  const outside = hasLineAmaxes({ x, w });
  return {
    alpha,
    amaxW: outside ? undefined : w.amax,
    amaxX: outside ? undefined : x.amax,
    inverse: 1 / ((w.amaxDivisor ?? 1) * (x.amaxDivisor ?? 1)),
    scaleW: w.lineScales ?? w.tensorScale,
    scaleX: x.lineScales ?? x.tensorScale,
  };
}

interface Sums {
  /** The address of the f32 sums. If absent, every sum is zero. */
  readonly sums?: number | undefined;
  readonly sumsPitch?: number;
  /** The number of lines per batch item in `sums`, if it is larger than the number of rows. */
  readonly sumsLines?: number;
  /** The number of splits of K. */
  readonly splits: number;
}

/** Runs our epilogue, which computes the result from the sums, over all batch items at once. */
function finish(
  { addon, device }: LoweringContext,
  args: GemmArgs,
  { sums, sumsPitch = 0, sumsLines, splits }: Sums,
): void {
  const { x, w, batch = 1, c, bias, out, amax } = args;
  const [[rows], [columns]] = [extentOf(x), extentOf(w)];
  const isNarrow = storageBits(out.dtype) === 8;
  const outside = hasLineAmaxes(args);
  addon.gemmEpilogue(device, {
    factors: factors(args),
    linesW: w.lineScales !== undefined,
    linesX: x.lineScales !== undefined,
    lineAmaxesW: w.lineAmaxes !== undefined,
    lineAmaxesX: x.lineAmaxes !== undefined,
    amaxW: outside ? (w.lineAmaxes ?? w.amax) : undefined,
    amaxX: outside ? (x.lineAmaxes ?? x.amax) : undefined,
    sums: sums === undefined ? undefined : { address: sums },
    sumsPitch,
    sumsSkipped: (sumsLines ?? rows) - rows,
    rows: rows * batch,
    itemRows: Math.max(rows, 1),
    columns,
    beta: args.beta,
    c: Math.fround(args.beta) === 0 ? undefined : c,
    split: splits > 1,
    bias,
    out,
    word: wordOf(out.dtype),
    outScale: isNarrow ? args.outScale : 1,
    amax,
  });
}
