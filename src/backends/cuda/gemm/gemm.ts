/** Matrix products on a GPU: cuBLASLt on tensor cores, our own kernel for the datapath fp32. */
import { STAGING, WIDE } from "../../../formats/contract.gen.js";
import { STAGED_AS } from "../../../formats/datapath.js";
import { wordOf } from "../../../formats/derive.js";
import type { GemmAlgorithm } from "../../../formats/gemm-algorithm.js";
import { roundUp, storageBits } from "../../../tensor/shape.js";
import { extentOf, type GemmArgs, type GemmOperand } from "../../gemm-args.js";
import type { NativeArgs } from "../addon.js";
import { addressOf, type Lowering, type LoweringContext } from "../lowering.js";
import { type Route, routeOf } from "./route.js";
import { copyBytes, layScales, scaleAddress, scaleBytes, stageOperand, targetOf } from "./staging.js";

export const gemm: Lowering<"gemm"> = {
  supports: (args, context) => routeOf(context, args).support,
  run(context, args) {
    const route = routeOf(context, args);
    if (route.kind === "empty") finish(context, args, { parts: 1 });
    if (route.kind === "plain") multiplyPlainly(context, args);
    if (route.kind === "blas") multiplyByLibrary(context, args, route);
    args.progress?.(1);
  },
};

/** The algorithm by which `gemm.run` computes; undefined for our own kernels. */
export function algorithmFor(context: LoweringContext, args: GemmArgs): GemmAlgorithm | undefined {
  const route = routeOf(context, args);
  return route.kind === "blas" ? route.algorithm : undefined;
}

/** Calls `body` with an address for each size, 0 for none. */
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

/** acc = acc + a * b in f32, k ascending, on operands as f32 values. */
function multiplyPlainly(context: LoweringContext, args: GemmArgs): void {
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
      x: x || args.x.data.address,
      w: w || args.w.data.address,
      xPitch: pitch,
      wPitch: pitch,
      rows,
      columns,
      depth,
      out: sums,
      outPitch: columns,
    });
    finish(context, args, { sums, sumsPitch: columns, parts: 1 });
  });
}

/** Our kernel reads so many f32 at once. */
const PLAIN_STEP = 4;

/** Whether our kernel can read an operand as it lies. */
function isPlain({ data, transposed, blockScales }: GemmOperand): boolean {
  return data.dtype === "f32" && !transposed && !blockScales && (data.shape.at(-1) ?? 0) % PLAIN_STEP === 0;
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
  if (sizes.every((bytes) => bytes === 0)) launchSteps(context, args, route, AS_IT_LIES);
  else withTemporaries(context, sizes, (addresses) => multiplyInSteps(context, args, route, addresses));
}

type BlasRoute = Route & { readonly kind: "blas" };

/** Where a product reads and writes that is not the caller's memory; 0 for none. */
interface Temporaries {
  readonly xCopy: number;
  readonly wCopy: number;
  readonly xScales: number;
  readonly wScales: number;
  readonly sums: number;
  readonly scalars: number;
}

const AS_IT_LIES: Temporaries = { xCopy: 0, wCopy: 0, xScales: 0, wScales: 0, sums: 0, scalars: 0 };

/** Copies what has to be copied, multiplies, and rounds where cuBLASLt does not. */
function multiplyInSteps(
  context: LoweringContext,
  args: GemmArgs,
  route: BlasRoute,
  [xCopy = 0, wCopy = 0, xScales = 0, wScales = 0, sums = 0, scalars = 0]: readonly number[],
): void {
  const { addon, device } = context;
  const { attempt, parts } = route;
  const { batch = 1 } = args;
  const { x, w, fused, product } = attempt;
  const staging = STAGING[STAGED_AS[attempt.staging] ? attempt.staging : "plain"];
  if (xCopy) stageOperand(context, args.x, { staging, out: xCopy, ...targetOf(x) }, batch);
  if (wCopy) stageOperand(context, args.w, { staging, out: wCopy, ...targetOf(w) }, batch);
  if (xScales) layScales(context, args.x, x, xScales);
  if (wScales) layScales(context, args.w, w, wScales);
  if (scalars) addon.gemmAlpha(device, { factors: factors(args), beta: args.beta, out: scalars });
  launchSteps(context, args, route, { xCopy, wCopy, xScales, wScales, sums, scalars });
  if (!fused) finish(context, args, { sums, sumsPitch: product.out.pitch, sumsLines: x.lines, parts });
}

function launchSteps(
  { addon, device }: LoweringContext,
  args: GemmArgs,
  { attempt: { fused }, steps }: BlasRoute,
  { xCopy, wCopy, xScales, wScales, sums, scalars }: Temporaries,
): void {
  const added = fused && Math.fround(args.beta) !== 0;
  for (const step of steps) {
    const isFirst = step === steps[0];
    addon.gemm(device, {
      plan: step.plan,
      a: wCopy || args.w.data.address,
      aOffset: step.wOffset,
      b: xCopy || args.x.data.address,
      bOffset: step.xOffset,
      c: added ? addressOf(args.c) : undefined,
      d: sums || args.out.address,
      aScale: wScales || scaleAddress(args.w),
      bScale: xScales || scaleAddress(args.x),
      bias: fused ? addressOf(args.bias) : undefined,
      aux: addressOf(args.preGelu),
      alpha: fused ? args.alpha : 1,
      beta: !isFirst ? 1 : added ? args.beta : 0,
      scalars: scalars || undefined,
    });
  }
}

/** The factors of the sums: alpha, NVFP4's amaxes, per-tensor scales. */
function factors({ alpha, w, x }: GemmArgs): NativeArgs<"gemmAlpha">["factors"] {
  return {
    alpha,
    amaxW: addressOf(w.amax),
    amaxX: addressOf(x.amax),
    inverse: 1 / ((w.amaxDivisor ?? 1) * (x.amaxDivisor ?? 1)),
    scaleW: addressOf(w.tensorScale),
    scaleX: addressOf(x.tensorScale),
  };
}

interface Sums {
  /** f32; without, every sum is zero. */
  readonly sums?: number | undefined;
  readonly sumsPitch?: number;
  /** Lines of an item, where they are more than its rows. */
  readonly sumsLines?: number;
  /** Parts K was cut in. */
  readonly parts: number;
}

/** From sums to the result, all items of a batch as one. */
function finish(
  { addon, device }: LoweringContext,
  args: GemmArgs,
  { sums, sumsPitch = 0, sumsLines, parts }: Sums,
): void {
  const { x, w, batch = 1, c, bias, out, amax } = args;
  const [[rows], [columns]] = [extentOf(x), extentOf(w)];
  const isNarrow = storageBits(out.dtype) === 8;
  addon.gemmEpilogue(device, {
    factors: factors(args),
    sums,
    sumsPitch,
    sumsSkipped: (sumsLines ?? rows) - rows,
    rows: rows * batch,
    itemRows: rows,
    columns,
    beta: args.beta,
    c: addressOf(c),
    cType: c ? WIDE[c.dtype] : WIDE.f32,
    split: parts > 1,
    bias: addressOf(bias),
    biasType: bias ? WIDE[bias.dtype] : WIDE.f32,
    out: out.address,
    word: wordOf(out.dtype),
    outScale: isNarrow ? args.outScale : 1,
    amax: addressOf(amax),
  });
}
