/** The command line on a GPU writes the same bytes as on the reference. */
import { writeFileSync } from "node:fs";
import { beforeEach, expect, it } from "vitest";
import { f32, ramp, useWorkspace } from "../harness/cli.js";
import { describeOnGpu } from "../harness/gpu/gpu.js";

const w = useWorkspace();
beforeEach(async () => {
  await w.write("in", [f32("a", [96, 256], ramp(96 * 256)), f32("b", [160, 256], ramp(160 * 256, 7))]);
});

/** Runs a command on both backends and compares their files; `output` remains with the GPU's result. */
async function same(command: string, input: string, output: string, ...options: string[]): Promise<void> {
  await w.succeed(command, input, "-o", `@${output}`, "--backend", "cuda", ...options);
  await w.succeed(command, input, "-o", "@cpu", "--backend", "wasm", ...options);
  expect((await w.read(output)).tensors).toEqual((await w.read("cpu")).tensors);
  expect(await w.succeed("compare", `@${output}`, "@cpu")).toBeTruthy();
}

const QUANTIZERS = [
  ["fp8-current"],
  ["fp8-delayed", "--scale", "2"],
  ["fp8-block"],
  ["fp8-block", "--tile", "128x128"],
  ["mxfp8"],
  ["mxfp6"],
  ["mxfp4"],
  ["nvfp4"],
  ["nvfp4", "--rht", "--stochastic", "--seed", "5"],
];

describeOnGpu("the command line on a GPU", () => {
  it.each(QUANTIZERS)("quantize and dequantize, %s %s %s", async (quantizer, ...options) => {
    const usage = options.includes("--rht") ? "rowwise,columnwise" : "rowwise";
    const bf16 = options.includes("--rht");
    if (bf16) await w.succeed("encode", "@in", "-o", "@in", "--format", "bf16", "--force");
    await same(
      "quantize",
      "@in",
      "quantized",
      "--quantizer",
      String(quantizer),
      "--usage",
      usage,
      ...options,
    );
    await same("dequantize", "@quantized", "values", "--dtype", "bf16");
  });

  it("encode and decode", async () => {
    await same("encode", "@in", "codes", "--format", "e3m2", "--rounding", "stochastic", "--seed", "3");
    await same("decode", "@codes", "values", "--format", "e3m2");
  });

  it("gemm, by the plan that the GPU printed", async () => {
    for (const quantizer of ["fp8-current", "fp8-block", "mxfp8", "nvfp4"]) {
      await w.succeed("quantize", "@in", "-o", "@q", "--quantizer", quantizer);
      const plan = await w.succeed("gemm", "@q", "-o", "@gpu", "--backend", "cuda", "--print-plan");
      writeFileSync(w.path("plan"), plan);
      await w.succeed("gemm", "@q", "-o", "@cpu", "--backend", "wasm", "--plan", "@plan");
      const expected = (await w.read("cpu")).tensors;
      expect((await w.read("gpu")).tensors).toEqual(expected);
      await w.succeed("gemm", "@q", "-o", "@again", "--backend", "cuda", "--plan", "@plan");
      expect((await w.read("again")).tensors).toEqual(expected);
    }
  });

  it("conform and info", async () => {
    const held = await w.succeed(
      "conform",
      "--backend",
      "cuda",
      "--op",
      "encode,quantize,gemm",
      "--runs",
      "30",
    );
    expect(held).toMatch(/laws hold for cuda/);
    expect(await w.succeed("info", "--backend", "cuda")).toMatch(/backend cuda: .*sm_\d+/);
  });

  it("refuses bad input in one line, with status 2", async () => {
    writeFileSync(
      w.path("plan"),
      JSON.stringify({ datapath: "hopper-fp8", splitAccumulator: false, splitK: -3 }),
    );
    const runs = [
      ["gemm", "@in", "-o", "@out", "--backend", "cuda", "--plan", "@plan"],
      ["gemm", "@in", "-o", "@out", "--backend", "cuda", "--datapath", "exact"],
      ["quantize", "@in", "-o", "@out", "--backend", "cuda", "--quantizer", "mxfp8", "--tile", "1x16"],
      ["quantize", "@missing", "-o", "@out", "--backend", "cuda", "--quantizer", "mxfp8"],
    ];
    for (const words of runs) {
      const { status, stderr, stdout } = await w.run(...words);
      expect({ status, stdout, lines: stderr.trim().split("\n").length }).toEqual({
        status: 2,
        stdout: "",
        lines: 1,
      });
    }
  });
});
