/** Types of calls of exports with named arguments; `ORDERED`, which the build writes, gives their order. */
import type { Arguments } from "#reference";
import type { ExportName } from "./instance.js";

/** The arguments that the pool adds: scratch memory and the range. */
type OfThePart = "scratch" | "begin" | "end";

/** The arguments that a caller of an export passes: all of them, and no others. */
export type ExportArgs<K extends ExportName> = {
  readonly [P in Exclude<keyof Arguments[K], OfThePart>]: Arguments[K][P];
};

/** The exports that are called once, without scratch memory or a range. */
export type Immediate = {
  [K in ExportName]: Extract<keyof Arguments[K], OfThePart> extends never ? K : never;
}[ExportName];

/** `A` if it has only names of `Wanted`. TypeScript does not check excess properties of spread objects. */
export type Exactly<A, Wanted> = {
  readonly [K in keyof A]: K extends keyof Wanted ? Wanted[K] : never;
};

/** Arguments of one export in the order of its parameters. */
export type Positional = readonly (number | boolean)[];
