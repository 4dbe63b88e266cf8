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
    const recordedProducts = products.map(({ name }) => name);
    expect(FROZEN_PRODUCTS.map(({ name }) => name).filter((name) => recordedProducts.includes(name))).toEqual(
      recordedProducts,
    );
  });

  it("has recorded results of every operation, and every product on one GPU at least", () => {
    const recordedProducts = new Set(RECORDINGS.flatMap(({ products }) => products.map(({ name }) => name)));
    expect(FROZEN_PRODUCTS.filter(({ name }) => !recordedProducts.has(name))).toEqual([]);
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
    FROZEN_PRODUCTS.flatMap((product) => {
      const recordedProduct = products.find(({ name }) => name === product.name);
      return recordedProduct ? [{ product, gpu: origin.project, recordedProduct }] : [];
    }),
  );
  it.each(sampleCases(cases, Math.ceil(cases.length / 24)))(
    "product $product.name, $gpu",
    ({ product, recordedProduct: { plan, sha256 } }) => {
      using _scope = new Scope();
      expect(frozenProduct(backend(), product, plan).hashes).toEqual(sha256);
    },
  );
});
