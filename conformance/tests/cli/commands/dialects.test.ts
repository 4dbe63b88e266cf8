/** The command line: --dialect, and the list of dialects. */
import { describe, expect, it } from "vitest";
import { DIALECT_NAMES, DIALECTS, type Dialect } from "../../../../src/dialects/table.js";
import { blockFormat } from "../../../../src/formats/block.js";
import { f32, ramp, useWorkspace } from "../../harness/cli.js";

const w = useWorkspace();
const SIZE = [32, 64];

/** The metadata of a tensor that a command has written. */
async function recipeOf(...options: readonly string[]): Promise<Readonly<Record<string, unknown>>> {
  await w.write("in", [f32("x", SIZE, ramp(32 * 64))]);
  await w.succeed("quantize", "@in", "-o", "@out", ...options);
  return JSON.parse((await w.read("out")).metadata["lockstep.x"] ?? "{}");
}

describe("--dialect", () => {
  it.each(DIALECT_NAMES)("%s quantizes by its first quantizer and all that it fixes", async (name) => {
    const { forms }: Dialect = DIALECTS[name];
    const [form] = forms;
    const { amaxEpsilon, ...fixedSettings } = form?.fixed ?? {};
    const writtenRecipe = await recipeOf("--dialect", name);
    expect(writtenRecipe.quantizer).toBe(form?.quantizer);
    const [ownRule] = blockFormat(form?.quantizer ?? "mxfp8").rules;
    const defaults: Readonly<Record<string, unknown>> = { scaleRule: ownRule, elementScaling: "multiply" };
    for (const [field, value] of Object.entries(fixedSettings))
      expect(writtenRecipe[field] ?? defaults[field], field).toBe(value);
    expect(writtenRecipe.epsilon ?? 0).toBe(amaxEpsilon ?? 0);
  });

  it("leaves the choice of format, tile and quantizer among its own", async () => {
    expect(await recipeOf("--dialect", "torchao-mxfp8-floor", "--format", "e5m2")).toMatchObject({
      format: "e5m2",
      scaleRule: "e8m0Floor",
      elementScaling: "multiplyFromNormal",
    });
    expect(await recipeOf("--dialect", "te", "--quantizer", "nvfp4")).toMatchObject({ quantizer: "nvfp4" });
    expect(await recipeOf("--dialect", "deepseek-fp8-block", "--tile", "1x128")).toMatchObject({
      tile: "1x128",
      scaleRule: "f32Quotient",
    });
  });

  it.each([
    ["--dialect torchao", /torchao-mxfp8-floor/],
    ["--dialect ct-mxfp8 --quantizer mxfp4", /ct-mxfp8 has no quantizer mxfp4; it has mxfp8/],
    ["--dialect ct-mxfp8 --format e5m2", /ct-mxfp8 has no format e5m2; it has e4m3/],
    ["--dialect ct-mxfp8 --tile 32x32", /ct-mxfp8 has no tile 32x32; it has 1x32/],
    ["--dialect ct-mxfp8 --scale-rule e8m0Up", /--scale-rule is what --dialect ct-mxfp8 says/],
    ["--dialect ct-fp8-tensor --pow2-scales", /--pow2-scales is what --dialect ct-fp8-tensor says/],
    ["--quantizer mxfp8 --scale-rule f32", /scale-rule f32/],
    ["--quantizer mxfp8 --element-scaling divide", /elementScaling divide/],
    ["--quantizer nvfp4 --scale-rule e8m0Up", /--scale-rule e8m0Up is not one of twoLevel/],
    ["--quantizer fp8-delayed --scale-rule f32", /--scale-rule is for/],
    ["", /--quantizer is needed, or --dialect/],
  ])("refuses %j", async (options, message) => {
    await w.write("in", [f32("x", SIZE, ramp(32 * 64))]);
    const { status, stderr } = await w.run(
      "quantize",
      "@in",
      "-o",
      "@out",
      ...options.split(" ").filter(Boolean),
    );
    expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringMatching(message) });
  });

  it("makes a corpus of a dialect's edges", async () => {
    await w.succeed("fuzz", "--op", "quantize", "--dialect", "ct-fp8-block", "--cases", "3", "-o", "@out");
    const { metadata } = await w.read("out");
    expect(JSON.parse(metadata["lockstep.out.0"] ?? "{}")).toMatchObject({ scaleRule: "f32QuotientLeast" });
  });
});

describe("dialects", () => {
  it("lists every row with its source, and all of each as JSON", async () => {
    const text = await w.succeed("dialects");
    for (const name of DIALECT_NAMES) expect(text).toContain(DIALECTS[name].source);
    const { dialects } = JSON.parse(await w.succeed("dialects", "--json"));
    expect(dialects).toEqual(
      JSON.parse(JSON.stringify(DIALECT_NAMES.map((name) => ({ name, ...DIALECTS[name] })))),
    );
  });
});
