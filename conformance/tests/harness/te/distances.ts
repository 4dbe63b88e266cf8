/** How far results lie from TransformerEngine's, as committed; with RECORD_DISTANCES=1 they are written anew. */
import { readFileSync, writeFileSync } from "node:fs";
import { expect } from "vitest";
import { type Distances, together } from "./recorded.js";

const PATH = new URL("../../../vectors/te-distances.json", import.meta.url);

type Recorded = Record<string, Record<string, Distances>>;

function read(): Recorded {
  return JSON.parse(readFileSync(PATH, "utf8")) as Recorded;
}

/** Holds the distances found, by name, to the committed ones of that group. */
export function expectDistances(group: string, found: ReadonlyMap<string, readonly Distances[]>): void {
  const own = Object.fromEntries([...found].map(([name, each]) => [name, together(each)]));
  if (process.env.RECORD_DISTANCES)
    writeFileSync(PATH, `${JSON.stringify({ ...read(), [group]: own }, null, 1)}\n`);
  expect(own).toEqual(read()[group]);
}
