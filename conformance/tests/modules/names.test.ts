/** The names of parameters and submodules within a module. */
import { describe, expect, it } from "vitest";
import { ArgumentError, constantInit, Linear, Module } from "../../../src/index.js";
import { useBackend } from "../harness/suite.js";

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

describe("a name in a module", () => {
  it("is that of one thing, and a second one under it is refused with nothing left behind", () => {
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

  it("is the first of several that a thing has", () => {
    const layer = new Linear(backend(), 4, 4);
    using inner = new Named(backend()).withLayer("own", layer);
    using module = new Named(backend()).withLayer("first", layer).withLayer("inner", inner);
    expect([...module.namedParameters().keys()]).toEqual(["first.weight", "first.bias"]);
    expect([...module.namedQuantizations().keys()]).toEqual(["first.linear"]);
    expect(module.parameters()).toEqual(layer.parameters());
  });
});
