/**
 * The approximate instructions of a GPU's special-function unit (numerics.md §7.11), and CUDA's math functions as nvcc 13.0
 * compiles them (docs/special-functions.md), one row each.
 */
import { SPECIAL_FUNCTION, type WIDE } from "./contract.gen.js";

/** One row of `SPECIAL_FUNCTIONS`. */
export interface SpecialFunctionRow {
  /** The number of the instruction or function in the reference and in kernels. */
  readonly kind: number;
  /** The number of its arguments, if it is not 1. */
  readonly arity?: 2;
  /** The type of its arguments and result. */
  readonly dtype: keyof typeof WIDE;
  /** The major compute capability from which on GPUs have the instruction. Absent if all that the library supports have it. */
  readonly leastCapability?: number;
  /**
   * The inputs whose results were compared with chips, and the chips. Of functions of one argument, all inputs were compared with
   * an H200.
   */
  readonly measured: string;
}

const H200 = "all 2^32 inputs on an H200";
const BOTH = `${H200}, 17 special ones on an H100`;
/** Half of the pairs have any bits; the others have exponents near 0. */
const PAIRS = "67,108,864 pairs of inputs on an H200";
const HALF = "all 65,536 inputs on an H200";

/**
 * The instructions by their names in PTX, and the functions by their names in CUDA C++, where `.fast` is the function under
 * -use_fast_math. A function that is compiled to one instruction has the row of the instruction.
 */
