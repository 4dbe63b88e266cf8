/**
 * `lockstep generate` prints the text and the hash of the logits of the library's `generate`, and verifies them on the reference.
 */
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { openBackend } from "../../../../src/backends/open.js";
import { differingLogits, generateText } from "../../../../src/cli/generation.js";
import { loadCausalLM, loadTokenizer, type SamplingOptions, sample } from "../../../../src/models/index.js";
import { tensor } from "../../../../src/ops/create.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { useWorkspace } from "../../harness/cli.js";
import { sampleCases } from "../../harness/draws.js";
import { missingSmolLM2, SMOLLM2 } from "../../harness/models.js";
import { writeLanguageModel } from "../../models/tiny-tokenizer.js";

const w = useWorkspace();
beforeEach(() => writeLanguageModel(w.path("model")));

interface Choice extends SamplingOptions {
  readonly seed?: bigint;
}

interface Report {
  readonly ok: boolean;
  readonly text: string;
  readonly tokens: readonly number[];
  readonly promptTokens: readonly number[];
  readonly logitsSha256: string;
  readonly verified?: { readonly backend: string; readonly differing: number };
}

async function reportOf(...args: readonly string[]): Promise<Report> {
  return JSON.parse(await w.succeed("generate", "@model", ...args, "--json")) as Report;
}

/** The tokens and the hash of the logits, by a full forward pass for each token. */
async function expectedReport(prompt: readonly number[], count: number, { seed = 0n, ...choice }: Choice) {
  const backend = await openBackend("wasm", { threads: 1 });
  const model = await loadCausalLM(backend, w.path("model"));
  const hash = createHash("sha256");
  const text = [...prompt];
  while (text.length < prompt.length + count) {
    const logits = noGrad(() => {
      using scope = new Scope();
      const ids = tensor(backend, Int32Array.from(text), [1, text.length], "i32");
      return scope.keep(model.forward(ids, { logitsToKeep: 1 }).tensor);
    });
    const values = (await logits.data()) as Float32Array;
    hash.update(Buffer.from(values.buffer, values.byteOffset, values.byteLength));
    text.push(...(await sample(logits, { ...choice, draws: [{ seed, offset: BigInt(text.length) }] })));
    logits.dispose();
  }
  model.dispose();
  await backend.dispose();
  return { tokens: text.slice(prompt.length), logitsSha256: hash.digest("hex") };
}

