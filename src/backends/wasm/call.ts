/** A call of an export by the names of its parameters: the one place where names become positions. */
import { type Arguments, PARAMETERS } from "#reference";
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

/** Arguments of one export in order. */
export type Positional = (number | boolean)[];

interface Layout {
  readonly names: readonly string[];
  /** Where these are; -1 for an export without. */
  readonly scratch: number;
  readonly begin: number;
  readonly end: number;
}

const LAYOUTS = Object.fromEntries(
  Object.entries<readonly string[]>(PARAMETERS).map(([name, names]) => {
    const [scratch = -1, begin = -1, end = -1] = ["scratch", "begin", "end"].map((each) =>
      names.indexOf(each),
    );
    return [name, { names, scratch, begin, end }];
  }),
) as Readonly<Record<ExportName, Layout>>;

/** The arguments in order, those of the part left at 0. */
export function positional(name: ExportName, given: Readonly<Record<string, number | boolean>>): Positional {
  const { names } = LAYOUTS[name];
  const args: Positional = new Array(names.length);
  for (let i = 0; i < names.length; i++) args[i] = given[names[i] as string] ?? 0;
  return args;
}

/** Gives the arguments what their part is told. */
export function placeIn(
  args: Positional,
  name: ExportName,
  scratch: number,
  begin: number,
  end: number,
): void {
  const at = LAYOUTS[name];
  if (at.scratch >= 0) args[at.scratch] = scratch;
  if (at.begin >= 0) args[at.begin] = begin;
  if (at.end >= 0) args[at.end] = end;
}
