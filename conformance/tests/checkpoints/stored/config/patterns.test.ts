/** Expressions of configurations match as JavaScript's RegExp does, in a time that no expression makes long. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { isIgnored, matchesStart } from "../../../../../src/checkpoints/stored/config/patterns.js";
import { draws } from "../../../harness/draws.js";

const atoms = fc.constantFrom(
  "a",
  "b",
  ".",
  "\\.",
  "[ab]",
  "[^a]",
  "[a-c_]",
  "[a-]",
  "[-a.]",
  "[^a-c-]",
  "\\d",
  "\\w",
  "^",
  "$",
  "q_proj",
  "\\d+",
);
const expressions = fc.letrec<{ whole: string; part: string }>((tie) => ({
  part: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    atoms,
    tie("whole").map((expression) => `(${expression})`),
    tie("whole").map((expression) => `(?:${expression})?`),
    fc
      .tuple(
        atoms.filter((atom) => !/^[$^]$|\+$/.test(atom)),
        fc.constantFrom("*", "+", "?", "*?"),
      )
      .map((pair) => pair.join("")),
  ),
  whole: fc.oneof(
    fc.array(tie("part"), { minLength: 1, maxLength: 4 }).map((strings) => strings.join("")),
    fc.tuple(tie("part"), tie("part")).map((strings) => strings.join("|")),
  ),
}));
const texts = fc.string({
  unit: fc.constantFrom("a", "b", "c", ".", "-", "1", "_", "q_proj"),
  maxLength: 12,
});

it("an expression matches the beginning of a text as RegExp says", () => {
  fc.assert(
    fc.property(expressions.whole, texts, (expression, text) => {
      expect(matchesStart(expression, text)).toBe(new RegExp(`^(?:${expression})`).test(text));
    }),
    { numRuns: draws(2000) },
  );
});

it.each([
  ...["\\d", "\\D", "\\w", "\\W", "\\s", "\\S", ".", "[\\w.]", "[^\\w.]", "[\\s\\d]", "[\\W]", "[^\\S]"],
  ...["\\.", "\\-", "\\]", "[a-f]", "[^0-8]", "[_-]"],
])("%s consumes the characters that RegExp says", (expression) => {
  const expected = new RegExp(`^(?:${expression})$`);
  // RegExp and Python's re differ outside these
  const printable = Array.from({ length: 0x7f - 0x20 }, (_, i) => String.fromCharCode(0x20 + i));
  for (const character of ["\t", "\n", ...printable])
    expect(matchesStart(`${expression}$`, character), character).toBe(expected.test(character));
});

it.each(["[\\.-z]", "[+-\\]]", "(?=a)", "(?!a)", "(a)\\1", "a{2}", "(", "[a", "a)", "*", "\\b"])(
  "%s is not understood",
  (expression) => {
    expect(matchesStart(expression, "aa")).toBeUndefined();
  },
);

it("a module is ignored if any pattern covers it, and undecided only if none does and one is not understood", () => {
  const pattern = fc.constantFrom("a", "a.b", "*.b", "re:a.*", "re:.*b$", "re:(?i)a", "re:a{1}");
  const module = fc.constantFrom("a", "b", "c", "a.b", "a.c", "c.b", "c.a.b");
  fc.assert(
    fc.property(fc.array(pattern, { maxLength: 4 }), module, (patterns, name) => {
      const verdicts = patterns.map((single) => isIgnored([single], name));
      const isDecided = verdicts.some((verdict) => verdict === true);
      expect(isIgnored(patterns, name)).toBe(isDecided || (verdicts.includes(undefined) ? undefined : false));
    }),
    { numRuns: draws(500) },
  );
});

it("an expression that takes exponential time elsewhere is matched at once", () => {
  const start = performance.now();
  expect(matchesStart("(a+)+b$", "a".repeat(5000))).toBe(false);
  expect(performance.now() - start).toBeLessThan(2000);
});
