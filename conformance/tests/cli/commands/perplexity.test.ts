import { readFileSync, writeFileSync } from "node:fs";
import { beforeEach, expect, it } from "vitest";
import { openBackend } from "../../../../src/index.js";
import { perplexity } from "../../../../src/models/index.js";
import { Float8BlockScaling } from "../../../../src/recipes/block-scaled.js";
import { useWorkspace } from "../../harness/cli.js";
import { tinyTokens, writeTinyTextModel } from "../../models/tiny-text-model.js";

const w = useWorkspace();
const TEXT = "a river begins as very little water. ";

beforeEach(async () => {
  await writeTinyTextModel(w.path("model"));
  writeFileSync(w.path("text"), TEXT);
});

it("prints what the function returns, for every form under every recipe", async () => {
  const args = [
    "perplexity",
    "@model",
    "--text",
    "@text",
    "--context",
    "16",
    "--stride",
    "8",
    "--tokens",
    "30",
  ];
  const lists = ["--forms", "as-stored,ct-nvfp4", "--recipes", "none,block"];
  const summary = JSON.parse(await w.succeed(...args, ...lists, "--json"));
  const backend = await openBackend("wasm", { threads: 1 });
  try {
    const block = new Float8BlockScaling();
    const { variants, ...report } = await perplexity(
      backend,
      w.path("model"),
      tinyTokens(TEXT).slice(0, 30),
      {
        ...{ context: 16, stride: 8 },
        variants: [{ recipe: block }, { weights: "ct-nvfp4" }, { weights: "ct-nvfp4", recipe: block }],
      },
    );
    const names = [
      { form: "as-stored", recipe: "block" },
      { form: "ct-nvfp4", recipe: "none" },
      { form: "ct-nvfp4", recipe: "block" },
    ];
    expect(summary).toEqual({
      ...{ path: w.path("model"), text: w.path("text"), tokens: 30, ...report },
      variants: variants.map((variant, i) => ({ ...names[i], ...variant })),
    });
  } finally {
    await backend.dispose();
  }
});

it("prints a table, and the errors of layers as bars", async () => {
  const out = await w.succeed("perplexity", "@model", "--text", "@text", "--forms", "ct-mxfp4,bf16");
  const lines = out.split("\n");
  expect(lines[0]).toMatch(/model: 36 tokens scored in windows of 64$/);
  expect(lines[1]).toMatch(/^weights +recipe +perplexity +mean KL +top-1 +bits$/);
  expect(lines[2]).toMatch(/^as-stored +none +\d+\.\d+ +16\.00$/);
  expect(lines[3]).toMatch(/^bf16 +none +\d+\.\d+ +0 +100\.0 % +16\.00$/);
  expect(lines[4]).toMatch(/^ct-mxfp4 +none +\d+\.\d+ +[\d.e-]+ +[\d.]+ % +4\.25$/);
  expect(lines.slice(5)).toEqual([
    "relative RMS error of the weights as ct-mxfp4, by layer:",
    expect.stringMatching(/^ {3}0 █+ +0\.\d+$/),
    expect.stringMatching(/^ {3}1 █+ +0\.\d+$/),
    "",
  ]);
});

it("writes the errors of layers as a picture with a curve for each form, whatever the recipes", async () => {
  const args = ["--forms", "ct-mxfp4,ct-nvfp4", "--recipes", "none,block", "--tokens", "20"];
  const out = await w.succeed("perplexity", "@model", "--text", "@text", ...args, "--picture", "@errors.svg");
  expect(out).toMatch(/errors\.svg: the errors of 2 forms\n$/);
  const svg = readFileSync(w.path("errors.svg"), "utf8");
  const legend = Array.from(svg.matchAll(/>(ct-[^<]*)<\/text>/g), ([, name]) => name);
  expect(legend).toEqual(["ct-mxfp4", "ct-nvfp4"]);
  expect(svg.match(/<circle /g)).toHaveLength(4);
});

it.each(["text", "model/config.json"])("does not write the picture over the input %s", async (input) => {
  const textBefore = readFileSync(w.path(input), "utf8");
  const { status, stderr } = await w.run("perplexity", "@model", "--text", "@text", "--picture", `@${input}`);
  expect([status, stderr]).toEqual([
    2,
    expect.stringMatching(/--picture .* is the input .*, which would be lost/),
  ]);
  expect(readFileSync(w.path(input), "utf8")).toBe(textBefore);
});

it("refuses an invalid list of forms, text or model with a message of one line", async () => {
  const expectRefused = async (...args: string[]): Promise<string> => {
    const { status, stdout, stderr } = await w.run("perplexity", ...args);
    expect([status, stdout]).toEqual([2, ""]);
    return stderr;
  };
  expect(await expectRefused("@model", "--text", "@text", "--forms", "int3")).toMatch(
    /"int3" is not one of as-stored/,
  );
  expect(await expectRefused("@model", "--text", "@text", "--recipes", "te")).toMatch(
    /"te" is not one of none/,
  );
  expect(await expectRefused("@model")).toMatch(/--text FILE is needed/);
  expect(await expectRefused("@model", "--text", "@missing")).toMatch(/missing: /);
  expect(await expectRefused("@missing", "--text", "@text")).toMatch(/missing: /);
  expect(await expectRefused("@model", "--text", "@text", "--context", "65")).toMatch(
    /the model has 64 positions/,
  );
  writeFileSync(w.path("text"), "Ü");
  expect(await expectRefused("@model", "--text", "@text")).toMatch(/has no token for U\+00DC/);
});
