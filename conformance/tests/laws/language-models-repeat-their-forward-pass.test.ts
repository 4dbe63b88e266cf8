/**
 * Generation is bitwise equal to the full forward pass: prompts in any chunks and decoding with a cache, paged or not, in batches
 * of ragged sequences, give each position the logits of one pass over its sequence, in every family.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type CausalLM, loadCausalLM } from "../../../src/models/index.js";
import { tensor } from "../../../src/ops/create.js";
import { Float8BlockScaling, MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { tinyChoices, tinyModel, VOCABULARY, writeHub } from "../models/tiny-model.js";
import { WITNESS_NAMES, witnessPath } from "../models/witnesses.js";
import { LONGEST, type Rollout, rollouts } from "../modules/attention/rollout.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

let folder: string;
let count = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-models-"));
});
afterAll(() => rm(folder, { recursive: true }));

const tokenOf = (sequence: number, position: number): number =>
  (sequence * 17 + position * 7 + 3) % VOCABULARY;
const i32 = (values: readonly number[], rows: number): Tensor<"i32"> =>
  tensor(backend(), Int32Array.from(values), [rows, values.length / rows], "i32");
/** The bits of the logits of one position. */
const rowOf = ({ config }: CausalLM, logits: Float32Array, row: number): string =>
  Buffer.from(logits.slice(row * config.vocabSize, (row + 1) * config.vocabSize).buffer).toString("hex");

/** The logits of each position of each sequence, in one pass over it. */
function fullRows(model: CausalLM, { lengths }: Rollout): string[][] {
  return lengths.map((length, sequence) => {
    using _scope = new Scope();
    const ids = i32(
      Array.from({ length }, (_, position) => tokenOf(sequence, position)),
      1,
    );
    const logits = model.forward(ids).tensor.dataSync() as Float32Array;
    return Array.from({ length }, (_, position) => rowOf(model, logits, position));
  });
}

/**
 * The rows of a forward pass with a cache, in steps. With `onlyLast`, only the logits of each step's last position are computed.
 */
function steppedRows(
  model: CausalLM,
  { lengths, steps }: Rollout,
  { pageSize, onlyLast }: { readonly pageSize: number | undefined; readonly onlyLast: boolean },
): (string | undefined)[][] {
  using cache = model.createCache({
    ...{ maxBatchSize: 3, maxSequenceLength: LONGEST },
    ...(pageSize === undefined ? {} : { isPaged: true, pageSize }),
  });
  const rows: (string | undefined)[][] = lengths.map(() => []);
  for (const step of steps) {
    using _scope = new Scope();
    cache.preStep(step);
    const longest = Math.max(...step.values());
    const paddedTokens = [...step].flatMap(([sequence, count]) => {
      const firstPosition = rows[sequence]?.length ?? 0;
      return Array.from({ length: longest }, (_, i) =>
        i < count ? tokenOf(sequence, firstPosition + i) : 1,
      );
    });
    const call = { inferenceParams: cache, ...(onlyLast ? { logitsToKeep: 1 } : {}) };
    const logits = model.forward(i32(paddedTokens, step.size), call).tensor.dataSync() as Float32Array;
    for (const [b, [sequence, count]] of [...step].entries())
      for (let i = 0; i < count; i++) {
        const keptIndex = onlyLast ? (i === count - 1 ? b : undefined) : b * longest + i;
        rows[sequence]?.push(keptIndex === undefined ? undefined : rowOf(model, logits, keptIndex));
      }
  }
  return rows;
}

const RECIPES = {
  none: undefined,
  mxfp8: new MXFP8BlockScaling(),
  block: new Float8BlockScaling(),
} as const;

/** The recorded models whose sizes fit the blocks of every recipe. */
const QUANTIZABLE: readonly string[] = ["gpt-oss", "deepseek-v3"];

const forms = fc.record({
  pageSize: fc.constantFrom(undefined, 4, 8),
  onlyLast: fc.boolean(),
  recipe: fc.constantFrom("none", "none", "mxfp8", "block"),
  dtype: fc.constantFrom("bf16", "f16", "f32"),
});

async function requireSameRows(
  path: string,
  run: Rollout,
  { recipe, dtype, ...modelForm }: typeof forms extends fc.Arbitrary<infer T> ? T : never,
): Promise<void> {
  using model = await loadCausalLM(backend(), path, { dtype, recipe: RECIPES[recipe] });
  noGrad(() => {
    const fullLogits = fullRows(model, run);
    const stepLogits = steppedRows(model, run, modelForm);
    expect(fullLogits.flat()).not.toContain(undefined);
    for (const [sequence, rows] of stepLogits.entries())
      for (const [position, row] of rows.entries())
        if (row !== undefined) expect(row, `${sequence}, ${position}`).toBe(fullLogits[sequence]?.[position]);
  });
}

it("steps with a cache have the bits of one pass", async () => {
  await fc.assert(
    fc.asyncProperty(tinyChoices, rollouts, forms, async (choices, run, form) => {
      const path = join(folder, `${count++}`);
      await writeHub(path, tinyModel(choices));
      await requireSameRows(path, run, form);
    }),
    { numRuns: draws(64, 4) },
  );
});

it.each(WITNESS_NAMES)("so do those of the recorded model %s", async (name) => {
  await fc.assert(
    fc.asyncProperty(rollouts, forms, (run, form) => {
      const recipe = QUANTIZABLE.includes(name) ? form.recipe : "none";
      return requireSameRows(witnessPath(name), run, { ...form, recipe });
    }),
    { numRuns: draws(24, 1) },
  );
});
