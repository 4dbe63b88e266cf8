/**
 * The configuration of a converted checkpoint lists the modules that are not quantized, names the type, and keeps all other
 * fields.
 */
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { JsonObject } from "../../../../../src/io/json/json-object.js";
import { useWorkspace } from "../../../harness/cli.js";
import { draws, sampleCases } from "../../../harness/draws.js";
import { useBackend } from "../../../harness/suite.js";
import {
  convertTo,
  copyFixture,
  FIXTURES,
  readContents,
  reportOf,
  VECTORS,
} from "../../files/checkpoints.js";

const w = useWorkspace();
const backend = useBackend({ threads: 1 });

/** The keys under which configurations list modules that are not quantized. */
const LISTS = ["ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers"];
/** The position of the list in a configuration. */
const CONFIGS = { "config.json": "quantization_config", "hf_quant_config.json": "quantization" } as const;
const FILES = Object.keys(CONFIGS) as (keyof typeof CONFIGS)[];

const readJson = (path: string): JsonObject => JSON.parse(readFileSync(path, "utf8")) as JsonObject;

/** Adds modules to the list of a configuration; undefined if it has none. */
function withListedModules(
  file: keyof typeof CONFIGS,
  config: JsonObject | undefined,
  modules: readonly string[],
): JsonObject | undefined {
  const quantization = config?.[CONFIGS[file]] as JsonObject | undefined;
  const key = LISTS.find((name) => Array.isArray(quantization?.[name]));
  if (!quantization || key === undefined) return undefined;
  const listedModules = [...(quantization[key] as readonly unknown[]), ...modules];
  return { ...config, [CONFIGS[file]]: { ...quantization, [key]: listedModules } };
}

const LISTING = FIXTURES.filter((name) => {
  try {
    return withListedModules("config.json", readJson(join(VECTORS, name, "config.json")), []) !== undefined;
  } catch {
    return false;
  }
});

describe("after the conversion of some weights to a wide type", () => {
  it.each(sampleCases(LISTING))("%s lists them after the modules that it listed before", async (name) => {
    const weights = (await reportOf(join(VECTORS, name))).weights.map((weight) => weight.name);
    const otherModules = fc.uniqueArray(fc.stringMatching(/^other\.[a-z]{1,5}$/), { maxLength: 2 });
    const someWeights = fc.subarray(weights, { minLength: 1 });
    await fc.assert(
      fc.asyncProperty(
        someWeights,
        otherModules,
        fc.constantFrom("bf16", "f32"),
        async (selectedWeights, listedModules, target) => {
          const folder = mkdtempSync(w.path("case-"));
          const [input, output] = [join(folder, "in"), join(folder, "out")];
          copyFixture(name, input);
          const { json } = await readContents(input);
          const original = new Map(
            FILES.flatMap((file) => {
              const config = withListedModules(file, json.get(file) as JsonObject | undefined, listedModules);
              return config ? [[file, config] as const] : [];
            }),
          );
          for (const [file, config] of original) writeFileSync(join(input, file), JSON.stringify(config));
          const { plan } = await convertTo(backend(), input, output, target, selectedWeights);
          const converted = (await readContents(output)).json;
          const modules = [...plan.converted.keys()].map((tensorName) => tensorName.replace(/\.weight$/, ""));
          expect(modules).toHaveLength(selectedWeights.length);
          for (const [file, config] of original) {
            const isAll = selectedWeights.length === weights.length;
            const type = { bf16: "bfloat16", f32: "float32" }[target];
            const key = "torch_dtype" in config ? "torch_dtype" : "dtype";
            const { quantization_config: _, ...otherFields } = config;
            const plainConfig = file === "config.json" ? { ...otherFields, [key]: type } : undefined;
            expect(converted.get(file)).toEqual(
              isAll ? plainConfig : withListedModules(file, config, modules),
            );
          }
        },
      ),
      { numRuns: draws(16, 2) },
    );
  });
});

/** Fixtures, and targets that name the type of the model for each weight. */
const TYPED = [
  ["ct-fp8-channel", "torchao-fp8-row"],
  ["ct-mxfp8", "torchao-mxfp8-rceil"],
  ["ct-mxfp4", "torchao-mxfp4-floor"],
  ["ct-nvfp4", "torchao-nvfp4-two-level"],
] as const;

describe("the type of the model", () => {
  const names = { bfloat16: undefined, float16: undefined, float32: undefined };
  const keys = [
    {},
    ...["torch_dtype", "dtype"].flatMap((key) => Object.keys(names).map((type) => ({ [key]: type }))),
  ];

  it.each(TYPED)("of %s is the type of weights in the metadata of %s", async (fixture, target) => {
    for (const [i, declaredTypes] of sampleCases(
      keys,
      3,
      TYPED.findIndex(([name]) => name === fixture),
    ).entries()) {
      const [input, output] = [w.path(`in${i}`), w.path(`out${i}`)];
      copyFixture(fixture, input);
      const config = readJson(join(input, "config.json"));
      writeFileSync(join(input, "config.json"), JSON.stringify({ ...config, ...declaredTypes }));
      await convertTo(backend(), input, output, target);
      const { metadata } = await readContents(output);
      const types = Object.values(metadata).flatMap((text) =>
        [...text.matchAll(/"_type":"torch\.dtype","_data":"(\w+)"/g)].map(([, type = ""]) => type),
      );
      const [type = "bfloat16"] = Object.values(declaredTypes);
      expect(
        [...new Set(types.filter((typeName) => typeName in names))],
        JSON.stringify(declaredTypes),
      ).toEqual([type]);
    }
  });

  it("is the type of a wide target, under the key that the configuration has", async () => {
    for (const [i, declaredTypes] of keys.entries()) {
      const [input, output] = [w.path(`in${i}`), w.path(`out${i}`)];
      copyFixture("ct-mxfp4", input);
      const { quantization_config: quantization, ...config } = readJson(join(input, "config.json"));
      const original = { ...config, ...declaredTypes };
      writeFileSync(
        join(input, "config.json"),
        JSON.stringify({ ...original, quantization_config: quantization }),
      );
      await convertTo(backend(), input, output, i % 2 === 0 ? "bf16" : "f32");
      const [key = "dtype"] = Object.keys(declaredTypes);
      const expected = { ...original, [key]: i % 2 === 0 ? "bfloat16" : "float32" };
      expect(readJson(join(output, "config.json"))).toEqual(expected);
    }
  });
});
