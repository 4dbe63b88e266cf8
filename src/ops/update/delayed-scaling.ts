/** Delayed scaling: computes the scales of the next step from earlier amaxes. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { integer, needed, notNaN, oneOf, optionsOf } from "../../options.js";
import { requireF32 } from "../../tensor/require.js";
import type { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireShape } from "../execute.js";

/** Beyond this margin, maximum * 2^-margin is outside f32 for every format. */
const MAX_MARGIN = 256;

/** How the amax is chosen from a history: its maximum, or the newest. TransformerEngine's `amax_compute_algo`. */
export const AMAX_ALGORITHMS = ["max", "mostRecent"] as const;

/** The inputs of `updateScales`, some of which it updates in place. */
export interface UpdateScalesInputs {
  /** [length, n]: row 0 holds the amaxes of the current step, the last row those of the previous one. Updated in place. */
  readonly amaxHistory: Tensor<"f32">;
  /** [n], updated in place. */
  readonly scale: Tensor<"f32">;
  /** The maximum of the slots' format: 448 for e4m3, 57344 for e5m2. Rounded to f32. */
  readonly formatMax: number;
  /** Binades of headroom above the amax, a whole number. Default 0. */
  readonly margin?: number | undefined;
  /** Whether the scale follows the maximum of the history or the newest amax. Default max. */
  readonly algorithm?: (typeof AMAX_ALGORITHMS)[number] | undefined;
}

const checkInputs = optionsOf<UpdateScalesInputs>({
  amaxHistory: needed(requireF32),
  scale: needed(requireF32),
  formatMax: needed(notNaN),
  margin: integer(-MAX_MARGIN, MAX_MARGIN),
  algorithm: oneOf(AMAX_ALGORITHMS),
});

/**
 * TransformerEngine's update of delayed scaling (numerics.md §2.2) for all n slots at once, in place. If row 0 holds an amax,
 * the slot's history rolls and its scale becomes fl(formatMax * 2^-margin) / amax, at most FLT_MAX. A slot with amax 0 is
 * unchanged. An amax that is infinite, NaN or negative rolls the history but keeps the scale; `max` ignores NaN. In every slot,
 * a scale that was infinite, of either sign, becomes FLT_MAX unless it is recomputed.
 *
 * @throws `DTypeError` for a tensor that is not f32, `ShapeError` for a history without rows, `ArgumentError` for options
 * outside their domain, `DisposedError` for a tensor that was disposed of.
 */
export function updateScales(inputs: UpdateScalesInputs): void {
  checkInputs("updateScales", inputs);
  const { amaxHistory, scale, formatMax, margin = 0, algorithm = "max" } = inputs;
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

/** fl(formatMax * 2^-margin). */
function scaledDown(formatMax: number, margin: number): number {
  let scaled = Math.fround(formatMax);
  for (let i = 0; i < Math.abs(margin); i++) scaled *= margin > 0 ? 0.5 : 2;
  scaled = Math.fround(scaled);
  if (scaled > 0 && scaled < Number.POSITIVE_INFINITY) return scaled;
  throw new ArgumentError(
    `updateScales: formatMax is ${formatMax} and margin ${margin}; formatMax * 2^-margin must be above 0 and finite in f32`,
  );
}
