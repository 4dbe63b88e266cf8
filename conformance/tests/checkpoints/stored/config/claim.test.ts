/**
 * The claims of a configuration can be removed wherever libraries write them. A converted checkpoint has none of its source's
 * claims.
 */
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { claimIn, withoutClaim } from "../../../../../src/checkpoints/stored/config/claim.js";
import { type ConventionName, conventionOf } from "../../../../../src/checkpoints/stored/conventions.js";
import type { JsonObject } from "../../../../../src/io/header/header.js";
import { useBackend } from "../../../harness/suite.js";
import {
  convertTo,
  errorsIn,
  inFolder,
  reportOf,
  type StoredTensor,
  writeContents,
} from "../../files/checkpoints.js";
import { addWeight, configFor, contentsOf, drawsFrom } from "../../files/drawn-files.js";

const PATHS = ["config.json", "hf_quant_config.json"] as const;
const backend = useBackend();

const quantization = fc.constantFrom<JsonObject>(
  { quant_method: "fp8" },
  { quant_algo: "NVFP4", group_size: 16 },
  { quant_method: "compressed-tensors", config_groups: {} },
  { bits: 4, group_size: 32, mode: "mxfp4" },
);
const config = fc.record(
  {
    hidden_size: fc.constant(32),
    quantization,
    quantization_config: quantization,
    compression_config: quantization,
    text_config: fc.record(
      { layers: fc.constant(2), quantization_config: quantization },
      { requiredKeys: ["layers"] },
    ),
  },
  { requiredKeys: ["hidden_size"] },
);

describe("a configuration without its claims", () => {
  it("claims nothing, and keeps all other fields", () => {
    fc.assert(
      fc.property(config, (model) => {
        const otherConfig = withoutClaim(model);
        expect(claimIn(PATHS, otherConfig, undefined)).toBeUndefined();
        expect(otherConfig.hidden_size).toBe(32);
        expect(otherConfig.text_config).toEqual(model.text_config && { layers: 2 });
      }),
    );
  });

  it("keeps a field of the name quantization that is not of MLX", () => {
    expect(withoutClaim({ quantization: "none" })).toEqual({ quantization: "none" });
  });
});

it.each(["mlx-nvfp4", "mlx-mxfp4", "mlx-mxfp8", "ct-nvfp4", "modelopt-nvfp4"] as const)(
  "what %s claims is not in a conversion to another library's form",
  async (name: ConventionName) => {
    const tensors = new Map<string, StoredTensor>();
    const form = { name, kind: conventionOf(name).kinds[0] ?? "group" };
    addWeight(tensors, "model.layers.0.mlp.down_proj", form, [32, 64], drawsFrom(1));
    await inFolder(async (folder) => {
      await writeContents(folder, contentsOf(tensors, configFor(form)));
      for (const [target, method] of [
        ["modelopt-mxfp8", "modelopt"],
        ["ct-mxfp4", "compressed-tensors"],
      ] as const) {
        const out = join(folder, target);
        await convertTo(backend(), folder, out, target);
        const { claim, findings } = await reportOf(out);
        expect(claim?.method).toBe(method);
        expect(errorsIn(findings)).toEqual([]);
      }
    });
  },
);
