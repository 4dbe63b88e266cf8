/** The seeds of random numbers, shared by the model and the library. */
import type { StepPlan } from "./plan.js";

/** The seed for call number `call` of step `step`. */
export function inputSeed(
  { seed }: StepPlan,
  input: "x" | "grad" | "target" | "ids",
  step: number,
  call = 0,
): number {
  const inputNumber = { x: 1, grad: 2, target: 3, ids: 4 }[input];
  return (seed + 1009 * step + 101 * call + 11 * inputNumber) | 0;
}

/** The seed for parameter number `i` when it is written before call number `call` of step `step`. */
export function parameterSeed({ seed }: StepPlan, i: number, step = 0, call = 0): number {
  return (seed + 500_009 + 31 * i + 1013 * step + 107 * call) | 0;
}

/** The magnitude of a new parameter: gamma is about 1, others are smaller. */
export function parameterScale(name: string): number {
  return /layerNormWeight|norm\.weight/.test(name) ? 0.5 : /[bB]ias$/.test(name) ? 0.5 : 0.25;
}
