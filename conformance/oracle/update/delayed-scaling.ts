/** The scale update of delayed scaling, for one slot. */
import { div, FLT_MAX, f32, ofNumber, powerOfTwo, times } from "../core/rational.js";

export interface ScaleUpdate {
  readonly formatMax: number;
  readonly margin: number;
  readonly algorithm: "max" | "mostRecent";
}

export interface Slot {
  /** The amax history, row 0 first. */
  readonly history: readonly number[];
  readonly scale: number;
}

export function updateScale({ history, scale }: Slot, options: ScaleUpdate): Slot {
  const [recorded = 0, ...olderAmaxes] = history;
  const finiteScale = Math.abs(scale) === Number.POSITIVE_INFINITY ? FLT_MAX : scale;
  if (recorded === 0) return { history, scale: finiteScale };
  const window = [...olderAmaxes, recorded];
  const largest = Math.max(0, ...window.filter((amax) => !Number.isNaN(amax)));
  return {
    history: window.with(0, 0),
    scale: scaleFor(options.algorithm === "max" ? largest : recorded, options) ?? finiteScale,
  };
}

/** The new scale; undefined if the amax leaves the scale unchanged. */
function scaleFor(amax: number, { formatMax, margin }: ScaleUpdate): number | undefined {
  if (!Number.isFinite(amax) || amax <= 0) return undefined;
  const target = f32(times(ofNumber(formatMax), powerOfTwo(-margin)));
  return Math.min(div(target, amax), FLT_MAX);
}
