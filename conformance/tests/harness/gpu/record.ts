/** Records the outcome of a GPU run for docs/conformance.md: with RECORD=FILE, each test appends one line of JSON. */
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import type { Backend } from "../../../../src/backends/backend.js";

/** The number of inputs of one kind that agreed, and the reasons why others were declined. */
interface RunRecord {
  readonly group: "laws" | "large" | "sweep" | "gemm";
  readonly name: string;
  readonly runs: number;
  readonly declined?: readonly { readonly reason: string; readonly count: number }[];
  /** The number of option pairs that were drawn, and how often the rarest was. */
  readonly pairs?: number;
  readonly rarest?: number;
}

type DeclinedCounts = NonNullable<RunRecord["declined"]>;

/** Counts reasons by kind. For example, all unsupported pairs of operands are one kind. */
function groupByKind(declined: DeclinedCounts): DeclinedCounts {
  const counts = new Map<string, number>();
  for (const { reason, count } of declined) {
    const kind = reason
      .replace(/multiply [^:,;]+ by [^:,;]+([:;])/, "multiply such a pair$1")
      .replace(/has a type for \w+/, "has a type for one of them");
    counts.set(kind, (counts.get(kind) ?? 0) + count);
  }
  return Array.from(counts, ([reason, count]) => ({ reason, count }));
}

const DRIVER = "/proc/driver/nvidia/version";

/** The version of NVIDIA's driver, if Linux reports it. */
function driver(): string | undefined {
  return existsSync(DRIVER) ? readFileSync(DRIVER, "utf8").match(/\b\d{3}\.\d+(\.\d+)?\b/)?.[0] : undefined;
}

/** Appends a line to the file; several processes may do so at once. Does nothing without RECORD. */
export function record({ description }: Backend, entry: RunRecord): void {
  const { RECORD, SEED = "1" } = process.env;
  if (!RECORD) return;
  const { declined, ...counted } = entry;
  const reasons = declined && { declined: groupByKind(declined) };
  const line = { ...counted, ...reasons, device: description, driver: driver(), seed: SEED };
  appendFileSync(RECORD, `${JSON.stringify(line)}\n`);
}
