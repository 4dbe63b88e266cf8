/** Constant scales where the correct ones vary: for blocks of zeros, for scales of 0, for all blocks. */
import { f32OfBits } from "../../../../src/explain/binary.js";
import { codeText, numberText } from "../../../../src/explain/text.js";
import { blockFormat } from "../../../../src/formats/block.js";
import { valueOfCode } from "../../../../src/formats/derive.js";
import type { CopyEvidence } from "../copies.js";
import type { View } from "../view.js";
import type { ScaleSuspect } from "./scale-suspect.js";

/** A kind of block whose scales may all be one constant. */
interface Kind {
  readonly words: string;
  readonly has: (view: View, block: number) => boolean;
}

const KINDS: readonly Kind[] = [
  { words: "the scale of a block of zeros", has: (view, block) => view.amaxOf(block) === 0 },
  {
    words: "a scale that would be 0",
    has: (view, block) => view.expected[block]?.scale === 0,
  },
  { words: "the scale of a block with an infinity", has: (view, block) => view.amaxOf(block) === Infinity },
  {
    words: "the scale of a block with NaN",
    has: (view, block) => view.valuesOf(block).some(Number.isNaN),
  },
  { words: "every scale", has: () => true },
];

/** The kinds of blocks that all have one wrong scale. */
export function ofConstants(copies: readonly CopyEvidence[]): readonly ScaleSuspect[] {
  return KINDS.flatMap(({ words, has }): readonly ScaleSuspect[] => {
    const stored = new Set<number>();
    let wrong = 0;
    for (const { view, scales } of copies)
      for (let block = 0; block < view.blocks.length; block++) {
        if (!has(view, block)) continue;
        const code = scales[block] as number;
        stored.add(code);
        if (code !== view.expected[block]?.code) wrong++;
        if (stored.size > 1) break;
      }
    const [code, other] = stored;
    if (code === undefined || other !== undefined || wrong === 0) return [];
    const { spec } = (copies[0] as CopyEvidence).view;
    return [
      {
        words: `${words} is ${scaleText(spec.quantizer, code)}`,
        of: (view, block) => (has(view, block) ? view.resultOf(code, block) : view.expected[block]),
      },
    ];
  });
}

function scaleText(quantizer: View["spec"]["quantizer"], code: number): string {
  const { scale } = blockFormat(quantizer);
  if (scale === "f32") return numberText(f32OfBits(code));
  return `${numberText(valueOfCode(scale, code))} (${codeText(code, 8)})`;
}
