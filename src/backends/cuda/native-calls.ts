/**
 * The calls of the addon that take arguments by name, each declared once, in calls.ts of its family: TypeScript types calls by
 * that (addon.ts), and `npm run generate` writes it for C++, where a name that a call does not declare does not compile
 * (native/core/arguments.h).
 */
import { CAST_CALLS } from "./cast/calls.js";
import { ELEMENTWISE_CALLS } from "./elementwise/calls.js";
import { GEMM_CALLS, GEMM_QUERIES } from "./gemm/calls.js";
import { LAYOUT_CALLS } from "./layout/calls.js";
import { QUANTIZE_CALLS } from "./quantize/calls.js";
import { ROWS_CALLS } from "./rows/calls.js";
import { UPDATE_CALLS } from "./update/calls.js";

/** What answers nothing. */
const OPERATIONS = {
  ...CAST_CALLS,
  ...QUANTIZE_CALLS,
  ...LAYOUT_CALLS,
  ...GEMM_CALLS,
  ...ELEMENTWISE_CALLS,
  ...ROWS_CALLS,
  ...UPDATE_CALLS,
} as const;

export const NATIVE_CALLS = { ...OPERATIONS, ...GEMM_QUERIES } as const;

export type NativeCall = keyof typeof NATIVE_CALLS;

/** The operations, by the names they are exported under. */
export const NATIVE_OPERATIONS = Object.keys(OPERATIONS) as readonly (keyof typeof OPERATIONS)[];
