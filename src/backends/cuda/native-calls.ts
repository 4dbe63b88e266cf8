/**
 * The calls of the addon. Each is declared once, in calls.ts of its family of operations. TypeScript derives the types of the
 * calls from the declarations (addon.ts). `npm run generate` writes the declarations for C++, where an undeclared name does not
 * compile (native/core/arguments.h).
 */
import { CAST_CALLS } from "./cast/calls.js";
import { COLLECTIVE_CALLS } from "./collective/calls.js";
import { ELEMENTWISE_CALLS } from "./elementwise/calls.js";
import { GEMM_CALLS, GEMM_QUERIES } from "./gemm/calls.js";
import { LAYOUT_CALLS } from "./layout/calls.js";
import { QUANTIZE_CALLS } from "./quantize/calls.js";
import { ROWS_CALLS } from "./rows/calls.js";
import { UPDATE_CALLS } from "./update/calls.js";

/** The declarations of the calls that return nothing. */
const OPERATIONS = {
  ...CAST_CALLS,
  ...QUANTIZE_CALLS,
  ...LAYOUT_CALLS,
  ...GEMM_CALLS,
  ...ELEMENTWISE_CALLS,
  ...ROWS_CALLS,
  ...UPDATE_CALLS,
  ...COLLECTIVE_CALLS,
} as const;

export const NATIVE_CALLS = { ...OPERATIONS, ...GEMM_QUERIES } as const;

export type NativeCall = keyof typeof NATIVE_CALLS;

/** The exported names of the calls that return nothing. */
export const NATIVE_OPERATIONS = Object.keys(OPERATIONS) as readonly (keyof typeof OPERATIONS)[];
