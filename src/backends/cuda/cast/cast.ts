/** The operations encode, decode and amax on a GPU. */
import { OVERFLOW, ROUNDING } from "../../../formats/contract.gen.js";
import { addressOf, type Lowering, randomWords, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { OUT, RANDOM, X } from "../shared-arguments.js";

export const CAST_CALLS = {
  encode: {
    ...X,
    out: "pointer",
    word: "word",
    rounding: "rounding",
    overflow: "overflow",
    ...RANDOM,
    "words?": "pointer",
    scale: "float",
    count: "count",
  },
  decode: { x: "pointer", word: "word", ...OUT, "scale?": "pointer", count: "count" },
  amax: { ...X, out: "pointer", count: "count" },
  /** Sets each byte to a value. Tests fill memory with it. */
  fill: { to: "pointer", bytes: "count", value: "count" },
} as const satisfies Declarations;

export const encode: Lowering<"encode"> = {
  run({ addon, device }, { x, word, rounding, overflow, random, randomBits, scale, out }) {
    addon.encode(device, {
      x: x.address,
      xType: wideOf(x),
      out: out.address,
      word,
      rounding: ROUNDING[rounding],
      overflow: OVERFLOW[overflow],
      random: randomWords(random),
      words: addressOf(randomBits),
      scale,
      count: x.size,
    });
  },
};

export const decode: Lowering<"decode"> = {
  run({ addon, device }, { x, word, out }) {
    addon.decode(device, {
      x: x.address,
      word,
      out: out.address,
      outType: wideOf(out),
      count: out.size,
    });
  },
};

export const amax: Lowering<"amax"> = {
  run({ addon, device }, { x, out }) {
    addon.amax(device, { x: x.address, xType: wideOf(x), out: out.address, count: x.size });
  },
};
