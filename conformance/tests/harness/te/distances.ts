/** The committed distances between the results and TransformerEngine's. RECORD_DISTANCES=1 rewrites them. */
import { readFileSync, writeFileSync } from "node:fs";
import { expect } from "vitest";
import { combineDistances, type Distances } from "./recorded.js";

const PATH = new URL("../../../vectors/te-distances.json", import.meta.url);

type RecordedDistances = Record<string, Record<string, Distances>>;

function readDistances(): RecordedDistances {
  return JSON.parse(readFileSync(PATH, "utf8")) as RecordedDistances;
}

/** Combines the differences of each result. */
export function combineByResult(
  measured: ReadonlyMap<string, readonly Distances[]>,
): Record<string, Distances> {
  return Object.fromEntries([...measured].map(([name, distances]) => [name, combineDistances(distances)]));
}

/** Fails unless the measured distances equal those committed for `group`. With RECORD_DISTANCES it commits them first. */
export function expectDistances(group: string, combined: Record<string, Distances>): void {
  if (process.env.RECORD_DISTANCES)
    writeFileSync(PATH, `${JSON.stringify({ ...readDistances(), [group]: combined }, null, 1)}\n`);
  expect(combined).toEqual(readDistances()[group]);
}
