/** Missing layers and experts of a checkpoint are found, and no others, at any position and under any configuration. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { draws } from "../../../harness/draws.js";
import { type Held, reportOfContents } from "../../files/checkpoints.js";

const MAX_LAYERS = 6;
const weight: Held = { dtype: "BF16", shape: [2, 2], bytes: new Uint8Array(8) };
/** The numbers of the layers or experts in a file, and the count that the configuration declares, if any. */
const drawn = fc.record({
  numbers: fc.uniqueArray(fc.nat(MAX_LAYERS - 1), { minLength: 1, maxLength: MAX_LAYERS }),
  declared: fc.option(fc.integer({ min: 1, max: MAX_LAYERS }), { nil: undefined }),
});

/** The names of the findings `kind` about a file of bf16 weights. */
async function found(kind: string, names: readonly string[], config: object): Promise<readonly string[]> {
  const tensors = new Map(names.map((name) => [name, weight]));
  const json = new Map([["config.json", { ...config }]]);
  const { findings } = await reportOfContents({ tensors, metadata: {}, json });
  return findings.flatMap(({ name, subject }) => (name === kind ? [subject] : [])).toSorted();
}

it("a layer is absent if it lies between others, or if the configuration counts it", async () => {
  await fc.assert(
    fc.asyncProperty(drawn, async ({ numbers, declared }) => {
      const names = numbers.map((number) => `model.layers.${number}.mlp.up_proj.weight`);
      const begin = declared === undefined ? Math.min(...numbers) : 0;
      const end = Math.max(declared ?? 0, Math.max(...numbers) + 1);
      const absent = Array.from({ length: end }, (_, i) => i).filter(
        (i) => i >= begin && !numbers.includes(i),
      );
      expect(await found("layer-absent", names, { num_hidden_layers: declared })).toEqual(
        absent.map((i) => `model.layers.${i}`),
      );
    }),
    { numRuns: draws(100, 40) },
  );
});

it("an expert is absent if its number is below the count or below another one's", async () => {
  await fc.assert(
    fc.asyncProperty(drawn, async ({ numbers, declared }) => {
      const names = numbers.map((number) => `model.layers.0.mlp.experts.${number}.up_proj.weight`);
      const end = Math.max(declared ?? 0, Math.max(...numbers) + 1);
      const absent = Array.from({ length: end }, (_, i) => i).filter((i) => !numbers.includes(i));
      expect(await found("expert-absent", names, { num_experts: declared })).toEqual(
        absent.map((i) => `model.layers.0.mlp.experts.${i}`),
      );
    }),
    { numRuns: draws(100, 40) },
  );
});
