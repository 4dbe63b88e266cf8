/** What an H200 gave, computed again by the reference: the same bits, products under the plan that the GPU chose. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Scope } from "../../../src/tensor/scope.js";
import { OPERATION_NAMES } from "../../operations/operations.js";
import { hashesOf } from "../harness/frozen/case.js";
import { FROZEN, FROZEN_PATH, type FrozenFile } from "../harness/frozen/frozen.js";
import { FROZEN_PRODUCTS, frozenProduct } from "../harness/frozen/products.js";
import { useBackend } from "../harness/suite.js";

const { origin, results, products } = JSON.parse(readFileSync(FROZEN_PATH, "utf8")) as FrozenFile;

describe(`the reference, against ${origin.version}`, () => {
  const backend = useBackend({});

  it("knows every recorded result", () => {
    expect(results.map(({ name }) => name)).toEqual(FROZEN.map(({ name }) => name));
    expect(products.map(({ name }) => name)).toEqual(FROZEN_PRODUCTS.map(({ name }) => name));
  });

  it("has every operation, a product's cases being a list of their own", () => {
    const frozen = new Set(FROZEN.map(({ operation }) => operation));
    expect([...OPERATION_NAMES].filter((name) => !frozen.has(name))).toEqual(["gemm"]);
  });

  it.each(FROZEN)("$name", ({ name, run }) => {
    using _scope = new Scope();
    expect(hashesOf(run(backend()))).toEqual(results.find((each) => each.name === name)?.sha256);
  });

  it.each(FROZEN_PRODUCTS)("product $name", (product) => {
    using _scope = new Scope();
    const recorded = products.find(({ name }) => name === product.name);
    expect(frozenProduct(backend(), product, recorded?.plan).hashes).toEqual(recorded?.sha256);
  });
});
