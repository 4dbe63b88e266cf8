/** `explainSpecialFunction`: how an approximate instruction of a GPU, or a math function of CUDA, computes one result. */

import { ArgumentError } from "../errors.js";
import { factsOf } from "../formats/derive.js";
import {
  hasTwoArguments,
  instructionOf,
  SPECIAL_FUNCTIONS,
  type SpecialFunctionName,
} from "../formats/special-functions.js";
import { anyNumber, needed, oneOf, optionsOf } from "../options.js";
import type { WideDType } from "../tensor/shape.js";
import { f32Bits } from "./binary.js";
import { MATH_FUNCTIONS } from "./math-functions.js";
import { FUNCTIONS_OF_TWO } from "./power.js";
import { roundTo } from "./rounding.js";
import { UNIT } from "./special-unit.js";
import { add, type ExplainedStep, mul, roundedTo, Steps } from "./steps.js";

/** The computation of one result of an instruction of the special-function unit, or of a math function of CUDA. */
export interface SpecialFunctionExplanation {
  /** The instruction, by its name in PTX, or the function. */
  readonly function: SpecialFunctionName;
  /** The argument, rounded to the dtype of the instruction. */
  readonly x: number;
  /** The second argument of a binary function. */
  readonly y?: number;
  /** The fields of the argument as an f32: its sign bit, biased exponent and fraction. */
  readonly fields: { readonly s: number; readonly E: number; readonly f: number };
  /**
   * The steps. The steps of an instruction have the names of numerics.md §7.11: the argument a of the quadratic, its row and
   * coefficients, the terms t0, t1 and t2, their sum T, and the result. The steps of a function are as in
   * docs/special-functions.md. There are no steps for NaN.
   */
  readonly steps: readonly ExplainedStep[];
  /** The result. */
  readonly result: number;
  /** The bits of the result in the dtype of the instruction. */
  readonly bits: number;
}

/** Options of `explainSpecialFunction`. */
export interface ExplainSpecialFunctionOptions {
  /** The instruction, by its name in PTX (`rsqrt.approx.ftz.f32`), or the function (`expf`; `expf.fast` under -use_fast_math). */
  readonly function: SpecialFunctionName;
  /** The second argument of a binary function (`powf`, `divide`). */
  readonly y?: number;
}

const checkOptions = optionsOf<ExplainSpecialFunctionOptions>({
  function: needed(oneOf(Object.keys(SPECIAL_FUNCTIONS))),
  y: anyNumber,
});

/** The step before and after the unit, for subnormal arguments of instructions without ftz. */
const AFTER_SCALING: Readonly<Record<string, readonly [formula: string, (y: number) => number]>> = {
  lg2: ["result ⊖ 24", (y) => add(y, -24)],
  rsqrt: ["result ⊗ 2^12", (y) => mul(y, 2 ** 12)],
  sqrt: ["result ⊗ 2^-12", (y) => mul(y, 2 ** -12)],
};

/**
 * Explains the result of an approximate instruction of a GPU's special-function unit, or of a math function of CUDA, for a
 * number, which is first rounded to the dtype of the instruction. The explanation has the steps of numerics.md §7.11 or
 * docs/special-functions.md and the result of `specialFunction`. It is plain data and needs no backend.
 *
 * @throws `ArgumentError` for an argument that is not a number, an unknown instruction, a missing y, and one that the function
 * does not take.
 */
export function explainSpecialFunction(
  x: number,
  options: ExplainSpecialFunctionOptions,
): SpecialFunctionExplanation {
  anyNumber("explainSpecialFunction", "x", x);
  const { function: name, y } = checkOptions("explainSpecialFunction", options);
  if (hasTwoArguments(name) !== (y !== undefined))
    throw new ArgumentError(
      `explainSpecialFunction: ${name} has ${y === undefined ? "two arguments; pass the second as y" : "one argument, and y was passed"}`,
    );
  const { dtype } = SPECIAL_FUNCTIONS[name];
  const value = roundedTo(Math.fround(x), dtype);
  const steps = new Steps();
  const second = y === undefined ? undefined : Math.fround(y);
  const result =
    second === undefined
      ? resultOfOne(instructionOf(name), value, steps)
      : resultOfTwo(name, [value, second], steps);
  const word = f32Bits(value);
  return {
    function: name,
    x: value,
    ...(second === undefined ? undefined : { y: second }),
    fields: { s: word >>> 31, E: (word >>> 23) & 255, f: word & 0x7fffff },
    steps: steps.list,
    result,
    bits: bitsOf(result, dtype),
  };
}

function resultOfTwo(name: SpecialFunctionName, [x, y]: readonly [number, number], steps: Steps): number {
  return FUNCTIONS_OF_TWO[name as keyof typeof FUNCTIONS_OF_TWO](x, y, steps);
}

function resultOfOne(name: SpecialFunctionName, x: number, steps: Steps): number {
  if (Number.isNaN(x)) return Number.NaN;
  if (name in MATH_FUNCTIONS) return MATH_FUNCTIONS[name as keyof typeof MATH_FUNCTIONS](x, steps);
  const [first = "", ...suffixes] = name.split(".");
  const unit = UNIT[first as keyof typeof UNIT];
  const { dtype } = SPECIAL_FUNCTIONS[name];
  if (dtype !== "f32") return truncated(unit(x, steps), dtype, steps);
  if (suffixes.includes("ftz")) return unit(x, steps);
  const isSubnormal = Math.abs(x) < 2 ** -126;
  if (first === "ex2" && x < -126) {
    const half = unit(steps.add("x", "x ⊗ ½", mul(x, 0.5)), steps);
    return steps.add("result", "result ⊗ result", mul(half, half));
  }
  if (first === "rcp" && (isSubnormal || Math.abs(x) > 2 ** 126)) {
    const [factor, shown] = isSubnormal ? ([2 ** 24, "2^24"] as const) : ([0.25, "¼"] as const);
    const inverse = unit(steps.add("x", `x ⊗ ${shown}`, mul(x, factor)), steps);
    return steps.add("result", `result ⊗ ${shown}`, mul(inverse, factor));
  }
  const after = AFTER_SCALING[first];
  if (!after || !isSubnormal) return unit(x, steps);
  const [formula, restore] = after;
  const scaled = unit(steps.add("x", "x ⊗ 2^24", mul(x, 2 ** 24)), steps);
  return steps.add("result", formula, restore(scaled));
}

/** Truncates an f32 to 16 bits. A result beyond the largest one is infinite. */
function truncated(value: number, dtype: "bf16" | "f16", steps: Steps): number {
  const limit = 2 ** (factsOf(dtype).maxExponent + 1);
  if (Math.abs(value) >= limit)
    return steps.add("result", "infinite: beyond the largest exponent", Math.sign(value) / 0);
  const { result } = roundTo(value, { format: dtype, rounding: "towardZero", overflow: "nonfinite" });
  return steps.add("result", `truncated to ${dtype}`, result);
}

function bitsOf(result: number, dtype: WideDType): number {
  if (Number.isNaN(result)) return dtype === "f32" ? 0x7fffffff : 0x7fff;
  if (dtype === "f32") return f32Bits(result);
  return roundTo(result, { format: dtype, rounding: "tiesToEven", overflow: "nonfinite" }).code;
}
