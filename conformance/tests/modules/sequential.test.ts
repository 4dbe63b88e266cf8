/** Sequential: the composition of its layers; if one throws, the results of the others are freed. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { LayerNormMLP } from "../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../src/modules/linear.js";
import { type Layer, Sequential } from "../../../src/modules/sequential.js";
import { zeros } from "../../../src/ops/create.js";
import { MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { draws } from "../harness/draws.js";
import { testInScope, useBackend } from "../harness/suite.js";
import { waves } from "./attention/drawn.js";

const SIZE = 32;
const backend = useBackend({ threads: 1, datapath: "hopper" });

const LAYERS: Readonly<Record<string, () => Layer>> = {
  linear: () => new Linear(backend(), SIZE, SIZE),
  mlp: () => new LayerNormMLP(backend(), SIZE, SIZE),
  nested: () => new Sequential(backend(), new Linear(backend(), SIZE, SIZE), (x) => x),
  "a function": () => (x) => x,
};

describe("a sequence of layers outside of a scope", () => {
  it("frees all results if one of its layers throws, wherever that is", () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(...Object.keys(LAYERS)), { maxLength: 4 }),
        fc.array(fc.constantFrom(...Object.keys(LAYERS)), { maxLength: 2 }),
        fc.boolean(),
        fc.boolean(),
        (namesBefore, namesAfter, records, quantizes) => {
          const layersOf = (names: readonly string[]): Layer[] =>
            names.map((name) => LAYERS[name]?.() as Layer);
          const failure = new Error("the layer throws");
          const throwingLayer: Layer = () => {
            throw failure;
          };
          using layers = new Sequential(
            backend(),
            ...layersOf(namesBefore),
            throwingLayer,
            ...layersOf(namesAfter),
          );
          using x = zeros(backend(), "bf16", [SIZE, SIZE]);
          const { live, blocks } = backend().memoryUse();
          const run = () => layers.forward(new Variable(x, records));
          const region = () => (quantizes ? autocast({ recipe: new MXFP8BlockScaling() }, run) : run());
          expect(() => (records ? region() : noGrad(region))).toThrow(failure);
          expect(backend().memoryUse()).toMatchObject({ live, blocks });
        },
      ),
      { numRuns: draws(60, 12) },
    );
  });

  it("leaves the results of its layers usable if none throws", () => {
    const inputs: Variable[] = [];
    const collect = (x: Variable): Variable => {
      inputs.push(x);
      return x;
    };
    using layers = new Sequential(
      backend(),
      new Linear(backend(), SIZE, SIZE),
      collect,
      new Linear(backend(), SIZE, SIZE),
    );
    using x = zeros(backend(), "bf16", [2, SIZE]);
    const out = noGrad(() => layers.forward(x));
    for (const variable of [...inputs, out]) {
      expect(variable.tensor.dataSync()).toHaveLength(2 * SIZE);
      variable.tensor.dispose();
    }
  });
});

describe("a sequence of layers", () => {
  testInScope("is the composition of its layers, whose names are their places", () => {
    const [firstModule, last] = [new Linear(backend(), SIZE, SIZE), new LayerNormMLP(backend(), SIZE, SIZE)];
    using layers = new Sequential(backend(), firstModule, (x) => x, last);
    const names = [...layers.namedParameters().keys()].map((name) => name.split(".")[0]);
    expect(names).toEqual([...firstModule.parameters().map(() => "0"), ...last.parameters().map(() => "2")]);
    const x = waves(backend(), 1, [2, SIZE]);
    expect([...layers.forward(x).tensor.dataSync()]).toEqual([
      ...last.forward(firstModule.forward(x)).tensor.dataSync(),
    ]);
  });
});
