/** The types of a call of an export by the names of its parameters; `ORDERED`, which the build writes, puts them in order. */
import type { Arguments } from "#reference";
import type { ExportName } from "./instance.js";

/** What a job adds to the arguments of its part: working memory, and the range. */
type OfThePart = "scratch" | "begin" | "end";

/** What the caller of an export passes: all that it takes, and nothing else. */
export type ExportArgs<K extends ExportName> = {
  readonly [P in Exclude<keyof Arguments[K], OfThePart>]: Arguments[K][P];
};

/** The exports that are called once, without working memory or a range. */
export type Immediate = {
  [K in ExportName]: Extract<keyof Arguments[K], OfThePart> extends never ? K : never;
}[ExportName];

/** `A` where it has no name that `Wanted` lacks: an object that was spread may have more than TypeScript looks for. */
export type Exactly<A, Wanted> = {
  readonly [K in keyof A]: K extends keyof Wanted ? Wanted[K] : never;
};

/** Arguments of one export in the order of its parameters. */
export type Positional = readonly (number | boolean)[];
