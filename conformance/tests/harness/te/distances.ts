/** The committed distances between the results and TransformerEngine's. RECORD_DISTANCES=1 rewrites them. */
import { readFileSync, writeFileSync } from "node:fs";
import { expect } from "vitest";
import { type Distances, together } from "./recorded.js";

const PATH = new URL("../../../vectors/te-distances.json", import.meta.url);

type Recorded = Record<string, Record<string, Distances>>;

function read(): Recorded {
  return JSON.parse(readFileSync(PATH, "utf8")) as Recorded;
}

/** Fails unless the measured distances equal those committed for `group`. With RECORD_DISTANCES it commits them first. */
export function expectDistances(group: string, measured: ReadonlyMap<string, readonly Distances[]>): void {
  const combined = Object.fromEntries([...measured].map(([name, each]) => [name, together(each)]));
  if (process.env.RECORD_DISTANCES)
    writeFileSync(PATH, `${JSON.stringify({ ...read(), [group]: combined }, null, 1)}\n`);
  expect(combined).toEqual(read()[group]);
}
