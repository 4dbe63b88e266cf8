/** The reference recomputes the results of an H100 and an H200: the same bits, with products under the plans that they chose. */
import { describe, expect, it } from "vitest";
import { Scope } from "../../../src/tensor/scope.js";
import { OPERATION_NAMES } from "../../operations/operations.js";
import { sampleCases } from "../harness/draws.js";
import { hashAnswer } from "../harness/frozen/case.js";
import { FROZEN, RECORDINGS } from "../harness/frozen/frozen.js";
import { FROZEN_PRODUCTS, frozenProduct } from "../harness/frozen/products.js";
import { useBackend } from "../harness/suite.js";

describe("the reference, against GPUs", () => {
  const backend = useBackend({});

  it.each(RECORDINGS)("has a test for every result of $origin.version", ({ results, products }) => {
    const recordedNames = results.map(({ name }) => name);
    expect(FROZEN.map(({ name }) => name).filter((name) => recordedNames.includes(name))).toEqual(
      recordedNames,
    );
    expect(products.map(({ name }) => name)).toEqual(FROZEN_PRODUCTS.map(({ name }) => name));
  });

  it("has recorded results of every operation, and products in a separate list", () => {
    const frozenNames = new Set(FROZEN.map(({ operation }) => operation));
    expect([...OPERATION_NAMES].filter((name) => !frozenNames.has(name))).toEqual(["gemm"]);
  });

  it.for(sampleCases(FROZEN, Math.ceil(FROZEN.length / 12)))("$name", ({ name, run }, { skip }) => {
    const recordedResults = RECORDINGS.flatMap(({ results }) =>
      results.filter((result) => result.name === name),
    );
    using _scope = new Scope();
    // computed even when nothing is recorded: a case that the operation refuses could not be recorded either
    const hashes = hashAnswer(run(backend()));
    skip(recordedResults.length === 0, "was added after the recordings; the next one on a GPU will have it");
    for (const { sha256 } of recordedResults) expect(hashes).toEqual(sha256);
  });

  const cases = RECORDINGS.flatMap(({ origin, products }) =>
    FROZEN_PRODUCTS.map((product) => ({ product, gpu: origin.project, kept: products })),
  );
  it.each(sampleCases(cases, Math.ceil(cases.length / 24)))(
    "product $product.name, $gpu",
    ({ product, kept: keptColumns }) => {
      using _scope = new Scope();
      const recordedProduct = keptColumns.find(({ name }) => name === product.name);
      expect(frozenProduct(backend(), product, recordedProduct?.plan).hashes).toEqual(
        recordedProduct?.sha256,
      );
    },
  );
});
