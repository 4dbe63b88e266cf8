/**
 * Models compute the logits that transformers computes, within the rounding error of its own f32.
 *
 * `f64` is transformers' computation without rounding errors that count. Its f32 logits differ from these by an error that is one
 * draw: another order of sums, or another rounding of an exponential, gives another draw of the same size. Lockstep has other
 * orders than PyTorch, so its error is another draw. The largest of more than a thousand such errors varies little from draw to
 * draw: Lockstep's is 0.6 to 2.6 times transformers' in these models. FACTOR leaves room for longer chains of additions: Lockstep
 * adds products one after another, where PyTorch's kernels keep 8 or 16 partial sums.
 */
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { convertCheckpoint } from "../../../src/checkpoints/index.js";
import { type LoadCausalLMOptions, loadCausalLM } from "../../../src/models/index.js";
import { tensor } from "../../../src/ops/create.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Scope } from "../../../src/tensor/scope.js";
import { sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { readWitness, topOf, WITNESS_NAMES, witnessPath } from "../models/witnesses.js";

const FACTOR = 4;
const DOCUMENT = new URL("../../../docs/models.md", import.meta.url);
const backend = useBackend({ threads: 1, datapath: "hopper" });

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-witness-"));
});
afterAll(() => rm(folder, { recursive: true }));

const f32 = { dtype: "f32" } as const;

/** The logits of each list of tokens. */
async function logitsOf(
  path: string,
  options: LoadCausalLMOptions,
  ...texts: readonly Int32Array[]
): Promise<readonly Float32Array[]> {
  using model = await loadCausalLM(backend(), path, options);
  using _scope = new Scope();
  return noGrad(() =>
    texts.map((ids) => {
      const logits = model.forward(tensor(backend(), ids, [1, ids.length], "i32"));
      return logits.tensor.dataSync().slice() as Float32Array;
    }),
  );
}

/** The largest absolute difference. Missing elements are 0. */
const distance = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Array.from(a).reduce((maximum, value, i) => Math.max(maximum, Math.abs(value - (b[i] ?? 0))), 0);

describe.each(sampleCases(WITNESS_NAMES, 3))("%s", (name) => {
  it("has the logits of transformers", async () => {
    const witness = await readWitness(name);
    const { path, tokens, vocabulary, f64, greedy } = witness;
    const text = Int32Array.from([...tokens, ...greedy]);
    const [logits, laterLogits] = (await logitsOf(path, f32, tokens, text)) as [Float32Array, Float32Array];
    expect(logits.length).toBe(f64.length);
    const noise = distance(witness.f32, f64);
    const error = distance(logits, f64);
    expect(error).toBeLessThanOrEqual(FACTOR * noise);
    const [expected, actual] = [noise, error].map((value) => value.toExponential(1));
    const row = `| \`${name}\` | ${distance(f64, []).toFixed(1)} | ${expected} | ${actual} |`;
    expect(await readFile(DOCUMENT, "utf8"), "run scripts/model-witnesses.mjs").toContain(row);

    const top = (all: Float32Array | Float64Array, row: number) =>
      topOf(all.subarray(row * vocabulary, (row + 1) * vocabulary));
    for (const row of tokens.keys()) {
      const expected = top(f64, row);
      if (expected.gap > noise + error) expect(top(logits, row).index).toBe(expected.index);
    }
    expect(greedy.length).toBeGreaterThan(8);
    const next = greedy.map((_, i) => top(laterLogits, tokens.length - 1 + i).index);
    expect([...next]).toEqual([...greedy]);
  });
});

describe.each(sampleCases(["llama", "qwen2", "qwen3"], 1))("the GGUF file of %s", (name) => {
  it("has the logits of transformers", async () => {
    const { tokens, f32: expectedLogits, f64 } = await readWitness(name);
    const [logits] = (await logitsOf(witnessPath(`${name}.gguf`), f32, tokens)) as [Float32Array];
    expect(logits.length).toBe(f64.length);
    expect(distance(logits, f64)).toBeLessThanOrEqual(FACTOR * distance(expectedLogits, f64));
  });
});

