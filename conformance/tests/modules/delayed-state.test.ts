/** Delayed scaling in layers: the scales that each amax changes. */
import * as fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import {
  autocast,
  DelayedScaling,
  type DelayedScalingOptions,
  dequantize,
  Float8CurrentScaling,
  Linear,
  type LinearCall,
  MXFP8BlockScaling,
  Scope,
  ShapeError,
  tensor,
  Variable,
} from "../../../src/index.js";
import { DelayedState } from "../../../src/modules/delayed-state.js";
import { updateScales } from "../../../src/ops/update/delayed-scaling.js";
import { draws } from "../harness/draws.js";
import { linearQuantization } from "../harness/state/world.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();
const SIZE = 16;
const FLT_MAX = 2 ** 128 - 2 ** 104;
const { POSITIVE_INFINITY: inf, NaN: nan } = Number;

/** A matrix whose largest magnitude is `amax`. `otherValue` is the value of another element. */
function matrixValues(amax: number, otherValue = 0): Float32Array {
  const values = new Float32Array(SIZE * SIZE);
  values.set([otherValue, -amax]);
  return values;
}

function matrix(amax: number, otherValue?: number): Variable {
  return new Variable(tensor(backend(), matrixValues(amax, otherValue), [SIZE, SIZE]));
}

/** A layer with f32 parameters that runs steps and returns its scaling state. */
class Probe {
  readonly layer = new Linear(backend(), SIZE, SIZE, {
    dtype: "f32",
    bias: false,
    initMethod: () => matrixValues(2),
  });
  readonly recipe: DelayedScaling;

  constructor(options: DelayedScalingOptions = {}) {
    this.recipe = new DelayedScaling({ amaxHistoryLen: 3, ...options });
  }

  forward(x: Variable, call: LinearCall = {}): Variable {
    return autocast({ recipe: this.recipe }, () => this.layer.forward(x, call));
  }

  /** The state of the input or of another slot, as `[scale, ...history]`, newest amax last. */
  state(slot = 0, pass: "forward" | "backward" = "forward"): number[] {
    const state = linearQuantization(this.layer).snapshotSync()?.[pass];
    if (!state) return [];
    const slots = state.scale.length;
    const history = state.amaxHistory.filter((_, i) => i % slots === slot);
    return [state.scale[slot] as number, ...history];
  }

  [Symbol.dispose](): void {
    this.layer.dispose();
  }
}

describe("the scale of an input", () => {
  testInScope("is 1 at first, and then follows the largest amax of the history", () => {
    using probe = new Probe();
    const scales = [4, 8, 1, 1, 1].map((amax) => {
      probe.forward(matrix(amax));
      return probe.state();
    });
    expect(scales).toEqual([
      [112, 0, 0, 4],
      [56, 0, 4, 8],
      [56, 0, 8, 1],
      [56, 0, 1, 1],
      [448, 0, 1, 1],
    ]);
  });

  testInScope("is unchanged, and its history too, if the input is zero", () => {
    using probe = new Probe();
    probe.forward(matrix(4));
    probe.forward(matrix(0));
    expect(probe.state()).toEqual([112, 0, 0, 4]);
  });

  testInScope("is unchanged while an infinite amax is in the history, and ignores NaN", () => {
    using probe = new Probe();
    const scales = [4, inf, 2, 2, 2].map((amax) => {
      probe.forward(matrix(amax));
      return probe.state()[0];
    });
    expect(scales).toEqual([112, 112, 112, 112, 224]);
    probe.forward(matrix(8, nan));
    expect(probe.state()).toEqual([56, 0, 2, 8]);
  });

  testInScope("is at most the largest f32, however small the input", () => {
    using probe = new Probe();
    probe.forward(matrix(2 ** -140));
    expect(probe.state()).toEqual([FLT_MAX, 0, 0, 2 ** -140]);
  });

  testInScope("applies the margin, and follows only the last amax if so configured", () => {
    using probe = new Probe({ margin: 2, amaxComputeAlgo: "mostRecent" });
    for (const amax of [8, 2]) probe.forward(matrix(amax));
    expect(probe.state()).toEqual([56, 0, 8, 2]);
  });

  testInScope("follows the largest amax of all passes within a region", () => {
    using probe = new Probe();
    autocast({ recipe: probe.recipe }, () => {
      for (const amax of [2, 7, 4]) probe.layer.forward(matrix(amax));
    });
    expect(probe.state()).toEqual([64, 0, 0, 7]);
  });
});

