/** The names of parameters and submodules within a module. */
import { describe, expect, it } from "vitest";
import {
  ArgumentError,
  constantInit,
  DelayedScaling,
  Embedding,
  Linear,
  Module,
  manualSeed,
  Parameter,
  type QuantizedTensor,
  quantizedModelInit,
  Scope,
  ShapeError,
  Tensor,
  zeros,
} from "../../../../src/index.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();

/** A module with given parameters and submodules. */
class Named extends Module {
  withParameter(name: string): this {
    this.parameter(name, [2], constantInit(1));
    return this;
  }

  withLayer(name: string, layer: Module = new Linear(this.backend, 4, 4)): this {
    try {
      this.addModule(name, layer);
    } catch (error) {
      layer.dispose();
      throw error;
    }
    return this;
  }
}

describe("a registered parameter or module", () => {
  it("is checked in plain JavaScript too: its class, and its name, which must be a string", () => {
    using module = new Named(backend());
    const register = (method: "addParameter" | "addModule", name: unknown, value: unknown): unknown =>
      Reflect.apply(Reflect.get(module, method), module, [name, value]);
    for (const method of ["addParameter", "addModule"] as const)
      for (const value of [undefined, null, 1, "x", {}, () => 1, [], backend()])
        expect(() => register(method, "own", value), `${method} ${typeof value}`).toThrow(ArgumentError);
    using layer = new Linear(backend(), 4, 4);
    expect(() => register("addModule", "own", layer.weight)).toThrow(ArgumentError);
    expect(() => register("addParameter", "own", layer)).toThrow(ArgumentError);
    for (const name of [undefined, null, 1, {}, ["a"], Symbol("a")]) {
      expect(() => register("addParameter", name, layer.weight), typeof name).toThrow(ArgumentError);
      expect(() => register("addModule", name, layer), typeof name).toThrow(ArgumentError);
    }
    expect(module.namedParameters().size).toBe(0);
  });

  it("outlives the scope in which it was created, as do a quantized weight and its scale", () => {
    const { layer, plain: plainLayer } = (() => {
      using _scope = new Scope();
      const layer = new Linear(backend(), 32, 32);
      const recipe = new DelayedScaling();
      return { plain: layer, layer: quantizedModelInit({ recipe }, () => new Linear(backend(), 32, 32)) };
    })();
    for (const { value } of [...plainLayer.parameters(), ...layer.parameters()])
      for (const tensor of value instanceof Tensor ? [value] : value.members)
        expect(tensor.disposed).toBe(false);
    const weight = layer.weight.value as QuantizedTensor;
    const wide = zeros(backend(), "bf16", [32, 32]);
    weight.quantize_(wide);
    expect(weight.usage).toEqual({ rowwise: true, columnwise: true });
    for (const disposable of [wide, plainLayer, layer]) disposable.dispose();
  });

  it("keeps its values before quantization until they are cleared", () => {
    const values = new Float32Array(4).fill(2);
    const parameter = new Parameter(zeros(backend(), "bf16", [4]), values);
    expect(parameter.highPrecisionInitVal).toEqual(values);
    parameter.clearHighPrecisionInitVal();
    expect(parameter.highPrecisionInitVal).toBe(undefined);
    parameter.dispose();
  });

  it("has the next draws of its backend's random state as initial values, which manualSeed restarts", () => {
    const weights = (): readonly Uint16Array[] => {
      manualSeed(backend(), 5n);
      return [0, 1].map(() => {
        using layer = new Linear(backend(), 4, 4);
        return layer.weight.tensor.dataSync().slice() as Uint16Array;
      });
    };
    const [firstWeight, secondWeight] = weights();
    expect(secondWeight).not.toEqual(firstWeight);
    expect(weights()).toEqual([firstWeight, secondWeight]);
  });

  it("of an impossible size is refused before its values are drawn", () => {
    let drawCount = 0;
    const initMethod = (): Float32Array => {
      drawCount++;
      return new Float32Array(1);
    };
    expect(() => new Embedding(backend(), 2 ** 40, 2 ** 12, { initMethod })).toThrow(ShapeError);
    expect(drawCount).toBe(0);
  });
});

describe("a name in a module", () => {
  it("is unique: a second parameter or module of that name is refused, and no memory is leaked", () => {
    using module = new Named(backend()).withParameter("gain").withLayer("linear");
    for (const name of ["gain", "linear"]) {
      expect(() => module.withParameter(name)).toThrow(ArgumentError);
      expect(() => module.withLayer(name)).toThrow(`"${name}" is in use`);
    }
    expect([...module.namedParameters().keys()]).toEqual(["gain", "linear.weight", "linear.bias"]);
  });

  it("has no dots, which separate names, and is not empty", () => {
    using module = new Named(backend());
    for (const name of ["a.b", ".", ""]) {
      expect(() => module.withParameter(name)).toThrow("dots separate names");
      expect(() => module.withLayer(name)).toThrow("dots separate names");
    }
  });

  it("is the first one if a parameter or module is registered under several", () => {
    const layer = new Linear(backend(), 4, 4);
    using inner = new Named(backend()).withLayer("own", layer);
    using module = new Named(backend()).withLayer("first", layer).withLayer("inner", inner);
    expect([...module.namedParameters().keys()]).toEqual(["first.weight", "first.bias"]);
    expect([...module.namedQuantizations().keys()]).toEqual(["first.linear"]);
    expect(module.parameters()).toEqual(layer.parameters());
  });
});
