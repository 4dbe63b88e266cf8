/**
 * Quantization to NVFP4 on a GPU. One pass over the input computes the amaxes that are not given; a second pass writes both
 * copies. Under rules other than TransformerEngine's, a kernel between the two passes computes per-tensor scales from the amaxes.
 * With ue5m3 scales, one pass suffices.
 */
import { isSquare } from "../../../formats/block.js";
import type { QuantizedCopy } from "../../../tensor/quantized.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { QuantizeArgs } from "../../ops.js";
import { copyOf } from "../layout/copies.js";
import { type LoweringContext, randomWords } from "../lowering.js";
import { bounded, type Declarations, group, reads, writes } from "../native-arguments.js";
import { PART, PHILOX, scales } from "../shared-arguments.js";
import { NOOP, QUANTIZED, quantizedSource } from "./source.js";

/** A copy with `lines` lines: its codes, line by line, their scales, and the amax of the tensor. */
function nvfp4Copy(lines: string) {
  return group("Nvfp4Copy", {
    codes: writes.u4("rows * columns", "Null if the copy is not wanted."),
    scales: scales("1"),
    "amax?": writes.f32(
      `rowScaled ? ${lines} : 1`,
      "By other rules than kTwoLevel the scale of the tensor; null by a rule that hasUe5m3Scales.",
    ),
    "givenAmax?": reads.f32("1", "If not null, this amax is used instead of the amax of the source."),
    "words?": reads.u32(
      "rows * columns",
      "If not null, stochastic rounding rounds each element by a word of its own, in the order of the codes. Both copies or none.",
    ),
  });
}

export const NVFP4_CALLS = {
  /** The launcher returns cudaErrorInvalidValue for arguments that violate the conditions below. */
  quantizeNvfp4: {
    /**
     * Sizes that are multiples of 16, and the rule kTwoLevel, or one that hasTensorScale or hasUe5m3Scales, without the Hadamard
     * transform, stochastic rounding and 4over6.
     */
    ...QUANTIZED,
    "rowwise?": nvfp4Copy("rows"),
    /** The copy of the transpose, [columns, rows]. */
    "columnwise?": nvfp4Copy("columns"),
    /** Whether blocks have 16x16 elements; otherwise 1x16. The scale of a 16x16 block is stored for each of its 16 lines. */
    square: "flag",
    /**
     * Whether columnwise values first go through the random Hadamard transform, for which x is bf16 and blocks are not square.
     * Bit i of `signs` negates row i of each group of 16 rows.
     */
    transforms: "flag",
    signs: "word",
    /** Whether elements are rounded stochastically; otherwise to nearest even. */
    stochastic: "flag",
    ...PHILOX,
    /**
     * 4over6, without the transform and stochastic rounding: the scale of each block maps its amax to 6 or to 4, whichever gives
     * the smaller squared (`squaredError`) or absolute error.
     */
    fourOverSix: "flag",
    squaredError: "flag",
    /** As `SCALING`, but only kDivides and kAddsZero; 0 under kTwoLevel. */
    scaling: bounded({ to: 0xffff, type: "uint16_t" }),
    /** The largest block scale: 448 or 256. */
    e4m3Max: "float",
    /**
     * Whether each line of a copy has its own amax in place of the tensor's (numerics.md §5.9). This requires kTwoLevel and 1x16
     * blocks, and excludes the transform, stochastic rounding and given amaxes.
     */
    rowScaled: "flag",
    ...NOOP,
    /** With stochastic rounding: the larger matrix that this one is a part of. Its elements select the random bits. */
    ...PART,
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

/** Returns the arguments for one copy: its codes, scales and amax, a given amax and given random bits. */
function withInputs(copy: QuantizedCopy, givenAmax: Tensor | undefined, words: Tensor | undefined) {
  const { codes, scales } = copyOf(copy);
  return { codes, scales, amax: copy.amax, givenAmax, words };
}
