/** Operations that have no test file named after them: their laws, and equal bits for any number of threads. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import type { Answer } from "../../operations/operation.js";
import { OPERATION_NAMES, OPERATIONS, type OperationName } from "../../operations/operations.js";
import { draws, seeded } from "../harness/draws.js";
import { ROOT } from "../harness/sources/sources.js";
import { describeLaws, sameOnAll, useBackend, useThreads } from "../harness/suite.js";

/** The names of the rows in conformance/operations that have no counterpart among the tests. */
const LIST = readFileSync(join(ROOT, "conformance/operations/rows.gen.ts"), "utf8");
const ROWS = Array.from(LIST.matchAll(/^import \{ (.*) \} from "\.\/(.*)\.js";$/gm), ([, rows = "", path]) =>
  existsSync(join(ROOT, `conformance/tests/${path}.test.ts`)) ? [] : rows.split(", "),
).flat();
const NAMES = OPERATION_NAMES.filter((name) => ROWS.includes(`${name}Operation`));

function answers<K extends OperationName>(backend: Backend, name: K): Answer {
  const { arbitrary, run } = OPERATIONS[name];
  const inputs = fc.sample(arbitrary, { numRuns: draws(60), seed: seeded(7) });
  return Object.fromEntries(
    inputs.flatMap((input, i) =>
      Object.entries(run(backend, input)).map(([part, tensor]) => [`${i} ${part}`, tensor]),
    ),
  );
}

describe.each(NAMES)("%s", (name) => {
  describeLaws(useBackend({ threads: 2 }), [name], { runs: 300, seed: seeded(31) });
  sameOnAll("threads do not change a bit", useThreads(), (backend) => answers(backend, name));
});
