/** The committed distances between the results and TransformerEngine's. RECORD_DISTANCES=1 rewrites them. */
import { readFileSync, writeFileSync } from "node:fs";
import { expect } from "vitest";
import { type Distances, together } from "./recorded.js";

const PATH = new URL("../../../vectors/te-distances.json", import.meta.url);

type Recorded = Record<string, Record<string, Distances>>;

function read(): Recorded {
  return JSON.parse(readFileSync(PATH, "utf8")) as Recorded;
}

/** Combines the differences of each result. */
export function combinedDistances(
  measured: ReadonlyMap<string, readonly Distances[]>,
): Record<string, Distances> {
  return Object.fromEntries([...measured].map(([name, distances]) => [name, together(distances)]));
}

/** Fails unless the measured distances equal those committed for `group`. With RECORD_DISTANCES it commits them first. */
export function expectDistances(group: string, combined: Record<string, Distances>): void {
  if (process.env.RECORD_DISTANCES)
    writeFileSync(PATH, `${JSON.stringify({ ...read(), [group]: combined }, null, 1)}\n`);
  expect(combined).toEqual(read()[group]);
}
