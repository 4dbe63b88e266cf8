/** The operation sweep on a GPU: digests of the codes of all f32 bit patterns. */
import { OVERFLOW, ROUNDING } from "../../../formats/contract.gen.js";
import { type Lowering, randomWords } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { RANDOM } from "../shared-arguments.js";

export const SWEEP_CALLS = {
  sweep: {
    word: "word",
    rounding: "rounding",
    overflow: "overflow",
    ...RANDOM,
    chunk: "count",
    out: "pointer",
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
      out: out.address,
    });
  },
};
