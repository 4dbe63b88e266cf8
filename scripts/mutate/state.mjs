/** Reads the log of earlier runs, so that an interrupted run can continue. */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";

const versions = new Map();

/** A hash of a file's contents. */
export function versionOf(file) {
  if (!versions.has(file))
    versions.set(
      file,
      existsSync(file) ? createHash("sha1").update(readFileSync(file)).digest("hex").slice(0, 12) : "",
    );
  return versions.get(file);
}

export function readState(folder) {
  const state = {
    killed: new Set(),
    refused: new Map(),
    compiles: new Set(),
    spent: new Map(),
    by: new Map(),
    tests: new Map(),
    again: [],
    static: new Map(),
    staticSurvived: [],
    /** Tests that fail without a mutant under a time limit that leaves out slower tests, with that limit. */
    unfit: new Set(),
  };
  const path = `${folder}/log.jsonl`;
  if (!existsSync(path)) return state;
  for (const line of readFileSync(path, "utf8").split("\n")) {
    if (!line) continue;
    const entry = JSON.parse(line);
    if (entry.killed !== undefined) {
      state.killed.add(entry.killed);
      state.by.set(entry.killed, entry);
    }
    if (entry.refused !== undefined) state.refused.set(entry.refused, entry.error);
    if (entry.compiles !== undefined) state.compiles.add(entry.compiles);
    if (entry.unfit) state.unfit.add(entry.unfit);
    if (entry.again) state.again.push(entry.again);
    if (entry.staticSurvived) state.staticSurvived.push(entry.staticSurvived);
    if (entry.static) state.static.set(entry.file, new Set(Object.keys(entry.static)));
    if (entry.test) {
      const test = state.tests.get(entry.test) ?? { ms: 0, covered: {}, survived: new Set() };
      const { survived = [], test: _, ...rest } = entry;
      // a test that has changed since may kill mutants that survived its earlier version
      const changed = entry.version !== undefined && entry.version !== versionOf(entry.test.split(" > ")[0]);
      if (!changed) for (const mutant of survived) test.survived.add(mutant);
      state.tests.set(entry.test, Object.assign(test, rest));
    }
  }
  for (const { survived, ms } of state.tests.values())
    for (const mutant of survived) state.spent.set(mutant, (state.spent.get(mutant) ?? 0) + ms);
  return state;
}
