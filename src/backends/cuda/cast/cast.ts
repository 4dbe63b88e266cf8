/** The operations encode, decode and amax on a GPU. */
import { OVERFLOW, ROUNDING } from "../../../formats/contract.gen.js";
import { type Lowering, randomWords } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";
import { RANDOM } from "../shared-arguments.js";

export const CAST_CALLS = {
  /** out[i] = encode(x[i] * scale). Stochastic rounding reads the random bits of copy 0 (kernels/core/random.cuh). */
  encode: {
    x: reads.wide("count"),
    out: writes.codes("count"),
    word: "word",
    rounding: "rounding",
    overflow: "overflow",
    ...RANDOM,
    "words?": reads.u32(
      "count",
      "If not null, element i is rounded by words[i] instead (castBits of kernels/core/random.cuh).",
    ),
    scale: "float",
    count: "count",
  },
  /** out[i] = decode(x[i]) * scale, rounded to the type of out. */
  decode: {
    x: reads.codes("count"),
    word: "word",
    out: writes.wide("count"),
    "scale?": reads.f32("1", "Null means a scale of 1."),
    count: "count",
  },
  /** The largest |x|, NaN ignored; 0 for an empty tensor. */
  amax: { x: reads.wide("count"), out: writes.f32("1"), count: "count" },
  /** Sets each byte to a value. Tests fill memory with it. */
  fill: { to: "pointer", bytes: "count", value: "count" },
} as const satisfies Declarations;

export const encode: Lowering<"encode"> = {
  run({ addon, device }, { x, word, rounding, overflow, random, randomBits, scale, out }) {
    addon.encode(device, {
      x,
      out,
      word,
      rounding: ROUNDING[rounding],
      overflow: OVERFLOW[overflow],
      random: randomWords(random),
      words: randomBits,
      scale,
      count: x.size,
    });
  },
};

export const decode: Lowering<"decode"> = {
  run({ addon, device }, { x, word, out }) {
    addon.decode(device, { x, word, out, count: out.size });
  },
};

export const amax: Lowering<"amax"> = {
  run({ addon, device }, { x, out }) {
    addon.amax(device, { x, out, count: x.size });
  },
};
