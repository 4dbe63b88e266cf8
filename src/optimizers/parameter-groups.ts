/** Options of an optimizer that differ between parameters, which are chosen by their names. */
import { ArgumentError } from "../errors.js";
import { matchesGlob } from "../text/glob.js";
import type { OptimizerSlot } from "./optimizer.js";

/** Parameters, and options that override the options of the optimizer. */
export type ParameterGroup<O> = {
  /** The parameters: a name, in which `*` stands for any characters, dots included, and `?` for one. */
  readonly parameters: string;
} & { readonly [K in keyof O]?: O[K] | undefined };

/** Options of an optimizer, with groups of parameters that override them. */
export type GroupedOptions<O> = O & {
  /**
   * The groups. Each option of a parameter comes from the last of its groups that has this option, else from the optimizer.
   * Default: none.
   */
  readonly groups?: readonly ParameterGroup<O>[] | undefined;
};

/** Returns the options of the parameter `name`, without groups. */
export function optionsFor<O extends object>(
  { groups = [], ...options }: GroupedOptions<O>,
  name: string,
): O {
  const merged: Record<string, unknown> = { ...options };
  for (const { parameters, ...others } of groups) {
    if (!matchesGlob(parameters, name)) continue;
    for (const [key, value] of Object.entries(others)) if (value !== undefined) merged[key] = value;
  }
  return merged as O;
}

/** Finds the options of each slot of an optimizer, also after a program has replaced them. */
export class SlotOptions<O extends object> {
  readonly #names: ReadonlyMap<OptimizerSlot, string>;
  /** The groups that were checked last. */
  #checked: readonly ParameterGroup<O>[] | undefined;

  constructor(
    readonly user: string,
    slots: ReadonlyMap<string, OptimizerSlot>,
    /** Checks options without groups. Throws `ArgumentError` for invalid ones. */
    readonly check: (user: string, options: O) => O,
  ) {
    this.#names = new Map([...slots].map(([name, slot]) => [slot, name]));
  }

  /** Returns the options of a slot. Throws `ArgumentError` as `requireGroups`. */
  of(options: GroupedOptions<O>, slot: OptimizerSlot): O {
    if (!options.groups) return "groups" in options ? optionsFor(options, "") : options;
    if (options.groups !== this.#checked) this.requireGroups(options);
    return optionsFor(options, this.#names.get(slot) ?? "");
  }

  /** Throws `ArgumentError` for a group without parameters, and for options that do not go together. */
  requireGroups(options: GroupedOptions<O>): void {
    const { groups = [] } = options;
    const names = [...this.#names.values()];
    for (const { parameters } of groups) {
      if (names.some((name) => matchesGlob(parameters, name))) continue;
      throw new ArgumentError(
        `${this.user}: no parameter matches the group "${parameters}"; there are ${names.slice(0, 8).join(", ")}`,
      );
    }
    for (const name of names) this.check(this.user, optionsFor(options, name));
    this.#checked = options.groups;
  }
}

/** Runs `check`, and disposes of `owner` if it throws. */
export function disposeUnless(owner: { dispose(): void }, check: () => void): void {
  try {
    check();
  } catch (error) {
    owner.dispose();
    throw error;
  }
}