describe("generate", () => {
  it("prints the text as it comes, then the hash; with --quiet the text only", async () => {
    const { text, logitsSha256 } = await reportOf("--prompt", "abc", "--max-tokens", "5");
    const output = await w.succeed("generate", "@model", "--prompt", "abc", "--max-tokens", "5");
    expect(output).toMatch(
      /\n5 tokens after 3, [\d.]+ tokens\/s, prompt included\nlogits: SHA-256 [\da-f]{64}\n$/,
    );
    expect(output.startsWith(`${text}\n`)).toBe(true);
    expect(output).toContain(logitsSha256);
    expect(await w.succeed("generate", "@model", "--prompt", "abc", "--max-tokens", "5", "--quiet")).toBe(
      `${text}\n`,
    );
  });

  it("reports the tokens and the hash of the library, for every option of the choice", async () => {
    for (const [args, loadOptions] of [
      [[], {}],
      [["--temperature", "1.5", "--seed", "7"], { temperature: 1.5, seed: 7n }],
      [["--temperature", "2", "--top-k", "3", "--seed", "0x9"], { temperature: 2, topK: 3, seed: 9n }],
      [["--temperature", "2", "--top-p", "0.4"], { temperature: 2, topP: 0.4 }],
    ] as const) {
      const report = await reportOf("--prompt", "abc", "--max-tokens", "6", ...args);
      expect(report.promptTokens).toEqual([0, 1, 2]);
      expect(report).toMatchObject(await expectedReport([0, 1, 2], 6, loadOptions));
    }
  });

  it("writes the prompt by the chat template", async () => {
    expect((await reportOf("--prompt", "abc", "--chat", "--max-tokens", "1")).promptTokens).toEqual([
      3, 0, 1, 2, 4,
    ]);
  });

  it.each(sampleCases(["none", "block", "mxfp8", "nvfp4"]))(
    "verifies the logits by a full forward pass, recipe %s",
    async (recipe) => {
      const args = recipe === "none" ? [] : ["--recipe", recipe];
      const report = await reportOf("--prompt", "abc", "--max-tokens", "4", "--verify-with", "wasm", ...args);
      expect(report).toMatchObject({ ok: true, verified: { backend: "wasm", differing: 0 } });
      const plainReport = await reportOf("--prompt", "abc", "--max-tokens", "4");
      expect(report.logitsSha256 === plainReport.logitsSha256).toBe(recipe === "none");
    },
  );

  it("loads the values of a form", async () => {
    const storedReport = await reportOf("--prompt", "abc", "--max-tokens", "2");
    const formReport = await reportOf(
      "--prompt",
      "abc",
      "--max-tokens",
      "2",
      "--weights",
      "ct-mxfp4",
      "--verify-with",
      "wasm",
    );
    expect(formReport).toMatchObject({ ok: true, verified: { differing: 0 } });
    expect(formReport.logitsSha256).not.toBe(storedReport.logitsSha256);
  });

  it("caches codes, which one step over the text repeats", async () => {
    const args = ["--prompt", "abc", "--max-tokens", "4"];
    const storedReport = await reportOf(...args);
    const codedReport = await reportOf(...args, "--cache", "e4m3", "--verify-with", "wasm");
    expect(codedReport).toMatchObject({
      ...{ ok: true, verified: { differing: 0 } },
      cache: { format: "e4m3", scales: null },
    });
    expect(codedReport.logitsSha256).not.toBe(storedReport.logitsSha256);
    const output = await w.succeed("generate", "@model", ...args, "--cache", "e4m3");
    expect(output).toContain("cache: e4m3, scales 1, because the checkpoint has none");
  });

  it("ends at the last position of the model", async () => {
    const { tokens } = await reportOf("--prompt", "a".repeat(60), "--max-tokens", "9");
    expect(tokens).toHaveLength(4);
    const { status, stderr } = await w.run("generate", "@model", "--prompt", "a".repeat(64));
    expect([status, stderr]).toEqual([
      2,
      expect.stringMatching(/the prompt has 64 tokens and the model 64 positions/),
    ]);
  });

  it("counts ids without a token, which have no text", async () => {
    const args = ["--prompt", "abc", "--max-tokens", "6"];
    const { text, tokens, logitsSha256 } = await reportOf(...args);
    const path = join(w.path("model"), "tokenizer.json");
    const json = JSON.parse(readFileSync(path, "utf8"));
    const { vocab } = json.model as { readonly vocab: Readonly<Record<string, number>> };
    const [absentId] = tokens.filter((id) => id > 4);
    json.model.vocab = Object.fromEntries(Object.entries(vocab).filter(([, id]) => id !== absentId));
    writeFileSync(path, JSON.stringify(json));
    const paddedReport = await reportOf(...args);
    expect([paddedReport.tokens, paddedReport.logitsSha256]).toEqual([tokens, logitsSha256]);
    const [token] = Object.entries(vocab).flatMap(([piece, id]) => (id === absentId ? [piece] : []));
    expect(text).toContain(token);
    expect(paddedReport.text).toBe(text.replaceAll(token as string, ""));
  });

  it("refuses a folder without a tokenizer, and a prompt that has no tokens", async () => {
    const { stderr } = await w.run("generate", "@model", "--prompt", "A");
    expect(stderr).toMatch(/has no token for U\+0041/);
    writeFileSync(join(w.path("model"), "tokenizer.json"), "{}");
    expect((await w.run("generate", "@model", "--prompt", "a")).stderr).toMatch(
      /tokenizer.json must have a model/,
    );
  });
});

it("a logit with another bit is found", async () => {
  const backend = await openBackend("wasm", { threads: 1 });
  const model = await loadCausalLM(backend, w.path("model"));
  const tokenizer = await loadTokenizer(w.path("model"));
  const prompt = Int32Array.of(1, 2, 3);
  const options = { seed: 0n, maxNewTokens: 4, keepsLogits: true, write: () => {} };
  const generation = await generateText(model, tokenizer, prompt, options);
  expect(await differingLogits(model, prompt, generation)).toBe(0);
  const row = generation.logits[2] as Float32Array;
  const bits = new Uint32Array(row.buffer, row.byteOffset);
  bits[5] = (bits[5] as number) ^ 1;
  expect(await differingLogits(model, prompt, generation)).toBe(1);
  model.dispose();
  await backend.dispose();
});

it("SmolLM2 names the capital of France", async ({ skip }) => {
  if (missingSmolLM2) return skip(missingSmolLM2);
  const args = ["--prompt", "The capital of France is", "--max-tokens", "2", "--json"];
  const { text, tokens } = JSON.parse(await w.succeed("generate", SMOLLM2, ...args)) as Report;
  expect([text, tokens]).toEqual([" Paris.", [7042, 30]]);
});
