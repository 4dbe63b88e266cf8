/** Explains why an element of a matrix product has its bits: every step, as plain data. */
import { type GemmArgs, type GemmOperand, type GemmOutDType, hasLineAmaxes } from "../backends/ops/gemm.js";
import { ArgumentError, UnsupportedError } from "../errors.js";
import { unknownOrder } from "../formats/chips.js";
import {
  DATAPATHS,
  type DatapathRow,
  datapathFor,
  type PromotionName,
  type StagingName,
} from "../formats/datapath.js";
import { prepareGemm } from "../ops/gemm/gemm.js";
import { type NamedOperands, operandRows, operandsOf } from "../ops/gemm/named-operands.js";
import type { GemmInput } from "../ops/gemm/operand.js";
import { checkGemm, type GemmSettings } from "../ops/gemm/options.js";
import type { GemmPlan } from "../ops/gemm/plan.js";
import { anything, needed, optionsOf } from "../options.js";
import { Scope } from "../tensor/scope.js";
import { isWide, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { f32Bits } from "./binary.js";
import { indexIn } from "./coordinates.js";
import { fma } from "./exact.js";
import { OperandReader } from "./operands.js";
import { type RoundingExplanation, roundTo } from "./rounding.js";
import { add, div, type ExplainedStep, mul, roundedTo, Steps, wideValue } from "./steps.js";
import { type ExplainedSum, exactSum, fp32Sum, type Lines, tensorCoreSum } from "./sums.js";

/** Options of `gemm` that `explainGemm` refuses, because they add operations to the product. */
const PRODUCT_ONLY_OPTIONS = [
  "out",
  "accumulate",
  "gelu",
  "geluEpilogue",
  "auxDtype",
  "geluInput",
  "biasGradient",
  "progress",
] as const;

/** Options of `explainGemm`: the options of `gemm` that determine an element of its result, and the index of the element. */
export type ExplainGemmOptions = NamedOperands<GemmInput> &
  Omit<GemmSettings, (typeof PRODUCT_ONLY_OPTIONS)[number]> & {
    /** The index of the element in the result, one number for each dimension. */
    readonly at: readonly number[];
  };

/** How one element of a product became its bits. All numbers are f32 values unless they are codes or said to be exact. */
export interface GemmExplanation {
  /** The row of x. */
  readonly row: number;
  /** The row of w, which is the column of the result. */
  readonly column: number;
  /** The number of elements that are summed, K. */
  readonly depth: number;
  /** The plan by which the product is computed. */
  readonly plan: GemmPlan;
  /** How stored elements become the multiplied values. */
  readonly staging: StagingName;
  /** How chains are added to the total. */
  readonly promotion: PromotionName;
  /** Why the result is unverified. Absent if it is verified. */
  readonly unverified?: string;
  /** The sum along K. */
  readonly sum: ExplainedSum;
  /** The steps from the sum to the value before the final cast. */
  readonly epilogue: { readonly steps: readonly ExplainedStep[]; readonly value: number };
  /** The rounding to the type of the result. Absent for f32. */
  readonly rounding?: RoundingExplanation;
  /** The element: its bits and its value. */
  readonly out: { readonly dtype: GemmOutDType; readonly code: number; readonly value: number };
}

/** The datapath and the parameters that decide how K is divided. */
type Choice = ReturnType<typeof datapathFor> & { readonly ok: true };

/**
 * Explains one element of the product that `gemm` computes with the same options: each product with its exponents and the bits
 * that the alignment cuts, the sums of steps, chains and splits, scales, epilogue and cast (datapath.md). The result is plain
 * data and agrees with the reference in every bit. If the number of splits is left to the backend, it is 1. Reads the full
 * operands.
 *
 * @throws `ArgumentError` for an element that does not exist, for an option of `gemm` that adds another operation, and for
 * operands and options that exclude each other. @throws `ShapeError` or `DTypeError` for operands or addends that do not match.
 * @throws `UnsupportedError` if the datapath has no rule for the operands. @throws `DisposedError` for a disposed tensor.
 */
export function explainGemm(options: ExplainGemmOptions): GemmExplanation {
  const { at, ...settings } = requireExplainOptions(options);
  const ownSettings = checkGemm("explainGemm", settings);
  const operands = operandsOf<GemmInput>("explainGemm", ownSettings);
  using _scope = new Scope();
  const { args, planned, shape, columns, dtype } = prepareGemm("explainGemm", operands, ownSettings);
  const index = indexIn("explainGemm", shape, at);
  const choice = choiceFor(args);
  const splits = args.splitK === "auto" ? 1 : args.splitK;
  const row: DatapathRow = DATAPATHS[choice.name];
  const unverified = row.measured ? undefined : row.source;
  const lines = {
    x: new OperandReader(args.x, choice.staging),
    w: new OperandReader(args.w, choice.staging),
    row: Math.floor(index / columns),
    column: index % columns,
  };
  const sum = sumBy(choice, row, splits, lines);
  const epilogue = epilogueOf(args, sum.value, lines, index, splits, dtype);
  const { datapath, splitAccumulator, algorithm } = planned;
  const plan = { datapath, splitAccumulator, splitK: splits, ...(algorithm ? { algorithm } : {}) };
  return {
    row: lines.row,
    column: lines.column,
    depth: lines.x.depth,
    plan,
    staging: choice.staging,
    promotion: choice.promotion,
    ...(unverified === undefined ? {} : { unverified }),
    sum,
    epilogue,
    ...castOf(dtype, epilogue.value, args.outScale),
  };
}

/** Checks that the options are a plain object with an index. `checkGemm` checks the other values. */
const checkOwn = optionsOf<
  Partial<Record<"x" | "w" | "a" | "b" | "layout" | keyof GemmSettings, unknown>> & { at: unknown }
>({
  ...operandRows(anything),
  at: needed(anything),
  alpha: anything,
  beta: anything,
  c: anything,
  out: anything,
  accumulate: anything,
  bias: anything,
  gelu: anything,
  geluEpilogue: anything,
  auxDtype: anything,
  geluInput: anything,
  biasGradient: anything,
  outDtype: anything,
  outScale: anything,
  datapath: anything,
  useSplitAccumulator: anything,
  splitK: anything,
  plan: anything,
  progress: anything,
});

/** Returns a copy of the options. Throws `ArgumentError` unless they are an object without any of `PRODUCT_ONLY_OPTIONS`. */
function requireExplainOptions(options: ExplainGemmOptions): ExplainGemmOptions {
  const ownOptions = checkOwn("explainGemm", options);
  const other = PRODUCT_ONLY_OPTIONS.find(
    (name) => (ownOptions as Partial<GemmSettings>)[name] !== undefined,
  );
  if (other === undefined) return ownOptions;
  throw new ArgumentError(
    `explainGemm: ${other} is no option of an explanation, which ends with the product's own cast; leave it out`,
  );
}

function choiceFor({ datapath, x, w, splitAccumulator, splitK, algorithm }: Omit<GemmArgs, "out">): Choice {
  const choice = datapathFor(datapath, x.traits, w.traits, splitAccumulator);
  const refuse = (reason: string): never => {
    throw new UnsupportedError("explainGemm", reason);
  };
  if (!choice.ok) return refuse(choice.reason);
  const unknown = algorithm && unknownOrder(algorithm);
  if (unknown) return refuse(unknown);
  if (splitK !== "auto" && splitK > 1 && choice.splitTile === 0)
    return refuse(`datapath ${choice.name} has no rule for split-K; use splitK 1`);
  return choice;
}

function sumBy(choice: Choice, row: DatapathRow, splits: number, lines: Lines): ExplainedSum {
  const { dotAdd, promotionInterval } = row;
  if (!dotAdd) return choice.name === "exact" ? exactSum(lines) : fp32Sum(lines);
  const { promotion, splitTile } = choice;
  return tensorCoreSum(lines, { rule: dotAdd, promotion, interval: promotionInterval, splits, splitTile });
}

function numberIn(x: Tensor<"f32"> | undefined): number {
  return x?.dataSync()[0] ?? 1;
}

function elementOf(x: Tensor<WideDType>, index: number): number {
  return wideValue(x.dtype, x.dataSync()[index] as number);
}

/** The scale of an operand's line: the line scale if there are any, else the tensor scale. */
function scaleOf({ lineScales, tensorScale }: GemmOperand, line: number): number {
  return lineScales ? (lineScales.dataSync()[line] as number) : numberIn(tensorScale);
}

/** alpha times the amaxes of NVFP4 operands and the scales of the operands (numerics.md §5.10, datapath.md §2). */
function factorOf(steps: Steps, { alpha, x, w }: Omit<GemmArgs, "out">, { row, column }: Lines): number {
  let s = steps.add("alpha", "alpha", Math.fround(alpha));
  if (x.amaxDivisor || w.amaxDivisor) {
    if (!hasLineAmaxes({ x, w })) {
      s = steps.add("alpha", "alpha ⊗ the amax of w", mul(s, numberIn(w.amax)));
      s = steps.add("alpha", "alpha ⊗ the amax of x", mul(s, numberIn(x.amax)));
    }
    const divisor = (w.amaxDivisor ?? 1) * (x.amaxDivisor ?? 1);
    s = steps.add("alpha", `alpha ⊗ (1 ⊘ ${divisor})`, mul(s, div(1, divisor)));
  }
  if (hasLineScales({ x, w })) return s;
  s = steps.add("s", "alpha ⊗ the scale of w", mul(s, scaleOf(w, column)));
  return steps.add("s", "s ⊗ the scale of x", mul(s, scaleOf(x, row)));
}

function hasLineScales({ x, w }: Pick<GemmArgs, "x" | "w">): boolean {
  return x.lineScales !== undefined || w.lineScales !== undefined;
}

function epilogueOf(
  args: Omit<GemmArgs, "out">,
  sum: number,
  lines: Lines,
  index: number,
  splitsOfK: number,
  dtype: GemmOutDType,
): GemmExplanation["epilogue"] {
  const steps = new Steps();
  const { c, bias, x, w } = args;
  const amaxes = hasLineAmaxes(args);
  const beta = amaxes ? 0 : Math.fround(args.beta);
  const lined = hasLineScales(args);
  const acc = lined
    ? steps.add(
        "acc",
        "(acc ⊗ the scale of w) ⊗ the scale of x",
        mul(mul(sum, scaleOf(w, lines.column)), scaleOf(x, lines.row)),
      )
    : sum;
  const s = factorOf(steps, args, lines);
  const splits = lined ? 1 : splitsOfK;
  let value: number;
  if (lined && s === 1 && (beta === 0 || !c)) {
    value = steps.add("d", "acc, since alpha is 1", acc);
  } else if (beta === 0 || !c) {
    value =
      splits > 1 ? steps.add("d", "s ⊗ acc", mul(s, acc)) : steps.add("d", "fma(s, acc, +0)", fma(s, acc, 0));
  } else {
    const addend = steps.add("C", "the element of c", elementOf(c, index));
    if (splits > 1) {
      const p = steps.add("p", "s ⊗ acc", mul(s, acc));
      value = steps.add("d", "fma(beta, C, p)", fma(beta, addend, p));
    } else {
      const p = steps.add("p", "beta ⊗ C", mul(beta, addend));
      value = steps.add("d", "fma(s, acc, p)", fma(s, acc, p));
    }
  }
  if (amaxes) value = timesAmaxes(steps, value, args, lines);
  if (bias) {
    const addend = steps.add("b", "the element of the bias", elementOf(bias, lines.column));
    value = steps.add("d", "d ⊕ b", add(value, addend));
  }
  if (amaxes && c && Math.fround(args.beta) !== 0) value = plusRounded(steps, value, args, dtype, index);
  return { steps: steps.list, value };
}

/** The amax of an operand's line: the line amax if there are any, else the tensor amax. */
function amaxOf({ lineAmaxes, amax }: GemmOperand, line: number): number {
  return lineAmaxes ? (lineAmaxes.dataSync()[line] as number) : numberIn(amax);
}

/** Multiplies the scaled sum by the amaxes of its two lines (numerics.md §5.10). */
function timesAmaxes(
  steps: Steps,
  value: number,
  { x, w }: Omit<GemmArgs, "out">,
  { row, column }: Lines,
): number {
  const [ofX, ofW] = [amaxOf(x, row), amaxOf(w, column)];
  if ((x.lineAmaxes?.size ?? 1) > 1 && (w.lineAmaxes?.size ?? 1) > 1) {
    const once = steps.add("d", "d ⊗ the amax of the row of x", mul(value, ofX));
    return steps.add("d", "d ⊗ the amax of the row of w", mul(once, ofW));
  }
  const g = steps.add(
    "g",
    "the amax of x ⊗ the amax of w, of a row where rows have their own",
    mul(ofX, ofW),
  );
  return steps.add("d", "d ⊗ g", mul(value, g));
}

/** Rounds the result to its type and adds C (numerics.md §5.10). */
function plusRounded(
  steps: Steps,
  value: number,
  { c, beta }: Omit<GemmArgs, "out">,
  dtype: GemmOutDType,
  index: number,
): number {
  const addend = steps.add("C", "the element of c", c ? elementOf(c, index) : 0);
  const p = steps.add("p", "beta ⊗ C", mul(Math.fround(beta), addend));
  const isRounded = isWide(dtype) && dtype !== "f32";
  const y = isRounded ? steps.add("d", `d, rounded to ${dtype}`, roundedTo(value, dtype)) : value;
  return steps.add("d", "p ⊕ d", add(p, y));
}

function castOf(
  dtype: GemmOutDType,
  value: number,
  outScale: number,
): Pick<GemmExplanation, "rounding" | "out"> {
  if (dtype === "f32") {
    const code = Number.isNaN(value) ? 0x7fffffff : f32Bits(value);
    return { out: { dtype, code, value } };
  }
  const overflow = isWide(dtype) ? "nonfinite" : "saturate";
  const scaled = isWide(dtype) ? value : mul(value, Math.fround(outScale));
  const rounding = roundTo(scaled, { format: dtype, rounding: "tiesToEven", overflow });
  return { rounding, out: { dtype, code: rounding.code, value: rounding.result } };
}
