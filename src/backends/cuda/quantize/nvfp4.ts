/**
 * Quantization to NVFP4 on a GPU. One pass over the input computes the amaxes that are not given; a second pass writes both
 * copies. By other rules than TransformerEngine's, a kernel makes scales of the tensor of the amaxes between the two. With ue5m3
 * scales, one pass is all.
 */
import { isSquare } from "../../../formats/block.js";
import type { QuantizedCopy } from "../../../tensor/quantized.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { QuantizeArgs } from "../../ops.js";
import { copyOf } from "../layout/copies.js";
import { addressOf, type LoweringContext, randomWords } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { COPY, PART, RANDOM } from "../shared-arguments.js";
import { QUANTIZED, quantizedSource } from "./source.js";

const NVFP4_COPY = { ...COPY, "amax?": "pointer", "givenAmax?": "pointer", "words?": "pointer" } as const;

export const NVFP4_CALLS = {
  quantizeNvfp4: {
    ...QUANTIZED,
    square: "flag",
    transforms: "flag",
    signs: "word",
    stochastic: "flag",
    ...RANDOM,
    ...PART,
    fourOverSix: "flag",
    squaredError: "flag",
    e4m3Max: "float",
    rowScaled: "flag",
    "rowwise?": NVFP4_COPY,
    "columnwise?": NVFP4_COPY,
  },
} as const satisfies Declarations;

export function quantizeNvfp4({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  const { spec, random, part, rowwise, columnwise, amax } = args;
  const { randomBits, randomBitsColumnwise } = args;
  // without the transform, a given amax serves both copies (numerics.md §5.2)
  const amaxColumnwise = args.amaxColumnwise ?? (spec.rht ? undefined : amax);
  addon.quantizeNvfp4(device, {
    square: isSquare(spec.tile),
    ...quantizedSource(args),
    transforms: spec.rht,
    signs: spec.rhtSigns,
    stochastic: spec.stochastic,
    fourOverSix: spec.fourOverSix !== "none",
    squaredError: spec.fourOverSix === "mse",
    e4m3Max: spec.e4m3Max,
    rowScaled: spec.rowScaled,
    random: randomWords(random),
    part: spec.stochastic ? part : undefined,
    rowwise: rowwise && withInputs(rowwise, amax, randomBits),
    columnwise: columnwise && withInputs(columnwise, amaxColumnwise, randomBitsColumnwise),
  });
}

/** Returns the arguments for one copy: its codes, scales and amax, and the addresses of a given amax and of given random bits. */
function withInputs(copy: QuantizedCopy, given: Tensor | undefined, words: Tensor | undefined) {
  const [amax, givenAmax] = [addressOf(copy.amax), addressOf(given)];
  return { amax, givenAmax, words: addressOf(words), ...copyOf(copy) };
}
