/** A checkpoint is loaded only into weights that are quantized with the same spec. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { FileError } from "../../../src/errors.js";
import { loadCheckpoint, saveCheckpoint } from "../../../src/io/checkpoint.js";
import { Linear } from "../../../src/modules/linear.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { CustomRecipe } from "../../../src/recipes/custom.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { useBackend } from "../harness/suite.js";
import { useFolder } from "../io/folder.js";
import { casesOf, FIELD_NAMES, quantizerOf } from "./spec-pairs.js";

const backend = useBackend();
let path = "";
useFolder((folder) => {
  path = join(folder, "checkpoint");
});

/** A layer with a weight that is quantized with this spec. */
function layerOf(spec: QuantizeSpec): Linear {
  const recipe = new CustomRecipe({ quantizerFactory: () => quantizerOf(backend(), spec) });
  return quantizedModelInit({ recipe }, () => new Linear(backend(), 64, 64, { dtype: "bf16", bias: false }));
}

describe("a checkpoint of a weight by one spec", () => {
  it.each(FIELD_NAMES)("is loaded by the same spec and refused by another %s", async (field) => {
    for (const [[spec, otherSpec]] of casesOf(field, [undefined])) {
      using _scope = new Scope();
      using savedLayer = layerOf(spec);
      await saveCheckpoint(path, { module: savedLayer });
      using equalLayer = layerOf(spec);
      await loadCheckpoint(path, { module: equalLayer });
      using otherLayer = layerOf(otherSpec);
      await expect(loadCheckpoint(path, { module: otherLayer })).rejects.toThrow(FileError);
    }
  });
});
