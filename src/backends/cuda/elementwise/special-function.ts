/** The special-function unit of a GPU, and CUDA's math functions. */
import { SPECIAL_FUNCTIONS, type SpecialFunctionRow } from "../../../formats/special-functions.js";
import type { Lowering } from "../lowering.js";
import { bounded, type Declarations, reads, writes } from "../native-arguments.js";

export const SPECIAL_FUNCTION_CALLS = {
  /**
   * out[i] = f(x[i]), or f(x[i], y[i]) of a function of two arguments, where `kind` is the instruction or function f
   * (SpecialFunction of the contract).
   */
  specialFunction: {
    x: reads.wide("count"),
    "y?": reads.f32("count"),
    out: writes.wide("count"),
    kind: bounded({ to: 33, type: "uint32_t" }),
    count: "count",
  },
} as const satisfies Declarations;

/** The GPU on which this kernel was bitwise equal to the reference for all inputs of the functions of one argument. */
const MEASURED_GPU = "NVIDIA H200";

export const specialFunction: Lowering<"specialFunction"> = {
  supports({ function: name }, { facts }) {
    const { leastCapability = 0, arity, measured }: SpecialFunctionRow = SPECIAL_FUNCTIONS[name];
    const { major, minor } = facts;
    if (major < leastCapability)
      return {
        ok: false,
        reason: `${name} needs compute capability ${leastCapability}.0; this GPU has ${major}.${minor}`,
      };
    if (facts.name === MEASURED_GPU && arity !== 2) return { ok: true, agrees: "bits" };
    return {
      ok: true,
      agrees: "bits",
      unverified: `the results of ${facts.name} were not all compared with the reference; of ${name}, ${measured} were`,
    };
  },
  run({ addon, device }, { x, function: name, y, out }) {
    addon.specialFunction(device, { x, y, out, kind: SPECIAL_FUNCTIONS[name].kind, count: x.size });
  },
};
