/** The declarations of the addon's calls for optimizers, gradient norms and delayed scaling (native-arguments.ts). */
import type { Declaration } from "../native-arguments.js";
import { GRAD, X } from "../shared-arguments.js";

const STEP = {
  ...GRAD,
  parameter: "pointer",
  "copy?": "pointer",
  "copyType?": "wide",
  "gradScale?": "pointer",
  "noop?": "pointer",
  count: "count",
  learningRate: "float",
  weightDecay: "float",
} as const;

export const UPDATE_CALLS = {
  squareSum: { ...X, count: "count", out: "pointer", workspace: "pointer" },
  clipFactor: { sums: "pointer", count: "count", maxNorm: "float", norm: "pointer", factor: "pointer" },
  updateScales: {
    amaxHistory: "pointer",
    scale: "pointer",
    length: "count",
    count: "count",
    scaledMax: "float",
    mostRecent: "flag",
  },
  sgd: { ...STEP, "m?": "pointer", momentum: "float", undamped: "float", nesterov: "flag", first: "flag" },
  adamw: {
    ...STEP,
    m: "pointer",
    v: "pointer",
    beta1: "float",
    beta2: "float",
    correction1: "float",
    correction2: "float",
    epsilon: "float",
    decoupled: "flag",
  },
} as const satisfies Readonly<Record<string, Declaration>>;