export const SPECIAL_FUNCTIONS = {
  "ex2.approx.ftz.f32": {
    kind: SPECIAL_FUNCTION.ex2Ftz,
    dtype: "f32",
    measured: `${BOTH}, [0, 1) on an H100`,
  },
  "ex2.approx.f32": { kind: SPECIAL_FUNCTION.ex2, dtype: "f32", measured: H200 },
  "lg2.approx.ftz.f32": {
    kind: SPECIAL_FUNCTION.lg2Ftz,
    dtype: "f32",
    measured: `${BOTH}, [0.5, 2) on an H100`,
  },
  "lg2.approx.f32": { kind: SPECIAL_FUNCTION.lg2, dtype: "f32", measured: H200 },
  "rcp.approx.ftz.f32": {
    kind: SPECIAL_FUNCTION.rcpFtz,
    dtype: "f32",
    measured: `${BOTH}, [1, 2) on an H100`,
  },
  "rcp.approx.f32": { kind: SPECIAL_FUNCTION.rcp, dtype: "f32", measured: H200 },
  "rsqrt.approx.ftz.f32": {
    kind: SPECIAL_FUNCTION.rsqrtFtz,
    dtype: "f32",
    measured: `${BOTH}, [1, 4) on an H100`,
  },
  "rsqrt.approx.f32": { kind: SPECIAL_FUNCTION.rsqrt, dtype: "f32", measured: H200 },
  "sqrt.approx.ftz.f32": {
    kind: SPECIAL_FUNCTION.sqrtFtz,
    dtype: "f32",
    measured: BOTH,
  },
  "sqrt.approx.f32": { kind: SPECIAL_FUNCTION.sqrt, dtype: "f32", measured: H200 },
  "sin.approx.ftz.f32": { kind: SPECIAL_FUNCTION.sinFtz, dtype: "f32", measured: BOTH },
  "sin.approx.f32": { kind: SPECIAL_FUNCTION.sin, dtype: "f32", measured: H200 },
  "cos.approx.ftz.f32": { kind: SPECIAL_FUNCTION.cosFtz, dtype: "f32", measured: BOTH },
  "cos.approx.f32": { kind: SPECIAL_FUNCTION.cos, dtype: "f32", measured: H200 },
  "tanh.approx.f32": {
    kind: SPECIAL_FUNCTION.tanh,
    dtype: "f32",
    measured: `${H200}, [1, 2) and 17 special inputs on an H100`,
  },
  "ex2.approx.f16": { kind: SPECIAL_FUNCTION.ex2F16, dtype: "f16", measured: HALF },
  "tanh.approx.f16": { kind: SPECIAL_FUNCTION.tanhF16, dtype: "f16", measured: HALF },
  "ex2.approx.ftz.bf16": {
    kind: SPECIAL_FUNCTION.ex2Bf16,
    dtype: "bf16",
    leastCapability: 9,
    measured: HALF,
  },
  "tanh.approx.bf16": { kind: SPECIAL_FUNCTION.tanhBf16, dtype: "bf16", leastCapability: 9, measured: HALF },
  expf: { kind: SPECIAL_FUNCTION.expf, dtype: "f32", measured: H200 },
  "expf.fast": { kind: SPECIAL_FUNCTION.expfFast, dtype: "f32", measured: H200 },
  exp2f: { kind: SPECIAL_FUNCTION.ex2, dtype: "f32", measured: `${H200}, as ex2.approx.f32` },
  "exp2f.fast": {
    kind: SPECIAL_FUNCTION.ex2Ftz,
    dtype: "f32",
    measured: `${H200}, as ex2.approx.ftz.f32`,
  },
  logf: { kind: SPECIAL_FUNCTION.logf, dtype: "f32", measured: H200 },
  "logf.fast": { kind: SPECIAL_FUNCTION.logfFast, dtype: "f32", measured: H200 },
  log2f: { kind: SPECIAL_FUNCTION.log2f, dtype: "f32", measured: H200 },
  "log2f.fast": {
    kind: SPECIAL_FUNCTION.lg2Ftz,
    dtype: "f32",
    measured: `${H200}, as lg2.approx.ftz.f32`,
  },
  tanhf: { kind: SPECIAL_FUNCTION.tanhf, dtype: "f32", measured: H200 },
  "tanhf.fast": { kind: SPECIAL_FUNCTION.tanh, dtype: "f32", measured: `${H200}, as tanh.approx.f32` },
  erff: { kind: SPECIAL_FUNCTION.erff, dtype: "f32", measured: H200 },
  "erff.fast": { kind: SPECIAL_FUNCTION.erffFast, dtype: "f32", measured: H200 },
  rsqrtf: { kind: SPECIAL_FUNCTION.rsqrt, dtype: "f32", measured: `${H200}, as rsqrt.approx.f32` },
  "rsqrtf.fast": {
    kind: SPECIAL_FUNCTION.rsqrtFtz,
    dtype: "f32",
    measured: `${H200}, as rsqrt.approx.ftz.f32`,
  },
  sqrtf: { kind: SPECIAL_FUNCTION.sqrtf, dtype: "f32", measured: H200 },
  "sqrtf.fast": {
    kind: SPECIAL_FUNCTION.sqrtFtz,
    dtype: "f32",
    measured: `${H200}, as sqrt.approx.ftz.f32`,
  },
  sinf: { kind: SPECIAL_FUNCTION.sinf, dtype: "f32", measured: H200 },
  "sinf.fast": {
    kind: SPECIAL_FUNCTION.sinFtz,
    dtype: "f32",
    measured: `${H200}, as sin.approx.ftz.f32`,
  },
  cosf: { kind: SPECIAL_FUNCTION.cosf, dtype: "f32", measured: H200 },
  "cosf.fast": {
    kind: SPECIAL_FUNCTION.cosFtz,
    dtype: "f32",
    measured: `${H200}, as cos.approx.ftz.f32`,
  },
  divide: { kind: SPECIAL_FUNCTION.divide, dtype: "f32", arity: 2, measured: PAIRS },
  "divide.fast": { kind: SPECIAL_FUNCTION.divideFast, dtype: "f32", arity: 2, measured: PAIRS },
  powf: { kind: SPECIAL_FUNCTION.powf, dtype: "f32", arity: 2, measured: PAIRS },
  "powf.fast": { kind: SPECIAL_FUNCTION.powfFast, dtype: "f32", arity: 2, measured: PAIRS },
} as const satisfies Readonly<Record<string, SpecialFunctionRow>>;

/**
 * The name of an approximate instruction in PTX, such as `rsqrt.approx.ftz.f32`, or of a math function of CUDA, such as `expf` or
 * `expf.fast`.
 */
export type SpecialFunctionName = keyof typeof SPECIAL_FUNCTIONS;

const NAMES = Object.keys(SPECIAL_FUNCTIONS) as SpecialFunctionName[];

/** The instruction to which a function is compiled, if it is one instruction; else the name itself. */
export function instructionOf(name: SpecialFunctionName): SpecialFunctionName {
  const { kind } = SPECIAL_FUNCTIONS[name];
  return NAMES.find((each) => SPECIAL_FUNCTIONS[each].kind === kind) ?? name;
}

/** Whether a function has two arguments. */
export function hasTwoArguments(name: SpecialFunctionName): boolean {
  const { arity }: SpecialFunctionRow = SPECIAL_FUNCTIONS[name];
  return arity === 2;
}