it("the caller's functions compute the amax from the history, and the scale from the amax", () => {
  using _scope = new Scope();
  const histories: number[][] = [];
  const args: unknown[][] = [];
  using probe = new Probe({
    amaxComputeAlgo: (history) => {
      histories.push([...history]);
      return history[0] as number;
    },
    scalingFactorComputeAlgo: (amax, scale, formatMax, recipe) => {
      args.push([amax, scale, formatMax, recipe]);
      return amax === 0 ? scale : 2 * amax;
    },
  });
  for (const amax of [4, 8]) probe.forward(matrix(amax));
  expect([histories[0], histories[3]]).toEqual([
    [4, 0, 0],
    [8, 0, 4],
  ]);
  expect([args[0], args[3]]).toEqual([
    [4, 1, 448, probe.recipe],
    [8, 8, 448, probe.recipe],
  ]);
  expect(probe.state()).toEqual([16, 0, 4, 8]);
});

it.each([
  ["max", inf],
  ["max", -inf],
  [(history: Float32Array) => history[0] as number, inf],
  [(history: Float32Array) => history[0] as number, -inf],
] as const)("an infinite scale set by the caller becomes FLT_MAX: %s, %s", (amaxComputeAlgo, scale) => {
  using _scope = new Scope();
  using probe = new Probe({ amaxComputeAlgo });
  probe.forward(matrix(4));
  const quantization = linearQuantization(probe.layer);
  const snapshot = quantization.snapshotSync();
  snapshot?.forward.scale.fill(scale);
  quantization.restore(snapshot);
  probe.forward(matrix(nan));
  expect(probe.state()[0]).toBe(FLT_MAX);
});

describe("the columns of the amax history", () => {
  testInScope("for weights, outputs, gradients and their results have the amaxes of these tensors", () => {
    using firstProbe = new Probe();
    using secondProbe = new Probe();
    const x = matrix(4);
    const y = secondProbe.forward(firstProbe.forward(x), { fp8Grad: true });
    expect([firstProbe.state(1), secondProbe.state()]).toEqual([
      [224, 0, 0, 2],
      [56, 0, 0, 8],
    ]);
    expect([0, 1].map((slot) => secondProbe.state(slot, "backward"))).toEqual([
      [1, 0, 0, 0],
      [1, 0, 0, 0],
    ]);
    y.backward(tensor(backend(), matrixValues(16, 4), [SIZE, SIZE]));
    expect([0, 1].map((slot) => secondProbe.state(slot, "backward"))).toEqual([
      [3584, 0, 0, 16],
      [7168, 0, 0, 8],
    ]);
    expect(firstProbe.state(0, "backward")).toEqual([1, 0, 0, 0]);
    using thirdProbe = new Probe();
    thirdProbe.forward(x, { fp8Output: true });
    expect(thirdProbe.state(2)).toEqual([56, 0, 0, 8]);
  });

  testInScope(
    "for gradients are updated at the end of the backward pass, inside or outside of a region",
    () => {
      using probe = new Probe({ format: "E4M3" });
      const grad = tensor(backend(), matrixValues(2), [SIZE, SIZE]);
      autocast({ recipe: probe.recipe }, () => {
        probe.layer.forward(matrix(1)).backward(grad);
        expect(probe.state(0, "backward")).toEqual([224, 0, 0, 2]);
        expect(probe.state()[0]).toBe(1);
      });
      expect(probe.state()[0]).toBe(448);
    },
  );
});

describe("a matrix that the blocks of another recipe do not divide", () => {
  const recipe = new MXFP8BlockScaling();

  it.each([
    ["enabled", { recipe }],
    ["calibrating", { recipe, enabled: false, calibrating: true }],
  ])("is refused before the scales and the recipe change: %s", (_, options) => {
    using warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    using _scope = new Scope();
    using probe = new Probe();
    probe.forward(matrix(4));
    const [scales, bits] = [probe.state(), probe.forward(matrix(4)).tensor.dataSync()];
    const stateAfter = probe.state();
    expect(scales).not.toEqual([]);
    expect(() => autocast(options, () => probe.layer.forward(matrix(4)))).toThrow(ShapeError);
    expect(probe.state()).toEqual(stateAfter);
    expect(probe.forward(matrix(4)).tensor.dataSync()).toEqual(bits);
    expect(warn).not.toHaveBeenCalled();
  });
});

