/** The special-function unit of a GPU. */
import { SPECIAL_FUNCTIONS, type SpecialFunctionRow } from "../../../formats/special-functions.js";
import type { Lowering } from "../lowering.js";
import { bounded, type Declarations, reads, writes } from "../native-arguments.js";

export const SPECIAL_FUNCTION_CALLS = {
  /** out[i] = f(x[i]), where `kind` is the instruction f (SpecialFunction of the contract). */
  specialFunction: {
    x: reads.wide("count"),
    out: writes.wide("count"),
    kind: bounded({ to: 18, type: "uint32_t" }),
    count: "count",
  },
} as const satisfies Declarations;

/** The GPU on which this kernel returned the reference's bits for all inputs. */
const MEASURED_GPU = "NVIDIA H200";

export const specialFunction: Lowering<"specialFunction"> = {
  supports({ function: name }, { facts }) {
    const { leastCapability = 0 }: SpecialFunctionRow = SPECIAL_FUNCTIONS[name];
    const { major, minor } = facts;
    if (major < leastCapability)
      return {
        ok: false,
        reason: `${name} needs compute capability ${leastCapability}.0; this GPU has ${major}.${minor}`,
      };
    const { measured } = SPECIAL_FUNCTIONS[name];
    if (facts.name === MEASURED_GPU) return { ok: true, agrees: "bits" };
    return {
      ok: true,
      agrees: "bits",
      unverified: `the results of ${facts.name} were not all compared with the reference; of ${name}, ${measured} were`,
    };
  },
  run({ addon, device }, { x, function: name, out }) {
    addon.specialFunction(device, { x, out, kind: SPECIAL_FUNCTIONS[name].kind, count: x.size });
  },
};
