/** Delayed scaling: the scales of the next step are computed from the amaxes of earlier steps. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { integer, needed, notNaN, oneOf, optionsOf } from "../../options.js";
import { requireF32 } from "../../tensor/require.js";
import type { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireShape } from "../execute.js";

/** The maximum of |margin|. Beyond it, maximum * 2^-margin is outside the range of f32 for every format. */
const MAX_MARGIN = 256;

/**
 * The ways to choose the amax from a history: its maximum, or the newest entry. TransformerEngine calls this
 * `amax_compute_algo`.
 */
export const AMAX_ALGORITHMS = ["max", "mostRecent"] as const;

/**
 * The inputs of `updateScales`. A slot is one of n independently scaled tensors: a column of the history and an element of
 * `scale`.
 */
export interface UpdateScalesInputs {
  /**
   * The amax history, [length, n]. Row 0 holds the amaxes of the current step, the last row the amaxes of the previous step.
   * Updated in place.
   */
  readonly amaxHistory: Tensor<"f32">;
  /** The scale of each slot, [n]. Updated in place. */
  readonly scale: Tensor<"f32">;
  /** The maximum of the element format of all slots: 448 for e4m3, 57344 for e5m2. Rounded to f32. */
  readonly formatMax: number;
  /** The number of powers of two by which scales are lowered, an integer. Default 0. */
  readonly margin?: number | undefined;
  /** Whether the scale is computed from the maximum of the history or from the newest amax. Default max. */
  readonly algorithm?: (typeof AMAX_ALGORITHMS)[number] | undefined;
}

const checkInputs = optionsOf<UpdateScalesInputs>(
  {
    amaxHistory: needed(requireF32),
    scale: needed(requireF32),
    formatMax: needed(notNaN),
    margin: integer(-MAX_MARGIN, MAX_MARGIN),
    algorithm: oneOf(AMAX_ALGORITHMS),
  },
  "inputs",
);

/**
 * Updates the histories and scales of all n slots in place, as TransformerEngine's delayed scaling does (numerics.md §2.2).
 *
 * A slot whose row 0 is 0 keeps its history and its scale. In every other slot, the history is rotated by one row and row 0
 * becomes 0. The scale becomes fl(formatMax * 2^-margin) / amax, at most FLT_MAX, where `algorithm` chooses the amax; `max`
 * ignores NaN. If the chosen amax is infinite, NaN or not positive, the scale is kept. In every slot, a scale that is infinite,
 * of either sign, and is not computed again becomes FLT_MAX.
 *
 * @throws `DTypeError` for a tensor that is not f32, `ShapeError` for a history that is not [length, n] with length at least 1
 * or a scale that is not [n], `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError` for
 * a disposed tensor.
 */
export function updateScales(inputs: UpdateScalesInputs): void {
  const ownInputs = checkInputs("updateScales", inputs);
  const { amaxHistory, scale, formatMax, margin = 0, algorithm = "max" } = ownInputs;
  const [length = 0, slots = 0] = amaxHistory.shape;
  if (amaxHistory.shape.length !== 2 || length === 0)
    throw new ShapeError(`updateScales: amaxHistory is [${amaxHistory.shape}]; it must be [length, n]`);
  requireShape("updateScales", "scale", scale, [slots]);
  const scaledMax = scaledDown(formatMax, margin);
  const backend = commonBackend("updateScales", amaxHistory, scale);
  execute(backend, "updateScales", {
    amaxHistory,
    scale,
    scaledMax,
    mostRecent: algorithm === "mostRecent",
  });
}

/** Returns formatMax * 2^-margin rounded to f32. Throws `ArgumentError` unless that is positive and finite. */
function scaledDown(formatMax: number, margin: number): number {
  let scaled = Math.fround(formatMax);
  for (let i = 0; i < Math.abs(margin); i++) scaled *= margin > 0 ? 0.5 : 2;
  scaled = Math.fround(scaled);
  if (scaled > 0 && scaled < Number.POSITIVE_INFINITY) return scaled;
  throw new ArgumentError(
    `updateScales: formatMax is ${formatMax} and margin ${margin}; formatMax * 2^-margin must be above 0 and finite in f32`,
  );
}
