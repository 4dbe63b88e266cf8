/** Options of an optimizer that differ between parameters, which are chosen by their names. */
import { ArgumentError } from "../errors.js";
import { describe } from "../options.js";
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
export function mergeOptions<O extends object>(
  { groups = [], ...options }: GroupedOptions<O>,
  name: string,
): O {
  const mergedOptions: Record<string, unknown> = { ...options };
  for (const { parameters, ...others } of groups) {
    if (!matchesGlob(parameters, name)) continue;
    for (const [key, value] of Object.entries(others)) if (value !== undefined) mergedOptions[key] = value;
  }
  return mergedOptions as O;
}

/** Options that determine the states of an optimizer. Only its constructor reads them. */
export type StateOptions = { readonly [name: string]: string | boolean };

/**
 * Finds the options of each slot of an optimizer, also after a program has replaced them. Options of states are checked and left
 * out.
 */
export class SlotOptions<O extends object> {
  readonly #names: ReadonlyMap<OptimizerSlot, string>;
  /** The patterns of groups that were matched last, and the number of each slot's set of groups. */
  #patterns: readonly string[] | undefined;
  #sets: ReadonlyMap<OptimizerSlot, number> = new Map();
  /** The groups that were checked last. */
  #checkedGroups: readonly ParameterGroup<O>[] | undefined;

  constructor(
    readonly user: string,
    slots: ReadonlyMap<string, OptimizerSlot>,
    /** Checks options without groups. Throws `ArgumentError` for invalid ones. */
    readonly check: (user: string, options: O) => O,
    /** The options of states that the constructor read. */
    readonly states: StateOptions = {},
  ) {
    this.#names = new Map([...slots].map(([name, slot]) => [slot, name]));
  }

  /** Returns the options of a slot. Throws `ArgumentError` as `requireGroups`, and for other options of states than before. */
  optionsOf(options: GroupedOptions<O>, slot: OptimizerSlot): O {
    const stepOptions = this.#withoutStates(options);
    if (!stepOptions.groups) return "groups" in stepOptions ? mergeOptions(stepOptions, "") : stepOptions;
    if (stepOptions.groups !== this.#checkedGroups) this.requireGroups(stepOptions);
    return mergeOptions(stepOptions, this.#names.get(slot) ?? "");
  }

  /**
   * Returns a function from a slot and the number of its update to what `stepOptions` makes of its options. Slots with the same
   * groups and number get the same object.
   */
  ofSteps<S>(
    options: GroupedOptions<O>,
    stepOptions: (options: O, step: number) => S,
  ): (slot: OptimizerSlot, step: number) => S {
    const { groups, ...others } = this.#withoutStates(options);
    if (groups && groups !== this.#checkedGroups) this.requireGroups(options);
    const bySet = new Map<number, { readonly options: O; readonly bySteps: Map<number, S> }>();
    const setOf = groups ? this.#groupSets(groups) : undefined;
    return (slot, step) => {
      const set = setOf ? (setOf.get(slot) ?? -1) : 0;
      let each = bySet.get(set);
      if (!each) {
        const name = this.#names.get(slot) ?? "";
        each = {
          options: mergeOptions({ ...others, groups } as GroupedOptions<O>, name),
          bySteps: new Map(),
        };
        bySet.set(set, each);
      }
      let result = each.bySteps.get(step);
      if (result === undefined) {
        result = stepOptions(each.options, step);
        each.bySteps.set(step, result);
      }
      return result;
    };
  }

  /** The number of each slot's set of groups. The patterns of groups are matched again only if they change. */
  #groupSets(groups: readonly ParameterGroup<O>[]): ReadonlyMap<OptimizerSlot, number> {
    const patterns = groups.map((group) => group.parameters);
    if (
      patterns.length !== this.#patterns?.length ||
      patterns.some((each, i) => each !== this.#patterns?.[i])
    ) {
      const sets = new Map<string, number>();
      this.#sets = new Map(
        [...this.#names].map(([slot, name]) => {
          const key = patterns.map((pattern) => matchesGlob(pattern, name)).join();
          if (!sets.has(key)) sets.set(key, sets.size);
          return [slot, sets.get(key) as number];
        }),
      );
      this.#patterns = patterns;
    }
    return this.#sets;
  }

  #withoutStates(options: GroupedOptions<O>): GroupedOptions<O> {
    const names = Object.keys(this.states).filter((name) => name in options);
    if (names.length === 0) return options;
    const otherOptions: Record<string, unknown> = { ...options };
    for (const name of names) {
      const value = otherOptions[name];
      if (value !== undefined && value !== this.states[name])
        throw new ArgumentError(
          `${this.user}: ${name} is ${describe(value)} and was ${this.states[name]} when the optimizer was created; its states keep their form, so create another optimizer`,
        );
      delete otherOptions[name];
    }
    return otherOptions as GroupedOptions<O>;
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
    const stepOptions = this.#withoutStates(options);
    for (const name of names) this.check(this.user, mergeOptions(stepOptions, name));
    this.#checkedGroups = options.groups;
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
