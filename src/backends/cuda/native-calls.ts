/**
 * The calls of the addon. Each is declared once, in the file of the lowering that makes it, or in calls.ts of its family if
 * several files make it. TypeScript derives the types of the calls from the declarations (addon.ts). `npm run generate` collects
 * them, and writes them for C++, where an undeclared name does not compile (native/core/arguments.h).
 */
import { CALLS, LISTS, QUERIES } from "./calls.gen.js";

export const NATIVE_CALLS = { ...CALLS, ...QUERIES } as const;

export type NativeCall = keyof typeof NATIVE_CALLS;

/** The calls that take a list of argument sets, in the slots of all sets one after the other. */
export const NATIVE_LISTS = LISTS;

export type NativeList = keyof typeof NATIVE_LISTS;

/** The exported names of the calls that return nothing. */
export const NATIVE_OPERATIONS = Object.keys(CALLS) as readonly (keyof typeof CALLS)[];
