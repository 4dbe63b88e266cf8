// The recipes whose products an H100 or H200 computes itself.
import { DelayedScaling, Float8BlockScaling, Float8CurrentScaling } from "lockstep";

export const RECIPES = [
  { name: "bf16" },
  { name: "delayed", recipe: new DelayedScaling() },
  { name: "current", recipe: new Float8CurrentScaling() },
  { name: "block", recipe: new Float8BlockScaling() },
];
