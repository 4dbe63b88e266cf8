/**
 * Loading a model with its weights in a form is bitwise equal to converting the checkpoint to this form and loading it: for every
 * form, from wide, quantized and GGUF files. Loading refuses the same conversions in the same words.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import {
  CONVERSION_TARGETS,
  type ConversionTarget,
  convertCheckpoint,
} from "../../../src/checkpoints/index.js";
import { FileError } from "../../../src/errors.js";
import { type LoadCausalLMOptions, loadCausalLM } from "../../../src/models/index.js";
import { asBytes } from "../../../src/tensor/data.js";
import { draws, sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { TINY, tinyChoices, tinyModel, writeGguf, writeHub } from "../models/tiny-model.js";

const backend = useBackend({ threads: 1 });

let folder: string;
let count = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-forms-"));
});
afterAll(() => rm(folder, { recursive: true }));
const newPath = (): string => join(folder, `${count++}`);

type Outcome = { readonly parameters: ReadonlyMap<string, string> } | { readonly error: string };

/** The bits of all parameters, or the error without the path that it begins with. */
async function outcomeOf(path: string, options: LoadCausalLMOptions): Promise<Outcome> {
  try {
    using model = await loadCausalLM(backend(), path, options);
    const bits = [...model.namedParameters()].map(([name, { tensor }]) => {
      return [name, Buffer.from(asBytes(tensor.dataSync())).toString("base64")] as const;
    });
    return { parameters: new Map(bits) };
  } catch (error) {
    return errorOf(error);
  }
}

function errorOf(error: unknown): { readonly error: string } {
  if (!(error instanceof FileError)) throw error;
  return { error: error.message };
}

/** The same for the files that conversion writes. */
async function outcomeOfFiles(
  path: string,
  { weights, ...options }: LoadCausalLMOptions & { readonly weights: ConversionTarget },
): Promise<Outcome> {
  const openBackend = async () => backend();
  const [convertedPath, widePath] = [newPath(), newPath()];
  try {
    await convertCheckpoint(path, convertedPath, { to: weights, openBackend });
    // a GGUF file from a hub folder has the hub's names, and no GGUF file is loaded by these names
    const isGguf = weights.startsWith("gguf-") && !path.endsWith(".gguf");
    if (isGguf) await convertCheckpoint(convertedPath, widePath, { to: "f32", openBackend });
    return await outcomeOf(isGguf ? widePath : convertedPath, { dtype: "bf16", ...options });
  } catch (error) {
    return errorOf(error);
  }
}

async function requireEqual(
  path: string,
  options: LoadCausalLMOptions & { readonly weights: ConversionTarget },
): Promise<Outcome> {
  const actual = await outcomeOf(path, options);
  expect(actual, options.weights).toEqual(await outcomeOfFiles(path, options));
  return actual;
}

const parametersOf = (outcome: Outcome): ReadonlyMap<string, string> | undefined =>
  "parameters" in outcome ? outcome.parameters : undefined;

/** The forms that represent the values of the tiny model, which have few digits. */
const HAVE_ALL_VALUES: ReadonlySet<string> = new Set(["bf16", "f32", "lockstep-mxint8"]);

it("in every form, of a file of bf16", async () => {
  const path = newPath();
  await writeHub(path, tinyModel(TINY));
  const storedParameters = parametersOf(await outcomeOf(path, { dtype: "f32" }));
  const names = [...(storedParameters?.keys() ?? [])];
  const refusals: string[] = [];
  const testedTargets = sampleCases(CONVERSION_TARGETS, 8);
  for (const weights of testedTargets) {
    const parameters = parametersOf(await requireEqual(path, { weights, dtype: "f32" }));
    if (!parameters) refusals.push(weights);
    else {
      const changedNames = names.filter((name) => parameters.get(name) !== storedParameters?.get(name));
      expect(changedNames.length > 0, weights).toBe(!HAVE_ALL_VALUES.has(weights));
      for (const name of changedNames)
        expect(name).toMatch(/layers\.\d+\.(self_attn|mlp)\.\w+_proj\.weight$/);
    }
  }
  // two are forms of matrices of whole 128x128 blocks, one of stacks of experts
  const isRefused = new Set<string>(["modelopt-fp8-block", "transformers-fp8-block", "gpt-oss"]);
  expect(refusals).toEqual(testedTargets.filter((weights) => isRefused.has(weights)));
});

it("of drawn models, from files in every form", async () => {
  const forms = fc.record({
    weights: fc.constantFrom(...CONVERSION_TARGETS),
    source: fc.constantFrom("F32", "F16", "BF16", "ct-mxfp4", "modelopt-fp8", "lockstep-mxfp8", "ct-nvfp4"),
    dtype: fc.constantFrom("bf16", "f16", "f32"),
    shards: fc.constantFrom(1, 2),
  });
  await fc.assert(
    fc.asyncProperty(tinyChoices, forms, async (choices, { weights, source, dtype, shards }) => {
      const path = newPath();
      const type = source === "F32" || source === "F16" ? source : "BF16";
      await writeHub(path, tinyModel(choices), { type, shards });
      const isWide = source === type;
      const quantizedPath = isWide ? path : newPath();
      if (!isWide) await convertCheckpoint(path, quantizedPath, { to: source as ConversionTarget });
      await requireEqual(quantizedPath, { weights, dtype });
    }),
    { numRuns: draws(200, 5) },
  );
}, 400_000);

it("of GGUF files, in every form", async () => {
  const forms = fc.constantFrom(...CONVERSION_TARGETS);
  await fc.assert(
    fc.asyncProperty(
      tinyChoices,
      forms,
      fc.constantFrom("F32", "F16", "BF16"),
      async (modelChoices, weights, type) => {
        const path = `${newPath()}.gguf`;
        await writeGguf(path, tinyModel({ ...modelChoices, window: undefined }), type);
        await requireEqual(path, { weights });
      },
    ),
    { numRuns: draws(120, 5) },
  );
}, 400_000);
