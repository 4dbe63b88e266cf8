/** The options of a conformance run: every invalid value of every option is refused before anything runs. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import {
  type ConformanceOptions,
  compareWith,
  LAWS,
  ORACLE,
  runConformance,
  type Subject,
} from "../../index.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1 });

/** A subject that fails if it is called. */
const untouchedSubject: Subject = {
  amax: () => {
    throw new Error("it ran");
  },
};

const HOSTILE: readonly unknown[] = [
  null,
  true,
  false,
  0,
  -0,
  -1,
  1,
  1.5,
  Number.NaN,
  Infinity,
  -Infinity,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  5n,
  "",
  "1",
  "encode",
  "nothing",
  Symbol("s"),
  () => 1,
  [],
  [undefined],
  [1],
  [""],
  ["nothing"],
  ["amax"],
  ["amax", "amax"],
  {},
  { law: "x" },
  { law: LAWS[0]?.name, path: "x" },
  { law: LAWS[0]?.name, path: 1 },
  { amax: 1 },
  { nothing: fc.nat() },
  new Map(),
  new Date(0),
];

/** For each option, whether it accepts a value. */
const TAKES: Readonly<Record<keyof ConformanceOptions, (value: unknown) => boolean>> = {
  runs: (value) => value === 1,
  seed: (value) => [0, -0, -1, 1].includes(value as number),
  operations: (value) => Array.isArray(value) && value.length > 0 && value.every((name) => name === "amax"),
  inputs: (value) =>
    typeof value === "object" &&
    value !== null &&
    Object.getPrototypeOf(value) === Object.prototype &&
    Object.keys(value).length === 0,
  supported: (value) =>
    typeof value === "object" &&
    value !== null &&
    Object.getPrototypeOf(value) === Object.prototype &&
    Object.keys(value).length === 0,
  comparing: (value) => typeof value === "boolean",
  replay: () => false,
  onProgress: (value) => typeof value === "function",
};

describe("a conformance run", () => {
  const cases = Object.keys(TAKES).flatMap((name) =>
    HOSTILE.map((value) => [name as keyof typeof TAKES, value] as const),
  );

  it.each(cases)("accepts valid values for %s, and refuses %o", async (name, value) => {
    const options = { runs: 1, operations: ["amax"], [name]: value } as ConformanceOptions;
    if (TAKES[name](value)) {
      const { ok, laws } = await compareWith({ amax: ORACLE.amax }, ORACLE, options);
      expect(ok && laws.length > 0 && laws.every(({ runs }) => runs === 1)).toBe(true);
      return;
    }
    await expect(compareWith(untouchedSubject, ORACLE, options)).rejects.toThrow(ArgumentError);
    await expect(runConformance({ backend: backend(), ...options })).rejects.toThrow(ArgumentError);
  });

  it("refuses unknown options", async () => {
    const names = fc.string().filter((name) => !Object.hasOwn(TAKES, name));
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(names, fc.constantFrom("run", "__proto__", "constructor", "operation")),
        async (name) => {
          const options = JSON.parse(`{${JSON.stringify(name)}:1}`) as ConformanceOptions;
          await expect(compareWith(untouchedSubject, ORACLE, options)).rejects.toThrow(ArgumentError);
        },
      ),
      { numRuns: draws(100) },
    );
    await expect(compareWith(untouchedSubject, ORACLE, null as never)).rejects.toThrow(ArgumentError);
    await expect(runConformance({ backend: undefined as never })).rejects.toThrow(ArgumentError);
  });

  it("is refused if it would check nothing", async () => {
    for (const nothing of [{}, { amax: undefined }])
      await expect(compareWith(nothing)).rejects.toThrow(/nothing to check|no amax/);
    await expect(compareWith({ amax: ORACLE.amax }, {}, { runs: 1 })).rejects.toThrow(
      /the reference has no amax/,
    );
    for (const invalidInputs of [null, 1, "x", [], { sort: () => 1 }, { amax: 1 }]) {
      await expect(compareWith(invalidInputs as Subject)).rejects.toThrow(ArgumentError);
      await expect(compareWith(untouchedSubject, invalidInputs as Subject)).rejects.toThrow(ArgumentError);
    }
  });

  it("refuses a path that identifies no input, and an invalid number of runs in every law", async () => {
    const law = "encode is monotone";
    await expect(
      compareWith(ORACLE, ORACLE, { replay: { law, path: "0:999999:0" }, seed: 4 }),
    ).rejects.toThrow(ArgumentError);
    for (const namedLaw of LAWS)
      for (const runs of [0, Number.NaN, 1.5, -1, Infinity])
        await expect(namedLaw.check(ORACLE, ORACLE, { runs, seed: 1 })).rejects.toThrow(ArgumentError);
  });
});
