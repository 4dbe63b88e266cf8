/** The declarations of the addon's calls for transposes and scale layouts (native-arguments.ts). */
import type { Declaration } from "../native-arguments.js";
import { SCALES, SIZE } from "../shared-arguments.js";

export const LAYOUT_CALLS = {
  transpose: { x: "pointer", ...SIZE, bits: "count", out: "pointer" },
  relayout: { wide: "flag", from: SCALES, to: SCALES },
  swapAxes: {
    x: "pointer",
    outer: "count",
    p: "count",
    middle: "count",
    q: "count",
    unit: "count",
    out: "pointer",
  },
} as const satisfies Readonly<Record<string, Declaration>>;
