/**
 * Calls of WebAssembly exports with named arguments. The build generates `CALLS`, which writes the fields of a task to memory and
 * puts the other arguments in order.
 */
import { type Arguments, TASK_BYTES, type TaskMemory } from "#reference";
import type { ExportName } from "./instance.js";

/** The arguments that the pool adds to each part of a job: scratch memory and the range. */
type OfThePart = "scratch" | "begin" | "end";

/** The arguments that the caller of an export passes. */
export type ExportArgs<K extends ExportName> = {
  readonly [P in Exclude<keyof Arguments[K], OfThePart>]: Arguments[K][P];
};

/** The exports that take no scratch memory and no range. They are called once, not shared among threads. */
export type Immediate = {
  [K in ExportName]: Extract<keyof Arguments[K], OfThePart> extends never ? K : never;
}[ExportName];

/**
 * The type `A` if it has only names of `Expected`, else a type that nothing is assignable to. TypeScript itself does not reject
 * unknown properties of spread objects.
 */
export type Exactly<A, Expected> = {
  readonly [K in keyof A]: K extends keyof Expected
    ? Expected[K] extends object
      ? Exactly<A[K], Expected[K]>
      : Expected[K]
    : never;
};

/** The arguments of one export, in the order of its parameters. */
export type Positional = readonly (number | boolean)[];

/** Returns the memory of a task at `address`, which has TASK_BYTES bytes and is a multiple of 16. */
export function taskMemory({ buffer }: WebAssembly.Memory, address: number): TaskMemory {
  return {
    address,
    bytes: new Uint8Array(buffer, address, TASK_BYTES),
    words: new Uint32Array(buffer, address, TASK_BYTES / 4),
    floats: new Float32Array(buffer, address, TASK_BYTES / 4),
    doubles: new Float64Array(buffer, address, TASK_BYTES / 8),
  };
}
