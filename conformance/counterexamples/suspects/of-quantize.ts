/** Mistakes of quantizers that change inputs or the finished answer. */
import type { Answer } from "../../operations/operation.js";
import type { PlainTensor } from "../../values/plain.js";
import { mapCodes, swapNibbles, transposedCodes, withTensor } from "./inputs.js";
import type { Suspect } from "./suspect.js";
import { ofInput } from "./wide-inputs.js";

/** Changes one kind of tensor of the expected answer. */
const ofAnswer = (
  words: string,
  ending: string,
  change: (tensor: PlainTensor, answer: Answer) => PlainTensor | undefined,
): Suspect<"quantize"> => ({
  words,
  answer: (_input, _right, expected) => {
    let changedAnswer: Answer | undefined = expected;
    for (const name of Object.keys(expected).filter((each) => each.endsWith(ending)))
      changedAnswer =
        changedAnswer && withTensor(changedAnswer, name, change(expected[name] as PlainTensor, expected));
    return changedAnswer === expected ? undefined : changedAnswer;
  },
});

/** Mistakes of a quantizer whose whole answer is computed from correct answers. */
export const QUANTIZE: readonly Suspect<"quantize">[] = [
  ofAnswer("nibbles are swapped: the even column has to be in the low half of a byte", ".data", swapNibbles),
  ofAnswer("codes are stored transposed", ".data", transposedCodes),
  ofAnswer("the whole answer is 0: nothing was written", "", (tensor) => mapCodes(tensor, () => 0)),
  ...(["seed", "offset"] as const).map(
    (which): Suspect<"quantize"> => ({
      words: `the ${which} of the random bits is ignored`,
      answer: (input, right) =>
        input.spec.stochastic && !input.randomBits && !input.randomBitsColumnwise
          ? right({ ...input, random: { ...input.random, [which]: 0n } })
          : undefined,
    }),
  ),
  ...ofInput<"quantize">((input, change) => ({ ...input, x: change(input.x) })),
  {
    words: "the copies are exchanged: rowwise blocks along columns",
    answer: async ({ usage, ...input }, right) => {
      if (usage.rowwise === usage.columnwise) return {};
      const [direction, other] = usage.rowwise ? ["rowwise", "columnwise"] : ["columnwise", "rowwise"];
      const answer = await right({
        ...input,
        usage: { rowwise: !usage.rowwise, columnwise: !usage.columnwise },
      });
      return Object.fromEntries(
        Object.entries(answer).map(([name, tensor]) => [
          name.replace(other as string, direction as string),
          tensor,
        ]),
      );
    },
  },
];
