/**
 * No argument of any export corrupts memory, changes another tensor, or is ignored although it is invalid. Docstrings
 * name the errors that refuse arguments.
 */
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Callable } from "../harness/arguments/declared.js";
import {
  enumerateTrials,
  haveDisjointPaths,
  makeInvalidCall,
  makeValidCall,
  type Refusals,
  type Trial,
} from "../harness/arguments/law.js";
import {
  callables,
  declarations,
  ENTRIES,
  ROWS,
  resolveTarget,
  rows,
  testedCallables,
  useBackends,
} from "../harness/arguments/package.js";
import type { Row } from "../harness/arguments/row.js";
import { WITHOUT_LAW } from "../harness/arguments/rows-others.js";
import { draws, drawsOr, SEED, sampleCases } from "../harness/draws.js";

/**
 * Functions that check an argument for another function, by the name of that other function: the class that it extends, or the
 * function that it calls.
 */
const SPEAKS_FOR: Readonly<Record<string, readonly string[]>> = {
  Parameter: ["Variable"],
  assertSameBits: ["PlainTensor"],
  groupedGemm: ["gemm"],
  quantizeCase: ["quantizeSpec"],
  recompute: ["Variable"],
  TransformerLayer: ["MultiheadAttention"],
  specsOf: ["optionsOf"],
  words: ["splitmix32"],
};

const backends = useBackends();

const trialsOfCall = new Map<string, readonly Trial[]>();

function trialsFor(callable: Callable): readonly Trial[] {
  const { name } = callable;
  const row = ROWS[name];
  if (!row) return [];
  const trials = trialsOfCall.get(name) ?? enumerateTrials(declarations, callable, row, backends());
  trialsOfCall.set(name, trials);
  return row.isSlow ? trials.filter(({ mustRefuse }) => mustRefuse) : trials;
}

describe("arguments", () => {
  it("every entry point of the package is covered", () => {
    const { exports } = JSON.parse(readFileSync("package.json", "utf8")) as {
      readonly exports: Readonly<Record<string, string | { readonly types: string }>>;
    };
    const types = Object.values(exports).flatMap((entry) => (typeof entry === "string" ? [] : [entry.types]));
    expect(ENTRIES.map(([path]) => `./${path}`).sort()).toEqual(types.sort());
  });

  it("every export is covered, and every row covers an export", () => {
    const uncoveredNames = testedCallables
      .filter(({ name }) => !ROWS[name] && !WITHOUT_LAW[name])
      .map(({ name }) => name);
    expect(uncoveredNames, "exports without a row that says how they are called").toEqual([]);
    const staleNames = [...Object.keys(ROWS), ...Object.keys(WITHOUT_LAW)].filter(
      (name) => !callables.has(name),
    );
    expect(staleNames, "rows of what is not exported").toEqual([]);
  });

  it.each(sampleCases(rows, Math.ceil(rows.length / 4)))(
    "%s is called validly",
    async (_name, callable, row: Row) => {
      for (const call of row.calls.keys())
        expect(await makeValidCall(resolveTarget(callable), row, call, backends())).toBeUndefined();
    },
  );

  let count = 0;
  it.each(rows)(
    "%s refuses wrong arguments by errors that its docstring names, and changes nothing",
    async (_name, callable) => {
      const faults: string[] = [];
      const refusals: Refusals = {
        errors: new Set(),
        refusingFunctions: new Set(),
        unnamedArguments: new Map(),
      };
      for (const trial of sampleCases(
        trialsFor(callable),
        3,
        rows.findIndex(([name]) => name === _name),
      )) {
        const fault = await makeInvalidCall(resolveTarget(callable), [trial], backends(), refusals);
        if (fault) faults.push(fault);
        count++;
      }
      expect(faults.slice(0, 12)).toEqual([]);
      const undocumentedErrors = [...refusals.errors].filter((error) => !callable.doc.includes(error));
      expect(undocumentedErrors, `typed errors of ${callable.name} that its docstring does not name`).toEqual(
        [],
      );
      const { name } = callable;
      const unknownFunctions = [...refusals.refusingFunctions].filter(
        (caller) =>
          !name.includes(".") &&
          caller !== name &&
          callables.has(caller) &&
          !SPEAKS_FOR[name]?.includes(caller),
      );
      expect([...refusals.unnamedArguments], `arguments of ${name} that errors do not name`).toEqual([]);
      expect(unknownFunctions, `functions that errors of ${name} name instead of it`).toEqual([]);
    },
  );

  it("what was disposed of refuses calls with any arguments", async () => {
    const acceptedTrials: string[] = [];
    for (const [, callable] of sampleCases(rows, Math.ceil(rows.length / 4), 1)) {
      const trials = trialsFor(callable);
      const disposedTrial = trials.find(({ disposedSelf }) => disposedSelf);
      if (!disposedTrial) continue;
      for (const otherTrial of trials.filter(
        (trial) => trial.call === disposedTrial.call && !trial.mustRefuse,
      )) {
        const fault = await makeInvalidCall(resolveTarget(callable), [disposedTrial, otherTrial], backends());
        if (fault) acceptedTrials.push(fault);
      }
    }
    expect(acceptedTrials).toEqual([]);
  });

  it("two wrong arguments at once are refused as well", async () => {
    const fastNames = rows.filter(([, , { isSlow }]) => !isSlow).map(([name]) => name);
    const pairs = fc.record({
      name: fc.constantFrom(...fastNames),
      first: fc.nat(),
      second: fc.nat(),
    });
    await fc.assert(
      fc.asyncProperty(pairs, async ({ name, first: firstIndex, second: secondIndex }) => {
        const callable = callables.get(name) as Callable;
        const trials = trialsFor(callable);
        const trial = trials[firstIndex % trials.length];
        const otherTrials = trials.filter(
          (candidate) => trial && candidate.call === trial.call && haveDisjointPaths(candidate, trial),
        );
        const otherTrial = otherTrials[secondIndex % otherTrials.length];
        if (!trial || !otherTrial) return;
        expect(
          await makeInvalidCall(resolveTarget(callable), [trial, otherTrial], backends()),
        ).toBeUndefined();
      }),
      { numRuns: drawsOr(1000), seed: SEED },
    );
  });

  it("thousands of wrong values are tried", () => {
    const options = rows.reduce((sum, [, { parameters }]) => sum + parameters.length, 0);
    console.log(
      `arguments: ${rows.length} callables, ${options} parameters, ${count} wrong or doubtful values tried`,
    );
    expect(count).toBeGreaterThan(draws(10_000));
  });
});