describe("calibrating", () => {
  testInScope(
    "computes in high precision, and its amaxes are those of the first step in low precision",
    () => {
      using probe = new Probe();
      const { layer, recipe } = probe;
      const x = matrix(300, 3);
      const plainResult = layer.forward(x).tensor.dataSync();
      const calibratedResult = autocast({ recipe, enabled: false, calibrating: true }, () =>
        layer.forward(x),
      );
      expect(calibratedResult.tensor.dataSync()).toEqual(plainResult);
      const scale = Math.fround(448 / 300);
      expect(probe.state()).toEqual([scale, 0, 0, 300]);
      expect(probe.state(1)).toEqual([224, 0, 0, 2]);
      const y = probe.forward(x, { fp8Output: true });
      const [firstValue] = dequantize(y.value as never, "f32").dataSync();
      expect(firstValue).not.toBe(plainResult[0]);
      expect(probe.state()).toEqual([scale, 0, 300, 300]);
    },
  );

  testInScope("together with quantization computes in low precision", () => {
    using probe = new Probe();
    const { layer, recipe } = probe;
    const x = matrix(3000, 3);
    const low = autocast({ recipe, calibrating: true }, () => layer.forward(x)).tensor.dataSync();
    expect(low).not.toEqual(layer.forward(x).tensor.dataSync());
    expect(Math.max(...low.map(Math.abs))).toBe(448 * 2);
  });

  testInScope("under a recipe without a history leaves no state", () => {
    using probe = new Probe();
    const recipe = new Float8CurrentScaling();
    autocast({ recipe, enabled: false, calibrating: true }, () => probe.layer.forward(matrix(3)));
    expect(probe.state()).toEqual([]);
  });
});

describe("the scale of an amax that the caller computes", () => {
  /**
   * Amaxes around those where the quotient overflows or is subnormal, with a margin of either sign, and arbitrary ones.
   */
  const amaxes = fc.oneof(
    fc
      .record({
        exponent: fc.oneof(fc.integer({ min: -149, max: 127 }), fc.integer({ min: -125, max: -115 })),
        ulps: fc.integer({ min: -4, max: 4 }),
        mantissa: fc.constantFrom(1, 1.75, 1.5, 1.3333333),
      })
      .map(({ exponent, ulps, mantissa }) => Math.fround(mantissa * 2 ** exponent * (1 + ulps * 2 ** -23))),
    fc.float(),
    fc.constantFrom(0, -0, inf, -inf, nan, -1),
  );
  const margins = fc.oneof(fc.integer({ min: -100, max: 100 }), fc.constantFrom(0, 1, 40, 100, -100));
  const scales = fc.oneof(fc.float(), fc.constantFrom(1, inf, -inf));

  /** The scale that a layer computes from an amax, and the scale that the operation computes. */
  function librarySteps(
    amax: number,
    scale: number,
    margin: number,
    pass: "forward" | "backward",
  ): number[][] {
    using _scope = new Scope();
    const recipe = new DelayedScaling({ margin, amaxHistoryLen: 1, amaxComputeAlgo: () => amax });
    const slots = pass === "forward" ? 3 : 2;
    const from = { scale: new Float32Array(slots).fill(scale), amaxHistory: new Float32Array(slots) };
    const state = new DelayedState(backend(), recipe, { pass, slots }, from);
    state.update();
    const ownScale = [...state.scale.dataSync()];
    state.dispose();
    const amaxHistory = tensor(backend(), new Float32Array(slots).fill(amax), [1, slots]);
    const updatedScales = tensor(backend(), from.scale, [slots]);
    const formatMax = pass === "forward" ? 448 : 57344;
    updateScales({ amaxHistory, scale: updatedScales, formatMax, margin, algorithm: "mostRecent" });
    return [ownScale, [...updatedScales.dataSync()]];
  }

  it("has the bits of the operation, for the largest and smallest f32 too", () => {
    fc.assert(
      fc.property(
        amaxes,
        scales,
        margins,
        fc.constantFrom("forward" as const, "backward" as const),
        (amax, scale, margin, pass) => {
          const [ownSteps, expected] = librarySteps(amax, scale, margin, pass);
          expect(ownSteps).toEqual(expected);
        },
      ),
      {
        numRuns: draws(2000),
        seed: 1,
        examples: [
          // 448 / amax overflows, but not with the margin
          [2 ** -121, 1, 20, "forward"],
          // the scale is subnormal
          [1.75 * 2 ** 40, 1, 95, "forward"],
          [Math.fround(1.3333333 * 2 ** 52), 1, 92, "forward"],
          // the scale overflows and becomes FLT_MAX
          [2 ** -121, 1, 0, "forward"],
        ],
      },
    );
  });
});
