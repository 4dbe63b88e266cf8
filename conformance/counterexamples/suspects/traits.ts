/** What blocks with wrong scales have in common, where no suspect explains them. */
import type { View } from "./view.js";

/** Whether the stored scale of a block is wrong. */
export interface Verdict {
  readonly view: View;
  readonly block: number;
  readonly wrong: boolean;
}

const valuesOf = ({ view, block }: Verdict): number[] => {
  const found = view.blocks[block];
  return found ? view.valuesIn(found.region) : [];
};
const amaxOf = (verdict: Verdict): number => {
  const found = verdict.view.blocks[verdict.block];
  return found ? verdict.view.amaxIn(found.region) : 0;
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

/** Says which blocks are wrong: the trait that all of them have and not all blocks do, or that there is none. */
export function commonTraits(verdicts: readonly Verdict[]): string {
  const wrong = verdicts.filter((verdict) => verdict.wrong);
  const found = TRAITS.find(
    ([, has]) => wrong.every(has) && verdicts.some((verdict) => !verdict.wrong && !has(verdict)),
  );
  return found ? `only ${found[0]}` : `in ${wrong.length} of ${verdicts.length} blocks, by no known rule`;
}
