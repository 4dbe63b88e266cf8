/** Jobs of processes that do the same, and whether what they tell is what the oracle says. */
import { expect } from "vitest";
import { differenceOf } from "../../../values/difference.js";
import { type Case, parsed } from "./case.js";
import { type Environment, freePort, jobOf, type RankEnd, startRank, within } from "./processes.js";

/** Starts all ranks of a job and waits for their ends. */
export async function runRanks(
  args: readonly string[],
  size: number,
  environment: (rank: number) => Environment,
  deadlineMs: number,
  script?: string,
): Promise<readonly RankEnd[]> {
  const port = await freePort();
  const ranks = Array.from({ length: size }, (_, rank) =>
    startRank(args, { ...jobOf(rank, size, port), ...environment(rank) }, script),
  );
  return within(deadlineMs, Promise.all(ranks.map(({ ended }) => ended)));
}

type Said = RankEnd["said"];

/** What the calls of one program gave. */
export function toldBy(said: Said, program: number): readonly (string | null)[] {
  return (said?.told as readonly (readonly (string | null)[])[] | undefined)?.[program] ?? [];
}

/** What a rank says of how it failed. */
export function messageOf(said: Said): string {
  return (said?.error as { readonly message: string } | undefined)?.message ?? "";
}

/** What every rank's calls gave, as JSON has it. */
export function assertExpected(
  { expected, programs }: Case,
  results: readonly (readonly (string | null | undefined)[])[],
  where: string,
): void {
  for (const [rank, told] of results.entries()) {
    for (const [i, text] of told.entries()) {
      const [got, wanted] = [parsed(text ?? undefined), expected[rank]?.[i]];
      const call = programs[rank]?.calls[i];
      const what = `${where}, rank ${rank}, call ${i}: ${JSON.stringify(call)}`;
      expect([got?.dtype, got?.shape], what).toEqual([wanted?.dtype, wanted?.shape]);
      if (got && wanted) expect(differenceOf(got, wanted), what).toBeUndefined();
    }
  }
}
