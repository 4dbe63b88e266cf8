/** Mistakes of quantizers that change inputs, or the right answer afterwards. */
import type { Answer } from "../../operations/operation.js";
import type { PlainTensor } from "../../values/plain.js";
import { bitsOf, fromBits } from "../../values/values.js";
import { mapCodes, swapNibbles, transposedCodes, withTensor } from "./inputs.js";
import type { Suspect } from "./suspect.js";
import { ofInput } from "./wide-inputs.js";

/** A change of one kind of tensors of the right answer. */
const ofAnswer = (
  words: string,
  ending: string,
  change: (tensor: PlainTensor, answer: Answer) => PlainTensor | undefined,
): Suspect<"quantize"> => ({
  words,
  answer: (_input, _right, expected) => {
    let made: Answer | undefined = expected;
    for (const name of Object.keys(expected).filter((each) => each.endsWith(ending)))
      made = made && withTensor(made, name, change(expected[name] as PlainTensor, expected));
    return made === expected ? undefined : made;
  },
});

const f32Change = (change: (x: number) => number) => (tensor: PlainTensor) =>
  tensor.dtype === "f32" ? mapCodes(tensor, (bits) => bitsOf(change(fromBits(bits)))) : undefined;

/** Mistakes of a quantizer whose whole answer follows from right answers. */
export const QUANTIZE: readonly Suspect<"quantize">[] = [
  ofAnswer("nibbles are swapped: the even column has to be in the low half of a byte", ".data", swapNibbles),
  ofAnswer("codes are stored transposed", ".data", transposedCodes),
  ofAnswer(
    "the stored amax of the tensor is its reciprocal",
    ".amax",
    f32Change((x) => 1 / x),
  ),
  ofAnswer(
    "the decode scale amax / 2688 is stored for the tensor, not its amax",
    ".amax",
    f32Change((x) => Math.fround(x / 2688)),
  ),
  ofAnswer(
    "the encode scale 2688 / amax is stored for the tensor, not its amax",
    ".amax",
    f32Change((x) => Math.fround(2688 / x)),
  ),
  ofAnswer(
    "the scale of the tensor is left out: 1 is stored",
    ".amax",
    f32Change(() => 1),
  ),
  ofAnswer(
    "the scale of the tensor is left out: 0 is stored",
    ".amax",
    f32Change(() => 0),
  ),
  ...ofInput<"quantize">((input, change) => ({ ...input, x: change(input.x) })),
  {
    words: "the copies are exchanged: rowwise blocks along columns",
    answer: async ({ usage, ...input }, right) => {
      if (usage.rowwise === usage.columnwise) return {};
      const [own, other] = usage.rowwise ? ["rowwise", "columnwise"] : ["columnwise", "rowwise"];
      const made = await right({
        ...input,
        usage: { rowwise: !usage.rowwise, columnwise: !usage.columnwise },
      });
      return Object.fromEntries(
        Object.entries(made).map(([name, tensor]) => [name.replace(other as string, own as string), tensor]),
      );
    },
  },
];