describe.each([
  // GGUF has no query_pre_attn_scalar; the reader assumes the width of a head, 16
  { name: "gemma3", fields: { query_pre_attn_scalar: 16 } },
  { name: "gpt-oss", fields: {} },
  { name: "deepseek-v3", fields: {} },
])("the GGUF file of $name", ({ name, fields }) => {
  it("has the bits of the folder", async () => {
    const { path, tokens } = await readWitness(name);
    const copy = join(folder, `${name}-of-gguf`);
    await cp(path, copy, { recursive: true });
    const file = join(copy, "config.json");
    const config: Record<string, unknown> = JSON.parse(await readFile(file, "utf8"));
    await writeFile(file, JSON.stringify({ ...config, ...fields }));
    const options = { dtype: "bf16" } as const;
    const [expected] = await logitsOf(copy, options, tokens);
    expect(await logitsOf(witnessPath(`${name}.gguf`), options, tokens)).toEqual([expected]);
  });
});

/** Other values of fields, each of which changes the result of a model. `null` is a missing field. */
const FIELDS: Readonly<Record<string, readonly Readonly<Record<string, unknown>>[]>> = {
  llama: [{ rope_scaling: null }, { rope_theta: 20000 }, { rms_norm_eps: 0.01 }, { hidden_act: "relu" }],
  mistral: [{ sliding_window: null }, { sliding_window: 8 }],
  qwen2: [{ use_sliding_window: true, sliding_window: 5, layer_types: null, max_window_layers: 1 }],
  qwen3: [{ rope_parameters: { rope_type: "default", rope_theta: 5000 } }],
  "qwen3-moe": [{ num_experts_per_tok: 3 }, { norm_topk_prob: false }],
  gemma3: [
    ...[{ sliding_window: 7 }, { sliding_window_pattern: 4 }, { rope_scaling: null }, { rope_theta: 10000 }],
    ...[{ rope_local_base_freq: 2000 }, { query_pre_attn_scalar: 16 }, { final_logit_softcapping: null }],
    ...[{ attn_logit_softcapping: 5 }, { hidden_activation: "silu" }],
  ],
  "gpt-oss": [
    ...[
      { sliding_window: 7 },
      { layer_types: ["full_attention", "sliding_attention"] },
      { rope_scaling: null },
    ],
    ...[{ num_experts_per_tok: 3 }, { swiglu_limit: 2 }, { swiglu_alpha: 1.5 }],
  ],
  "deepseek-v3": [
    ...[{ rope_scaling: null }, { rope_interleave: false }, { routed_scaling_factor: 2 }],
    ...[{ n_group: 1, topk_group: 1 }, { n_group: 3 }],
  ],
};

describe("every field counts", () => {
  const cases = Object.entries(FIELDS).flatMap(([name, list]) => list.map((fields) => ({ name, fields })));
  it.each(sampleCases(cases, 6))("$name: $fields", async ({ name, fields }) => {
    const { path, tokens, f64, f32: singleLogits } = await readWitness(name);
    const copy = join(folder, `${name}-${cases.findIndex((each) => each.fields === fields)}`);
    await cp(path, copy, { recursive: true });
    const file = join(copy, "config.json");
    const config: Record<string, unknown> = JSON.parse(await readFile(file, "utf8"));
    await writeFile(file, JSON.stringify({ ...config, ...fields }));
    const [logits] = (await logitsOf(copy, f32, tokens)) as [Float32Array];
    expect(distance(logits, f64)).toBeGreaterThan(100 * FACTOR * distance(singleLogits, f64));
  });
});

describe("quantized forms of published models", () => {
  it.each(sampleCases(["gpt-oss", "deepseek-v3"], 1))(
    "%s has the bits of its dequantized copy",
    async (name) => {
      const { tokens } = await readWitness(name);
      const wide = join(folder, `${name}-wide`);
      await convertCheckpoint(witnessPath(name), wide, { to: "bf16" });
      const options = { dtype: "bf16" } as const;
      const [logits] = await logitsOf(witnessPath(name), options, tokens);
      expect((await logitsOf(wide, options, tokens))[0]).toEqual(logits);
      for (const path of [witnessPath(name), wide])
        expect((await logitsOf(path, { ...options, weights: "bf16" }, tokens))[0]).toEqual(logits);
    },
  );
});
