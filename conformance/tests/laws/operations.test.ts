/** Operations that have no test file named after them: their laws, and equal bits for any number of threads. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import type { Answer } from "../../operations/operation.js";
import { OPERATION_NAMES, OPERATIONS, type OperationName } from "../../operations/operations.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { ROOT } from "../harness/sources/sources.js";
import { describeLaws, testEqualBits, useBackend, useThreads } from "../harness/suite.js";

/** The files of rows in conformance/operations: their rows, and the path of the test with the same name. */
const LIST = readFileSync(join(ROOT, "conformance/operations/rows.gen.ts"), "utf8");
const FILES = Array.from(
  LIST.matchAll(/^import \{ (.*) \} from "\.\/(.*)\.js";$/gm),
  ([, rows = "", path]) => ({
    rows: rows.split(", "),
    test: `conformance/tests/${path}.test.ts`,
  }),
);
/** The names of the rows that have no counterpart among the tests. */
const ROWS = FILES.flatMap(({ rows, test }) => (existsSync(join(ROOT, test)) ? [] : rows));
/** A product is compared with the oracle for each datapath and format, by laws of its own. */
const OTHER_LAWS = ["conformance/tests/gemm/gemm.test.ts"];
const NAMES = OPERATION_NAMES.filter((name) => ROWS.includes(`${name}Operation`));

function answers<K extends OperationName>(backend: Backend, name: K): Answer {
  const { arbitrary, run } = OPERATIONS[name];
  const inputs = fc.sample(arbitrary, { numRuns: draws(60), seed: derivedSeed(7) });
  return Object.fromEntries(
    inputs.flatMap((input, i) =>
      Object.entries(run(backend, input)).map(([part, tensor]) => [`${i} ${part}`, tensor]),
    ),
  );
}

describe.each(NAMES)("%s", (name) => {
  describeLaws(useBackend({ threads: 2 }), [name], { runs: 300, seed: derivedSeed(31) });
  testEqualBits("threads do not change a bit", useThreads(), (backend) => answers(backend, name));
});

it("the tests of all other operations call the laws", () => {
  const tests = FILES.map(({ test }) => test).filter((test) => existsSync(join(ROOT, test)));
  const testsWithoutLaws = tests.filter(
    (test) => !readFileSync(join(ROOT, test), "utf8").includes("describeLaws("),
  );
  expect(testsWithoutLaws).toEqual(OTHER_LAWS);
});
