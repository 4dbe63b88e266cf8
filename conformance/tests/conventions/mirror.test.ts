/** One operation, one stem, in every folder: src/ops, assembly, src/backends/{wasm,cuda}, conformance, kernels, native. */
import { existsSync, readdirSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { OPERATION_NAMES } from "../../operations/operations.js";
import { GPU_GROUPS } from "../harness/gpu/groups.js";

/** Files of src/ops that are not operations, and why. */
const HELPERS: Readonly<Record<string, string>> = {
  create: "makes tensors from the host's data; nothing is computed",
  outputs: "what every operation may write into: a check of execute",
  execute: "the two steps that every operation ends with",
  "gemm-batched": "gemm of many items, by the lowerings of gemm",
  "gemm-operand": "reads the operands of gemm",
  "gemm-plan": "says by which datapath and algorithm gemm computes",
  "gemm-epilogue": "composes gemm with activations and sums, which have stems of their own",
};

/** Operations that the reference composes of others, so that it has no kernels of theirs. */
const COMPOSED: readonly string[] = ["activation-quantize", "norm-quantize"];

const root = new URL("../../../", import.meta.url);
const namesIn = (folder: string): string[] =>
  existsSync(new URL(folder, root)) ? readdirSync(new URL(folder, root)) : [];

/** Stems of the files in a folder that end so. */
const stemsOf = (folder: string, ending: string): string[] =>
  namesIn(folder)
    .filter((name) => name.endsWith(ending))
    .map((name) => name.slice(0, -ending.length));

const sources = stemsOf("src/ops", ".ts");
const operations = sources.filter((stem) => !Object.hasOwn(HELPERS, stem));

describe("every operation of src/ops", () => {
  it("is one of these", () => {
    expect(operations.sort()).toEqual([
      "activation",
      "activation-quantize",
      "add",
      "cast",
      "delayed-scaling",
      "dequantize",
      "embedding",
      "gemm",
      "grad-norm",
      "hadamard",
      "layout",
      "loss",
      "norm",
      "norm-quantize",
      "optimizer",
      "quantize",
      "scaled",
      "softmax",
      "sweep",
    ]);
  });

  it("or is listed as a helper that exists", () => {
    expect(sources).toEqual(expect.arrayContaining(Object.keys(HELPERS)));
  });

  for (const [folder, ending, what] of [
    ["assembly", ".ts", "kernels of the reference"],
    ["src/backends/wasm", ".ts", "a lowering to the reference"],
    ["src/backends/cuda", ".ts", "a lowering to a GPU"],
    ["conformance", ".test.ts", "tests"],
  ] as const) {
    it(`has ${what}: ${folder}/<stem>${ending}`, () => {
      const exempt = folder === "assembly" ? COMPOSED : [];
      expect(operations.filter((stem) => !stemsOf(folder, ending).includes(stem))).toEqual(exempt);
    });
  }

  // a kernel family is one file, so a stem of several families has several: kernels/quantize/mx/mx.cu
  for (const [folder, ending, what] of [
    ["kernels", ".cu", "GPU kernels"],
    ["native", ".cc", "a binding to them"],
  ] as const) {
    it(`has ${what}: ${folder}/<stem>${ending}, or families of them, ${folder}/<stem>-*${ending}`, () => {
      const stems = stemsOf(folder, ending);
      const has = (stem: string): boolean =>
        stems.some((each) => each === stem || each.startsWith(`${stem}-`));
      expect(operations.filter((stem) => !has(stem))).toEqual([]);
    });
  }
});

describe("a GPU", () => {
  it("is held to every operation's laws, by a file for each group", () => {
    expect(Object.values(GPU_GROUPS).flat().sort()).toEqual([...OPERATION_NAMES].sort());
    const files = Object.keys(GPU_GROUPS).map((group) => `laws-${group}`);
    const named = stemsOf("conformance/tests/cuda", ".test.ts").filter((stem) => stem.startsWith("laws-"));
    expect(named.sort()).toEqual(files.sort());
  });
});
