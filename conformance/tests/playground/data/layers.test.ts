/** The decoder layers of weights, and the sums over them. */
import * as fc from "fast-check";
import type { MeasuredWeight } from "lockstep/checkpoints/portable";
import { expect, it } from "vitest";
import { layerErrors, layerOf, meanBits, scalesText } from "../../../../playground/src/data/layers.js";

it.each([
  ["model.layers.12.mlp.up_proj.weight", 12],
  ["language_model.model.layers.0.self_attn.q_proj.weight", 0],
  ["blk.7.ffn_down.weight", 7],
  ["transformer.h.3.attn.c_attn.weight", 3],
  ["model.embed_tokens.weight", undefined],
  ["players.3.weight", undefined],
])("the layer of %s is %s", (name, layer) => {
  expect(layerOf(name)).toBe(layer);
});

const weight = fc.record({
  layer: fc.integer({ min: 0, max: 3 }),
  rows: fc.integer({ min: 1, max: 9 }),
  noise: fc.integer({ min: 0, max: 9 }),
  signal: fc.integer({ min: 1, max: 99 }),
  isConverted: fc.boolean(),
});

const measured = (
  weights: readonly (typeof weight extends fc.Arbitrary<infer T> ? T : never)[],
): MeasuredWeight[] =>
  weights.map(({ layer, rows, noise, signal, isConverted }, i) => ({
    name: `model.layers.${layer}.w${i}.weight`,
    shape: [rows, 2],
    stored: { format: "BF16", bits: 16 },
    ...(isConverted
      ? { converted: { format: "e4m3", bits: 8, method: "quantized", noise, signal, error: 0 } as const }
      : {}),
  }));

it("sums noise and signal of each layer, and bits of all elements", () => {
  fc.assert(
    fc.property(fc.array(weight), (drawn) => {
      const weights = measured(drawn);
      for (const [layer, error] of layerErrors(weights)) {
        const own = drawn.filter((each) => each.isConverted && each.layer === layer);
        const sum = (key: "noise" | "signal") => own.reduce((total, each) => total + each[key], 0);
        expect(error ** 2 * sum("signal")).toBeCloseTo(sum("noise"), 9);
      }
      expect(layerErrors(weights).map(([layer]) => layer)).toEqual(
        [...new Set(drawn.filter((each) => each.isConverted).map(({ layer }) => layer))].toSorted(),
      );
      const { stored, form } = meanBits(weights);
      const rows = drawn.reduce((total, each) => total + each.rows, 0);
      const kept = drawn.reduce((total, each) => total + (each.isConverted ? 0 : each.rows), 0);
      expect(stored).toBe(rows === 0 ? 0 : 16);
      expect(form).toBeCloseTo(rows === 0 ? 0 : 8 + (8 * kept) / rows, 9);
    }),
  );
});

it("describes scales by their octaves", () => {
  expect(scalesText({ first: -3, counts: [1, 5, 2], others: 0 })).toBe("2^-3 to 2^0, most from 2^-2");
  expect(scalesText({ first: 0, counts: [], others: 4 })).toBe(
    "no positive scale, 4 of 4 zero, negative or not finite",
  );
});
