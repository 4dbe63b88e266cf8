/** What blocks with wrong scales have in common, if no suspect explains them. */
import type { View } from "./view.js";

/** Whether the stored scale of a block is wrong. */
export interface Verdict {
  readonly view: View;
  readonly block: number;
  readonly wrong: boolean;
}

const valuesOf = ({ view, block }: Verdict): number[] => {
  const entry = view.blocks[block];
  return entry ? view.valuesIn(entry.region) : [];
};
const amaxOf = (verdict: Verdict): number => {
  const entry = verdict.view.blocks[verdict.block];
  return entry ? verdict.view.amaxIn(entry.region) : 0;
};

const TRAITS: readonly (readonly [words: string, has: (verdict: Verdict) => boolean])[] = [
  ["where the block has NaN", (verdict) => valuesOf(verdict).some(Number.isNaN)],
  ["where the block has an infinity", (verdict) => valuesOf(verdict).some((x) => Math.abs(x) === Infinity)],
  ["where the block is all zero", (verdict) => amaxOf(verdict) === 0],
  ["where the amax is subnormal", (verdict) => amaxOf(verdict) > 0 && amaxOf(verdict) < 2 ** -126],
  ["in the last block of each line", ({ view, block }) => (block + 1) % view.across === 0],
  ["in the first block of each line", ({ view, block }) => block % view.across === 0],
  ["in odd rows of scales", ({ view, block }) => Math.floor(block / view.across) % 2 === 1],
  ["in rows from 128 on", ({ view, block }) => (view.blocks[block]?.row ?? 0) >= 128],
];

/** A trait that all wrong blocks would share by chance with at least this probability says nothing. */
const CHANCE = 1e-3;

/**
 * Says how many blocks are wrong, and which trait all of them share, with the number of blocks that have it. A trait is named
 * only if the wrong blocks would hardly share it by chance, so never for a single wrong block or for a trait of most blocks.
 */
export function commonTraits(verdicts: readonly Verdict[]): string {
  const wrong = verdicts.filter((verdict) => verdict.wrong);
  const counted = `in ${wrong.length} of ${verdicts.length} blocks`;
  for (const [words, has] of TRAITS) {
    if (!wrong.every(has)) continue;
    const sharing = verdicts.filter(has).length;
    if ((sharing / verdicts.length) ** wrong.length >= CHANCE) continue;
    const others = sharing === wrong.length ? "always" : `in ${wrong.length} of ${sharing} such blocks`;
    return `${counted}: only ${words}, ${others}`;
  }
  return `${counted}, by no known rule`;
}
