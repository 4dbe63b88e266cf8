/** The operation sweep on a GPU: digests of the codes of all f32 bit patterns. */
import { OVERFLOW, ROUNDING } from "../../../formats/contract.gen.js";
import { type Lowering, randomWords } from "../lowering.js";
import { bounded, type Declarations, writes } from "../native-arguments.js";
import { RANDOM } from "../shared-arguments.js";

export const SWEEP_CALLS = {
  sweep: {
    word: "word",
    rounding: "rounding",
    overflow: "overflow",
    ...RANDOM,
    chunk: bounded({ to: 255, type: "uint32_t" }),
    out: writes.u32("2", "The two sums."),
  },
} as const satisfies Declarations;

export const sweep: Lowering<"sweep"> = {
  run({ addon, device }, { word, rounding, overflow, random, chunk, out }) {
    addon.sweep(device, {
      word,
      rounding: ROUNDING[rounding],
      overflow: OVERFLOW[overflow],
      random: randomWords(random),
      chunk,
      out,
    });
  },
};
