/**
 * The arguments of every operation, as plain data. Outputs are allocated by the caller; a docstring that begins with "Output:"
 * marks them. Nothing here depends on recipes or modules: src/ops/ validates and completes arguments, and a backend runs them.
 * Each family declares its own in ops/.
 */
export type * from "./ops.gen.js";
