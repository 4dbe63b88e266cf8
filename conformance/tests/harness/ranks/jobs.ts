/** Jobs of processes that run the same programs, and the comparison of their results with the oracle. */
import { expect } from "vitest";
import { differenceOf } from "../../../values/difference.js";
import { type Case, parsed } from "./case.js";
import { type Environment, freePort, jobOf, type RankEnd, startRank, within } from "./processes.js";

/** Starts all ranks of a job and waits for all to exit. */
export async function runRanks(
  args: readonly string[],
  size: number,
  environment: (rank: number) => Environment,
  deadlineMs: number,
  script?: string,
): Promise<readonly RankEnd[]> {
  const port = await freePort();
  const ranks = Array.from({ length: size }, (_, rank) =>
    startRank(args, { ...jobOf(rank, size, port), ...environment(rank) }, script ? [script] : undefined),
  );
  return within(deadlineMs, Promise.all(ranks.map(({ ended }) => ended)));
}

type Said = RankEnd["report"];

/** The results of the calls of one program. */
function toldBy(report: Said, program: number): readonly (string | null)[] {
  return (report?.told as readonly (readonly (string | null)[])[] | undefined)?.[program] ?? [];
}

/** The message of the failure that a rank reported. */
export function messageOf(report: Said): string {
  return (report?.error as { readonly message: string } | undefined)?.message ?? "";
}

/** Fails unless the results of every rank, as JSON, are the expected ones. */
function assertOne(
  { expected, programs }: Case,
  results: readonly (readonly (string | null | undefined)[])[],
  where: string,
): void {
  for (const [rank, lines] of results.entries()) {
    for (const [i, text] of lines.entries()) {
      const [got, wantedTensor] = [parsed(text ?? undefined), expected[rank]?.[i]];
      const call = programs[rank]?.calls[i];
      const what = `${where}, rank ${rank}, call ${i}: ${JSON.stringify(call)}`;
      expect([got?.dtype, got?.shape], what).toEqual([wantedTensor?.dtype, wantedTensor?.shape]);
      if (got && wantedTensor) expect(differenceOf(got, wantedTensor), what).toBeUndefined();
    }
  }
}

/** Fails unless the ranks' results of each case are the expected ones. */
export function assertExpected(cases: readonly Case[], ends: readonly RankEnd[]): void {
  for (const [i, each] of cases.entries()) {
    const reports = ends.map(({ report }) => toldBy(report, i));
    assertOne(each, reports, `case ${i}`);
  }
}
