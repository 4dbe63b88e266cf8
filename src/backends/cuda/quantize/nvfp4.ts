/**
 * Quantization to NVFP4 on a GPU. One pass over the input computes the amaxes that are not given; a second pass writes both
 * copies. By other rules than TransformerEngine's, a kernel makes scales of the tensor of the amaxes between the two.
 */
import { isSquare } from "../../../formats/block.js";
import type { QuantizedCopy } from "../../../tensor/quantized.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { QuantizeArgs } from "../../ops.js";
import { copyOf } from "../layout/copies.js";
import { addressOf, type LoweringContext, randomWords, ruleOf, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { COPY, PART, RANDOM, RULE, SOURCE } from "../shared-arguments.js";

const NVFP4_COPY = { ...COPY, amax: "pointer", "givenAmax?": "pointer", "words?": "pointer" } as const;

export const NVFP4_CALLS = {
  quantizeNvfp4: {
    ...SOURCE,
    ...RULE,
    square: "flag",
    transforms: "flag",
    signs: "word",
    stochastic: "flag",
    ...RANDOM,
    ...PART,
    fourOverSix: "flag",
    squaredError: "flag",
    e4m3Max: "float",
    "noop?": "pointer",
    "rowwise?": NVFP4_COPY,
    "columnwise?": NVFP4_COPY,
  },
} as const satisfies Declarations;

export function quantizeNvfp4({ addon, device }: LoweringContext, args: QuantizeArgs): void {
  const { x, spec, random, part, rowwise, columnwise, amax, noop } = args;
  const { randomBits, randomBitsColumnwise } = args;
  const [rows, columns] = asMatrix(x.shape);
  // without the transform, a given amax serves both copies (numerics.md §5.2)
  const amaxColumnwise = args.amaxColumnwise ?? (spec.rht ? undefined : amax);
  addon.quantizeNvfp4(device, {
    x: x.address,
    xType: wideOf(x),
    rows,
    columns,
    ...ruleOf(spec),
    square: isSquare(spec.tile),
    transforms: spec.rht,
    signs: spec.rhtSigns,
    stochastic: spec.stochastic,
    fourOverSix: spec.fourOverSix !== "none",
    squaredError: spec.fourOverSix === "mse",
    e4m3Max: spec.e4m3Max,
    random: randomWords(random),
    part: spec.stochastic ? part : undefined,
    noop: addressOf(noop),
    rowwise: rowwise && withInputs(rowwise, amax, randomBits),
    columnwise: columnwise && withInputs(columnwise, amaxColumnwise, randomBitsColumnwise),
  });
}

/**
 * Returns the arguments for one copy: its codes, scales and amax, and the addresses of a given amax and of given random bits. A
 * copy of NVFP4 always has an amax.
 */
function withInputs(copy: QuantizedCopy, given: Tensor | undefined, words: Tensor | undefined) {
  const [amax, givenAmax] = [copy.amax!.address, addressOf(given)];
  return { amax, givenAmax, words: addressOf(words), ...copyOf(copy) };
}
