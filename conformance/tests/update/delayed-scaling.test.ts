import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { type UpdateScalesInputs, updateScales } from "../../../src/ops/update/delayed-scaling.js";
import { Float8Quantizer } from "../../../src/quantizers/float8.js";
import { Scope } from "../../../src/tensor/scope.js";
import { download } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const FLT_MAX = 2 ** 128 - 2 ** 104;
const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

type Options = Partial<Pick<UpdateScalesInputs, "formatMax" | "margin" | "algorithm">>;

/** One slot after an update: its history, row 0 first, and its scale. */
function updated(history: readonly number[], scale: number, options: Options = {}) {
  using _scope = new Scope();
  const amaxHistory = tensor(backend(), history, [history.length, 1]);
  const scales = tensor(backend(), [scale]);
  updateScales({ amaxHistory, scale: scales, formatMax: 448, ...options });
  return { history: [...amaxHistory.dataSync()], scale: scales.dataSync()[0] };
}

describe("one column of the history and its scale", () => {
  it("by default the scale follows the largest amax of the history, which rolls", () => {
    expect(updated([2, 7, 3, 1], 1)).toEqual({ history: [0, 3, 1, 2], scale: 64 });
    expect(updated([2, 0, 0, 0], 1)).toEqual({ history: [0, 0, 0, 2], scale: 224 });
  });

  it("by mostRecent the scale follows the most recent amax", () => {
    const mostRecent = { algorithm: "mostRecent" } as const;
    expect(updated([2, 9, 7, 3], 1, mostRecent)).toEqual({ history: [0, 7, 3, 2], scale: 224 });
  });

  it("uses the oldest amax for the last time in the update that removes it", () => {
    expect(updated([1, 8, 2], 5).scale).toBe(56);
    expect(updated([1, 2, 1], 5).scale).toBe(224);
  });

  it("are unchanged if no amax was recorded, whatever the history contains", () => {
    for (const zero of [0, -0]) {
      expect(updated([zero, 9, 7, 3], 5)).toEqual({ history: [zero, 9, 7, 3], scale: 5 });
      expect(updated([zero], 5, { algorithm: "mostRecent" })).toEqual({ history: [zero], scale: 5 });
    }
  });

  it("clears a history of one row in each update", () => {
    expect(updated([2], 5)).toEqual({ history: [0], scale: 224 });
    expect(updated([2], 5, { algorithm: "mostRecent" })).toEqual({ history: [0], scale: 224 });
  });

  it("keeps its scale while an infinite amax is in the history", () => {
    expect(updated([inf, 9, 7], 5)).toEqual({ history: [0, 7, inf], scale: 5 });
    expect(updated([1, 7, inf], 5)).toEqual({ history: [0, inf, 1], scale: 5 });
    expect(updated([1, inf, 1], 5)).toEqual({ history: [0, 1, 1], scale: 5 });
    expect(updated([1, 1, 1], 5)).toEqual({ history: [0, 1, 1], scale: 448 });
    expect(updated([inf, 1], 5, { algorithm: "mostRecent" }).scale).toBe(5);
  });

  it("ignores NaN in the maximum, keeps its scale if the amax is NaN, and rolls the NaN on", () => {
    expect(updated([nan, 9, 7], 5)).toEqual({ history: [0, 7, nan], scale: Math.fround(448 / 9) });
    expect(updated([nan, 0], 5)).toEqual({ history: [0, nan], scale: 5 });
    expect(updated([nan, 9, 7], 5, { algorithm: "mostRecent" })).toEqual({ history: [0, 7, nan], scale: 5 });
  });

  it("ignores a negative amax", () => {
    expect(updated([-3, 0], 5)).toEqual({ history: [0, -3], scale: 5 });
    expect(updated([-3, 7], 5, { algorithm: "mostRecent" }).scale).toBe(5);
    expect(updated([-3, 7], 5).scale).toBe(64);
  });

  it("has a scale of at most FLT_MAX", () => {
    for (const amax of [2 ** -149, 2 ** -126, 2 ** -120]) expect(updated([amax], 1).scale).toBe(FLT_MAX);
    expect(updated([2 ** -119], 1).scale).toBe(448 * 2 ** 119);
  });

  it("replaces an infinite scale by a finite one, whatever amax is recorded (TransformerEngine's delayed_scaling.cu)", () => {
    for (const algorithm of ["max", "mostRecent"] as const) {
      for (const infinite of [inf, -inf]) {
        for (const recorded of [0, -0, inf, nan, -3]) {
          const { history, scale } = updated([recorded, 0, 0], infinite, { algorithm });
          expect(scale).toBe(FLT_MAX);
          expect(history).toEqual(recorded === 0 ? [recorded, 0, 0] : [0, 0, recorded]);
        }
        expect(updated([2, 0], infinite, { algorithm }).scale).toBe(224);
      }
      expect(updated([0, 0], nan, { algorithm }).scale).toBeNaN();
    }
  });

  it("rounds the quotient once", () => {
    expect(updated([3], 1).scale).toBe(Math.fround(448 / 3));
    expect(updated([FLT_MAX], 1).scale).toBe(Math.fround(448 / FLT_MAX));
  });

  it("divides the scale by 2^margin", () => {
    expect(updated([2], 1, { margin: 3 }).scale).toBe(28);
    expect(updated([2], 1, { margin: -1 }).scale).toBe(448);
    expect(updated([1], 1, { formatMax: 57344, margin: 150 }).scale).toBe(7 * 2 ** -137);
    expect(updated([1], 1, { formatMax: 448, margin: 156 }).scale).toBe(2 ** -147);
  });
});

