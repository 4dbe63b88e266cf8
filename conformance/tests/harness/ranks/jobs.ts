/** Jobs of processes that run the same programs, and the comparison of their results with the oracle. */
import { expect } from "vitest";
import { differenceOf } from "../../../values/difference.js";
import { type Case, parseResult } from "./case.js";
import {
  type Environment,
  freePort,
  jobEnvironment,
  type RankEnd,
  startRank,
  withDeadline,
} from "./processes.js";

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
    startRank(
      args,
      { ...jobEnvironment(rank, size, port), ...environment(rank) },
      script ? [script] : undefined,
    ),
  );
  return withDeadline(deadlineMs, Promise.all(ranks.map(({ ended }) => ended)));
}

type RankReport = RankEnd["report"];

/** The results of the calls of one program. */
function programResults(report: RankReport, program: number): readonly (string | null)[] {
  return (report?.results as readonly (readonly (string | null)[])[] | undefined)?.[program] ?? [];
}

/** The message of the failure that a rank reported. */
export function failureMessage(report: RankReport): string {
  return (report?.error as { readonly message: string } | undefined)?.message ?? "";
}

/** Fails unless the results of every rank, as the lines that ranks print, are the expected ones. */
export function assertCase(
  { expected, programs }: Case,
  results: readonly (readonly (string | null | undefined)[])[],
  context: string,
): void {
  for (const [rank, lines] of results.entries()) {
    for (const [i, line] of lines.entries()) {
      const [actual, expectedTensor] = [parseResult(line ?? undefined), expected[rank]?.[i]];
      const call = programs[rank]?.calls[i];
      const description = `${context}, rank ${rank}, call ${i}: ${JSON.stringify(call)}`;
      expect([actual?.dtype, actual?.shape], description).toEqual([
        expectedTensor?.dtype,
        expectedTensor?.shape,
      ]);
      if (actual && expectedTensor) expect(differenceOf(actual, expectedTensor), description).toBeUndefined();
    }
  }
}

/** Fails unless the ranks' results of each case are the expected ones. */
export function assertExpected(cases: readonly Case[], ends: readonly RankEnd[]): void {
  for (const [i, testCase] of cases.entries()) {
    const reports = ends.map(({ report }) => programResults(report, i));
    assertCase(testCase, reports, `case ${i}`);
  }
}
