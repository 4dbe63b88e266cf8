/** Custom functions that compute the default of delayed scaling give the same scales and histories as the default. */
import fc from "fast-check";
import { expect, it } from "vitest";
import {
  autocast,
  DelayedScaling,
  type DelayedScalingOptions,
  Linear,
  Scope,
  tensor,
} from "../../../../src/index.js";
import { draws } from "../../harness/draws.js";
import { linearQuantization } from "../../harness/state/world.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();
const SIZE = 16;
const FLT_MAX = 2 ** 128 - 2 ** 104;

const AMAX = {
  max: (history: Float32Array) => history.reduce((x, y) => Math.max(x, y)),
  mostRecent: (history: Float32Array) => history[0] as number,
};

/**
 * The default formula (numerics.md §2.2): the largest value times 2^-margin, divided by the amax, each rounded. An amax
 * that is 0, infinite or NaN leaves the scale.
 */
function scaleBy(amax: number, scale: number, formatMax: number, { margin }: DelayedScaling): number {
  const follows = amax > 0 && amax < Number.POSITIVE_INFINITY;
  const expectedScale = follows ? Math.fround(Math.fround(formatMax * 2 ** -margin) / amax) : scale;
  return Math.min(expectedScale, FLT_MAX);
}

/** The input's scale and history after each step. */
function states(options: DelayedScalingOptions, amaxes: readonly number[]): number[][] {
  const initMethod = () => new Float32Array(SIZE * SIZE).fill(2);
  using layer = new Linear(backend(), SIZE, SIZE, { dtype: "f32", bias: false, initMethod });
  const recipe = new DelayedScaling(options);
  return amaxes.map((amax) => {
    using _scope = new Scope();
    const values = new Float32Array(SIZE * SIZE);
    values[3] = -amax;
    autocast({ recipe }, () => layer.forward(tensor(backend(), values, [SIZE, SIZE])));
    const { scale, amaxHistory } = linearQuantization(layer).snapshotSync()?.forward ?? {};
    if (!scale || !amaxHistory) throw new Error("there is no state under delayed scaling");
    return [...scale, Number.NaN, ...amaxHistory];
  });
}

/** Never 0: with custom functions, an amax of 0 rolls the history; with the default it does not. */
const amax = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: -40, max: 40 }).map((exponent) => 1.25 * 2 ** exponent) },
  { weight: 1, arbitrary: fc.constantFrom(2 ** -149, FLT_MAX, Number.POSITIVE_INFINITY, 448, 3) },
);

it.each(["max", "mostRecent"] as const)(
  "%s, with the caller's functions for any part of it, has the same bits",
  (name) => {
    fc.assert(
      fc.property(
        fc.array(amax, { minLength: 1, maxLength: 7 }),
        fc.integer({ min: 1, max: 4 }),
        fc.constantFrom(0, 1, 5, -3, 100, -100),
        (amaxes, amaxHistoryLen, margin) => {
          const options = { amaxHistoryLen, margin };
          const ownState = states({ ...options, amaxComputeAlgo: name }, amaxes);
          for (const amaxComputeAlgo of [name, AMAX[name]])
            for (const scalingFactorComputeAlgo of [undefined, scaleBy])
              expect(states({ ...options, amaxComputeAlgo, scalingFactorComputeAlgo }, amaxes)).toEqual(
                ownState,
              );
        },
      ),
      { numRuns: draws(40) },
    );
  },
);