testInScope("columns of the history do not affect each other", () => {
  const amaxHistory = tensor(backend(), [1, 0, 4, inf, 2, 8, 2, 2, 3, 3, 3, 3], [3, 4]);
  const scale = tensor(backend(), [5, 6, 7, 8]);
  updateScales({ amaxHistory, scale, formatMax: 448 });
  expect([...amaxHistory.dataSync()]).toEqual([0, 0, 0, 0, 3, 8, 3, 3, 1, 3, 4, inf]);
  expect([...scale.dataSync()]).toEqual([Math.fround(448 / 3), 6, 112, 8]);
});

testInScope("a quantizer records its amax in row 0, and uses the updated scale", () => {
  const amaxHistory = tensor(backend(), [0, 0, 0], [3, 1]);
  const scale = tensor(backend(), [1]);
  const quantizer = new Float8Quantizer({ scale, amax: amaxHistory.view(0, [1]) });
  quantizer.quantize(tensor(backend(), [3.5, -1]));
  updateScales({ amaxHistory, scale, formatMax: 448 });
  expect([...amaxHistory.dataSync(), ...scale.dataSync()]).toEqual([0, 0, 3.5, 128]);
});

testInScope("operands that do not fit are refused", () => {
  const [amaxHistory, scale] = [tensor(backend(), [1, 2], [2, 1]), tensor(backend(), [1])];
  const update = (changes: Partial<UpdateScalesInputs>) => () =>
    updateScales({ amaxHistory, scale, formatMax: 448, ...changes });
  for (const margin of [0.5, Number.NaN, 1 / 0, 257, -121]) expect(update({ margin })).toThrow(ArgumentError);
  for (const formatMax of [0, -1, Number.NaN, 1e39, 1e-60])
    expect(update({ formatMax })).toThrow(ArgumentError);
  expect(update({ algorithm: "least" as "max" })).toThrow("max, mostRecent");
  expect(update({ scale: tensor(backend(), [1, 1]) })).toThrow(ShapeError);
  for (const shape of [[1], [1, 1, 1], [1, 1, 1, 1]])
    expect(update({ amaxHistory: tensor(backend(), [1], shape) })).toThrow(ShapeError);
  expect(update({ amaxHistory: tensor(backend(), [], [0, 1]) })).toThrow(ShapeError);
  // @ts-expect-error scales of bf16
  expect(update({ scale: empty(backend(), "bf16", [1]) })).toThrow(DTypeError);
  const none = { amaxHistory: tensor(backend(), [], [2, 0]), scale: tensor(backend(), []) };
  expect(update(none)).not.toThrow();
});

testEqualBits("threads do not change a bit", useThreads(), (each) => {
  const values = Float32Array.from({ length: 512 * 700 }, (_, i) => (i * i) % 1013);
  const amaxHistory = tensor(each, values, [512, 700]);
  const scale = tensor(each, new Float32Array(700).fill(3));
  updateScales({ amaxHistory, scale, formatMax: 57344, margin: 1 });
  return { amaxHistory: download(amaxHistory), scale: download(scale) };
});

describeLaws(useBackend({ threads: 2 }), ["updateScales"], { runs: 200, seed: derivedSeed(35) });
