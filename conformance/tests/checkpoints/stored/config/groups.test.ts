/** Groups of a configuration decide a module exactly where expressions that cannot be read do not matter. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { groupResolver } from "../../../../../src/checkpoints/stored/config/groups.js";
import { draws } from "../../../harness/draws.js";

/** An expression that cannot be decided, and those that match everything and nothing. */
const [UNREADABLE, ALL, NONE] = ["re:(?=x)", "re:.*", "re:$a"];
const target = fc.constantFrom(
  UNREADABLE,
  "re:.*q_proj",
  "re:.*k_proj",
  "*.q_proj",
  "m.k_proj",
  "Linear",
  NONE,
);
const groupTargets = fc.array(fc.array(target, { maxLength: 3 }), { minLength: 1, maxLength: 3 });
const modules = fc.constantFrom("m.q_proj", "m.k_proj", "m.o_proj");

/** The groups, each with another number of bits. */
function resolve(targets: readonly (readonly string[])[], module: string): unknown {
  const groups = targets.map((list, i) => [`group_${i}`, { targets: list, weights: { num_bits: 2 + i } }]);
  return groupResolver({ config_groups: Object.fromEntries(groups) })?.(module);
}

/** The groups with every choice of what each expression that cannot be read matches. */
function readings(targets: readonly (readonly string[])[]): (readonly (readonly string[])[])[] {
  const count = targets.flat().filter((each) => each === UNREADABLE).length;
  return Array.from({ length: 2 ** count }, (_, bits) => {
    let index = 0;
    return targets.map((list) =>
      list.map((each) => (each === UNREADABLE ? ((bits >>> index++) & 1 ? ALL : NONE) : each)),
    );
  });
}

it("a module is decided if every reading of what cannot be read decides it equally, and unknown otherwise", () => {
  fc.assert(
    fc.property(groupTargets, modules, (targets, module) => {
      const results = readings(targets).map((each) => resolve(each, module));
      const [first] = results;
      const isDecided = results.every((each) => JSON.stringify(each) === JSON.stringify(first));
      const actual = resolve(targets, module);
      if (isDecided) expect(actual).toEqual(first);
      expect((actual as { kind: string }).kind === "unknown").toBe(!isDecided);
    }),
    { numRuns: draws(3000, 200), examples: [[[[UNREADABLE, "re:.*q_proj"]], "m.q_proj"]] },
  );
});
