/** What a run on a GPU came to, for docs/conformance.md: with RECORD=FILE, tests add their counts to that file. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import type { Backend } from "../../src/backends/backend.js";

/** One line of the record: so many inputs of one kind agreed; why others were declined. */
export interface Counted {
  readonly group: "laws" | "large" | "sweep" | "gemm";
  readonly name: string;
  readonly runs: number;
  readonly declined?: readonly { readonly reason: string; readonly count: number }[];
}

interface GpuRecord {
  readonly device: string;
  readonly seed: string;
  readonly entries: readonly Counted[];
}

/** Adds `entry` in place of one of that group and name. Does nothing without RECORD. */
export function record(backend: Backend, entry: Counted): void {
  const { RECORD, SEED = "1" } = process.env;
  if (!RECORD) return;
  const before: GpuRecord = existsSync(RECORD)
    ? (JSON.parse(readFileSync(RECORD, "utf8")) as GpuRecord)
    : { device: backend.description, seed: SEED, entries: [] };
  const others = before.entries.filter(({ group, name }) => group !== entry.group || name !== entry.name);
  const after = { device: backend.description, seed: SEED, entries: [...others, entry] };
  writeFileSync(RECORD, `${JSON.stringify(after, null, 1)}\n`);
}
