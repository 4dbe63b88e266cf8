/**
 * SmolLM2-135M-Instruct computes the logits of transformers and of llama.cpp (scripts/witness/models/smollm2.py), within their
 * rounding errors, and every bit of the logits that an H200 computes (scripts/witness/models/smollm2_h200.mjs).
 */
import { readFileSync } from "node:fs";
import { beforeAll, expect, it } from "vitest";
import { type LoadCausalLMOptions, loadCausalLM } from "../../../src/models/index.js";
import { tensor } from "../../../src/ops/create.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Scope } from "../../../src/tensor/scope.js";
import { useWorkspace } from "../harness/cli.js";
import { draws, sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";
import { missingSmolLM2, SMOLLM2 } from "../harness/models.js";
import { useBackend } from "../harness/suite.js";
import { type RecordedTensors, readTensors, topOf, witnessPath } from "../models/witnesses.js";

/** The maximum ratio of Lockstep's error to the error of transformers in f32; models.test.ts explains it. */
const FACTOR = 4;
const backend = useBackend({ threads: IS_FULL ? 2 : 1, datapath: "hopper" });

let recordedWitness: RecordedTensors;
beforeAll(async () => {
  recordedWitness = await readTensors(witnessPath("smollm2.safetensors"));
});

/** The positions that a run tests, from the first on, because the logits of a token depend on the tokens before it. */
const POSITIONS = draws(64, 4);

/** The logits of all positions. */
async function logitsOf(tokens: Int32Array, options: LoadCausalLMOptions): Promise<Float32Array> {
  using model = await loadCausalLM(backend(), SMOLLM2, options);
  using _scope = new Scope();
  const ids = tensor(backend(), tokens, [1, tokens.length], "i32");
  return noGrad(() => model.forward(ids).tensor.dataSync().slice() as Float32Array);
}

/** The recorded results for each position: its best tokens, their logits, and the errors of other programs. */
function positions() {
  const [count, keptCount] = recordedWitness.shapeOf("ids") as [number, number];
  const [ids, f64] = [recordedWitness.i32("ids"), recordedWitness.f64("f64")];
  const errors = new Map(
    ["f32", "llama", "llama.q4_1"].map((name) => [name, recordedWitness.f64(`${name}.error`)]),
  );
  return Array.from({ length: count }, (_, row) => ({
    ids: ids.subarray(row * keptCount, (row + 1) * keptCount),
    f64: f64.subarray(row * keptCount, (row + 1) * keptCount),
    errorOf: (name: string): number => errors.get(name)?.[row] as number,
  }));
}

it("the recorded programs agree with each other, and top-1 has gaps", () => {
  const allPositions = positions();
  expect(allPositions.length).toBe(64);
  const largest = (name: string): number => Math.max(...allPositions.map(({ errorOf }) => errorOf(name)));
  expect(largest("f32")).toBeLessThan(1e-4);
  expect(largest("llama")).toBeLessThan(1e-4);
  for (const name of ["f32", "llama"]) {
    const logits = recordedWitness.f32(`${name}.logits`);
    for (const [row, { f64, errorOf }] of allPositions.entries())
      for (const [i, logit] of f64.entries())
        expect(Math.abs((logits[row * f64.length + i] as number) - logit)).toBeLessThanOrEqual(errorOf(name));
  }
  const gaps = allPositions.map(({ f64 }) => (f64[0] as number) - (f64[1] as number));
  expect(gaps.filter((gap, row) => gap > 2 * (allPositions[row]?.errorOf("f32") as number)).length).toBe(64);
});

const LAWS: Readonly<Record<string, () => Promise<void>>> = {
  "in f32 has the logits of f64 within the errors of transformers, and its top-1": async () => {
    const tokens = recordedWitness.i32("tokens").slice(0, POSITIONS);
    const logits = await logitsOf(tokens, { dtype: "f32" });
    const vocabulary = logits.length / tokens.length;
    const comparedPositions = positions().slice(0, POSITIONS);
    expect(comparedPositions.length).toBe(POSITIONS);
    const spread = Math.max(...comparedPositions.map(({ errorOf }) => errorOf("f32")));
    const llama = Math.max(...comparedPositions.map(({ errorOf }) => errorOf("llama")));
    for (const [row, { ids, f64 }] of comparedPositions.entries()) {
      const rowLogits = logits.subarray(row * vocabulary, (row + 1) * vocabulary);
      const errors = Array.from(ids, (id, i) => Math.abs((rowLogits[id] as number) - (f64[i] as number)));
      expect(Math.max(...errors)).toBeLessThanOrEqual(FACTOR * spread);
      const gap = (f64[0] as number) - (f64[1] as number);
      expect(gap).toBeGreaterThan(spread + Math.max(llama, ...errors));
      expect(topOf(rowLogits).index).toBe(ids[0]);
    }
  },

  "answers in bf16 as transformers does in f32": async () => {
    const [chat, greedy] = [recordedWitness.i32("chat"), recordedWitness.i32("greedy").slice(0, POSITIONS)];
    const logits = await logitsOf(Int32Array.from([...chat, ...greedy.slice(0, -1)]), {});
    const vocabulary = logits.length / (chat.length + greedy.length - 1);
    const answer = Array.from(greedy, (_, i) => {
      const row = chat.length - 1 + i;
      return topOf(logits.subarray(row * vocabulary, (row + 1) * vocabulary)).index;
    });
    expect(answer).toEqual([...greedy]);
  },
};

for (const [law, lawHolds] of sampleCases(Object.entries(LAWS), 1))
  it(`the model ${law}`, async ({ skip }) => {
    if (missingSmolLM2) return skip(missingSmolLM2);
    await lawHolds();
  });

/** What an H200 generated under one combination of options of `lockstep generate`. */
interface Generated {
  readonly options: readonly string[];
  /** The first 16 digits of the SHA-256 of all logits. */
  readonly logitsSha256: string;
  readonly text: string;
}

const h200 = JSON.parse(readFileSync(witnessPath("smollm2-h200.json"), "utf8")) as {
  readonly run: readonly string[];
  readonly variants: readonly Generated[];
};
const workspace = useWorkspace();

for (const { options, logitsSha256, text } of sampleCases(h200.variants, 1))
  it(`lockstep generate ${options.join(" ")} has the text and the logits of an H200`, async ({ skip }) => {
    if (missingSmolLM2) return skip(missingSmolLM2);
    const args = ["generate", SMOLLM2, ...h200.run, ...options, "--json"];
    const result = JSON.parse(await workspace.succeed(...args));
    expect({ text: result.text, logitsSha256: result.logitsSha256.slice(0, 16) }).toEqual({
      text,
      logitsSha256,
    });
  });
