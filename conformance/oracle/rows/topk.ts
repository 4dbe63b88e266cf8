/** The largest elements of a row, from the definition in numerics.md 7.17. */
import { add } from "../core/rational.js";

/** How many groups a row has, and how many of them can be chosen. */
export interface Groups {
  readonly groups: number;
  readonly groupTopk: number;
}

/** The indices of numbers in descending order, those of equal numbers ascending; NaN counts as -infinity. */
function rankIndices(values: readonly number[]): number[] {
  const score = (i: number): number => (Number.isNaN(values[i]) ? Number.NEGATIVE_INFINITY : values[i]!);
  const compareElements = (a: number, b: number): number =>
    score(a) === score(b) ? a - b : score(a) > score(b) ? -1 : 1;
  return [...values.keys()].sort(compareElements);
}

/** The indices of the k largest elements, the largest first. */
export function topk(row: readonly number[], k: number, { groups, groupTopk }: Groups): number[] {
  const size = row.length / groups;
  const groupIndex = (i: number): number => Math.floor(i / size);
  const scores = Array.from({ length: groups }, (_, group) => {
    const members = row.filter((_, i) => groupIndex(i) === group).map((x) => (Number.isNaN(x) ? -1 / 0 : x));
    const best = rankIndices(members).slice(0, k / groupTopk);
    return best.reduce((sum, i) => add(sum, members[i]!), 0);
  });
  const allowedGroups = groupTopk === groups ? [...scores.keys()] : rankIndices(scores).slice(0, groupTopk);
  return rankIndices(row)
    .filter((i) => allowedGroups.includes(groupIndex(i)))
    .slice(0, k);
}
