/** The declarations of the addon's calls for elementwise operations (native-arguments.ts). */
import type { Declaration } from "../native-arguments.js";
import { CLAMP, GRAD, OUT, SOURCE, X } from "../shared-arguments.js";

export const ELEMENTWISE_CALLS = {
  activation: { ...X, ...OUT, kind: "activation", count: "count" },
  activationBackward: { ...X, ...OUT, kind: "activation", count: "count", ...GRAD },
  gated: { ...SOURCE, ...OUT, kind: "activation" },
  gatedBackward: { ...SOURCE, ...OUT, kind: "activation", ...GRAD },
  clampedSwiglu: { ...SOURCE, ...OUT, ...CLAMP },
  clampedSwigluBackward: { ...SOURCE, ...OUT, ...CLAMP, ...GRAD },
  add: { ...X, y: "pointer", yType: "wide", ...OUT, count: "count" },
  scaled: { ...X, ...OUT, factor: "float", count: "count" },
} as const satisfies Readonly<Record<string, Declaration>>;
