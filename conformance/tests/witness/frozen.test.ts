/** The reference recomputes the results of an H200: the same bits, with products under the plan that the GPU chose. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Scope } from "../../../src/tensor/scope.js";
import { OPERATION_NAMES } from "../../operations/operations.js";
import { hashesOf } from "../harness/frozen/case.js";
import { FROZEN, FROZEN_PATH, type FrozenFile } from "../harness/frozen/frozen.js";
import { FROZEN_PRODUCTS, frozenProduct } from "../harness/frozen/products.js";
import { useBackend } from "../harness/suite.js";

const { origin, results, products } = JSON.parse(readFileSync(FROZEN_PATH, "utf8")) as FrozenFile;

const recorded = new Map(results.map(({ name, sha256 }) => [name, sha256]));

describe(`the reference, against ${origin.version}`, () => {
  const backend = useBackend({});

  it("has a test for every recorded result", () => {
    expect(FROZEN.map(({ name }) => name).filter((name) => recorded.has(name))).toEqual([...recorded.keys()]);
    expect(products.map(({ name }) => name)).toEqual(FROZEN_PRODUCTS.map(({ name }) => name));
  });

  it("has recorded results of every operation, and products in a separate list", () => {
    const frozen = new Set(FROZEN.map(({ operation }) => operation));
    expect([...OPERATION_NAMES].filter((name) => !frozen.has(name))).toEqual(["gemm"]);
  });

  it.for(FROZEN)("$name", ({ name, run }, { skip }) => {
    skip(!recorded.has(name), "was added after the recording; the next one on a GPU will have it");
    using _scope = new Scope();
    expect(hashesOf(run(backend()))).toEqual(recorded.get(name));
  });

  it.each(FROZEN_PRODUCTS)("product $name", (product) => {
    using _scope = new Scope();
    const kept = products.find(({ name }) => name === product.name);
    expect(frozenProduct(backend(), product, kept?.plan).hashes).toEqual(kept?.sha256);
  });
});
