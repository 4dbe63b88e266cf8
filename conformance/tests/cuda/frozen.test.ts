/** A GPU gives the frozen results. With RECORD_VECTORS=FILE it records all of them and gives the same results again. */
import { readFileSync, writeFileSync } from "node:fs";
import { expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { cudaDevices } from "../../../src/backends/open.js";
import { Scope } from "../../../src/tensor/scope.js";
import { hashAnswer } from "../harness/frozen/case.js";
import { FROZEN, type FrozenFile, RECORDINGS } from "../harness/frozen/frozen.js";
import { FROZEN_PRODUCTS, frozenProduct } from "../harness/frozen/products.js";
import { describeOnGpu, useGpu } from "../harness/gpu/gpu.js";

function results(gpu: Backend): FrozenFile["results"] {
  return FROZEN.map(({ name, run }) => {
    using _scope = new Scope();
    return { name, sha256: hashAnswer(run(gpu)) };
  });
}

/** The hashes of all products, computed under the recorded plans, or under plans that the GPU chooses. */
function products(gpu: Backend, recorded?: FrozenFile): FrozenFile["products"] {
  return FROZEN_PRODUCTS.map((product) => {
    using _scope = new Scope();
    const recordedPlan = recorded?.products.find(({ name }) => name === product.name)?.plan;
    const { hashes, plan } = frozenProduct(gpu, product, recordedPlan);
    return { name: product.name, plan, sha256: hashes };
  });
}

/** Records all results in a file, and returns what it then contains. */
function record(gpu: Backend, path: string): FrozenFile {
  const origin = { project: `Lockstep on an ${cudaDevices()[0]?.name}`, version: gpu.description };
  const file: FrozenFile = { origin, results: results(gpu), products: products(gpu) };
  writeFileSync(path, `${JSON.stringify(file, null, 1)}\n`);
  return JSON.parse(readFileSync(path, "utf8"));
}

describeOnGpu("the frozen results", () => {
  const { gpu } = useGpu();

  it("are what this GPU computes", () => {
    const { RECORD_VECTORS } = process.env;
    const recordings = RECORD_VECTORS ? [record(gpu(), RECORD_VECTORS)] : RECORDINGS;
    const all = results(gpu());
    for (const recorded of recordings) {
      const names = new Set(recorded.results.map(({ name }) => name));
      expect(all.filter(({ name }) => names.has(name))).toEqual(recorded.results);
      const productNames = new Set(recorded.products.map(({ name }) => name));
      const recomputed = products(gpu(), recorded).filter(({ name }) => productNames.has(name));
      expect(recomputed.map(({ name, sha256 }) => ({ name, sha256 }))).toEqual(
        recorded.products.map(({ name, sha256 }) => ({ name, sha256 })),
      );
    }
  });
});
