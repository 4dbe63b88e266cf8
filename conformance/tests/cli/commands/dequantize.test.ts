/** The command line: dequantize reads the output of quantize. */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import {
  dequantize,
  Float8BlockQuantizer,
  Float8CurrentScalingQuantizer,
  Float8Quantizer,
  MXFP4Quantizer,
  MXFP6Quantizer,
  MXFP8Quantizer,
  NVFP4Quantizer,
  openBackend,
  type Quantizer,
  RandomState,
  Scope,
  tensor,
} from "../../../../src/index.js";
import { f32, ramp, raw, useWorkspace } from "../../harness/cli.js";
import { sampleCases } from "../../harness/draws.js";

const w = useWorkspace();

const BOTH = ["--usage", "rowwise,columnwise"];
const [M, K] = [160, 192];

type Make = (backend: Backend) => Quantizer;

/**
 * Each quantizer by its command-line options and by the library. The tests of the library compare it with the oracles.
 */
const QUANTIZERS: readonly (readonly [options: string, make: Make])[] = [
  ["fp8-current", () => new Float8CurrentScalingQuantizer()],
  ["fp8-current --pow2-scales", () => new Float8CurrentScalingQuantizer({ pow2Scales: true })],
  ["fp8-delayed --scale 2", (backend) => new Float8Quantizer({ scale: tensor(backend, [2]) })],
  ["fp8-block", () => new Float8BlockQuantizer()],
  [
    "fp8-block --no-pow2-scales --format e5m2",
    () => new Float8BlockQuantizer({ pow2Scales: false, format: "e5m2" }),
  ],
  ["fp8-block --tile 128x128", () => new Float8BlockQuantizer({ tile: "128x128" })],
  ["mxfp8 --tile 32x32", () => new MXFP8Quantizer({ tile: "32x32" })],
  ["mxfp6 --format e3m2", () => new MXFP6Quantizer({ format: "e3m2" })],
  ["mxfp4", () => new MXFP4Quantizer()],
  ["nvfp4 --tile 16x16", () => new NVFP4Quantizer({ tile: "16x16" })],
  ["nvfp4 --four-over-six", () => new NVFP4Quantizer({ fourOverSix: "mae" })],
  ["nvfp4 --four-over-six --e4m3-max 448", () => new NVFP4Quantizer({ fourOverSix: "mae", e4m3Max: 448 })],
  ["nvfp4 --row-scaled", () => new NVFP4Quantizer({ rowScaled: true })],
  ["nvfp4 --row-scaled --four-over-six", () => new NVFP4Quantizer({ rowScaled: true, fourOverSix: "mae" })],
  ["nvfp4 --four-over-six --err-mode mse", () => new NVFP4Quantizer({ fourOverSix: "mse" })],
  [
    "nvfp4 --stochastic --seed 9 --offset 4",
    () => new NVFP4Quantizer({ stochastic: true, random: new RandomState(9n, 4n) }),
  ],
];

async function dequantizeByLibrary(make: Make, values: Float32Array): Promise<Float32Array> {
  const backend = await openBackend("wasm", { threads: 1 });
  try {
    using _scope = new Scope();
    const quantizedTensor = make(backend).quantize(tensor(backend, values, [2, M / 2, K]));
    return Float32Array.from(dequantize(quantizedTensor, "f32").dataSync());
  } finally {
    await backend.dispose();
  }
}

describe("dequantize", () => {
  it.each(sampleCases(QUANTIZERS))(
    "--quantizer %s dequantizes to what the library gives, from padded scales as well",
    async (options, make) => {
      const values = ramp(M * K);
      await w.write("in", [f32("x", [2, M / 2, K], values)]);
      await w.succeed("quantize", "@in", "-o", "@a", "--quantizer", ...options.split(" "));
      await w.succeed(
        "quantize",
        "@in",
        "-o",
        "@b",
        "--quantizer",
        ...options.split(" "),
        "--scales",
        "padded",
        ...BOTH,
      );
      await w.succeed("dequantize", "@a", "-o", "@fromA");
      await w.succeed("dequantize", "@b", "-o", "@fromB");
      const expected = await dequantizeByLibrary(make, values);
      for (const name of ["fromA", "fromB"]) {
        const { tensors, metadata } = await w.read(name);
        expect({ ...metadata }).toEqual({});
        expect(tensors).toEqual({ x: f32("x", [2, M / 2, K], expected) });
      }
    },
  );

  it("leaves integers and tensors not asked for as they are", async () => {
    const unquantizedTensors = [raw("n", "I64", [1], [1, 2, 3, 4, 5, 6, 7, 8]), f32("y", [3, 5], ramp(15))];
    await w.write("in", [f32("x", [32, 32], ramp(1024)), ...unquantizedTensors]);
    await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", "mxfp8", "--tensors", "x");
    const { tensors } = await w.read("out");
    expect(Object.keys(tensors).toSorted()).toEqual(["n", "x.rowwise.data", "x.rowwise.scale_inv", "y"]);
    expect([tensors.n, tensors.y]).toEqual(unquantizedTensors);
    await w.succeed("dequantize", "@out", "-o", "@back", "--dtype", "bf16");
    const back = (await w.read("back")).tensors;
    expect(Object.keys(back).toSorted()).toEqual(["n", "x", "y"]);
    expect(back.x).toMatchObject({ dtype: "BF16", shape: [32, 32] });
    expect(back.y).toEqual(unquantizedTensors[1]);
  });

  it("dequantizes columnwise copies if there are no rowwise ones", async () => {
    await w.write("in", [f32("x", [32, 64], ramp(2048))]);
    for (const quantizer of ["fp8-current", "mxfp8", "nvfp4"]) {
      await w.succeed("quantize", "@in", "-o", "@both", "--quantizer", quantizer, ...BOTH);
      await w.succeed("quantize", "@in", "-o", "@column", "--quantizer", quantizer, "--usage", "columnwise");
      const { tensors, metadata } = await w.read("both");
      await w.write(
        "less",
        Object.values(tensors).filter(({ name }) => !name.includes("rowwise")),
        metadata,
      );
      await w.succeed("dequantize", "@less", "-o", "@a");
      await w.succeed("dequantize", "@column", "-o", "@b");
      expect(await w.succeed("compare", "@a", "@b")).toMatch("1 of 1 tensors equal");
    }
  });
});

describe("dequantize refuses, in a line that names the tensor,", () => {
  const recipe = {
    quantizer: "mxfp8",
    format: "e4m3",
    shape: [32, 32],
    dtype: "f32",
    scales: "logical",
    usage: ["rowwise"],
  };
  it.each<[string, unknown, RegExp]>([
    ["metadata that are no JSON", "{", /tensor "x": metadata lockstep.x is not valid JSON/],
    [
      "a quantizer that there is not",
      { ...recipe, quantizer: "mxfp9" },
      /tensor "x".*quantizer: "mxfp9" is not one of fp8-current/,
    ],
    [
      "a format that the quantizer has not",
      { ...recipe, format: "e2m1" },
      /tensor "x".*format e2m1 is not one of e4m3, e5m2/,
    ],
    [
      "a shape that is none",
      { ...recipe, shape: [32, "a"] },
      /shape is \[32,"a"\]; a list of sizes is needed/,
    ],
    [
      "a shape that the format cannot have",
      { ...recipe, shape: [32, 33] },
      /last dimension 33 is not a multiple/,
    ],
    ["usage that is none", { ...recipe, usage: [] }, /usage is \[\]/],
    [
      "scales that are none",
      { ...recipe, scales: "wild" },
      /scales: "wild" is not one of logical, padded, swizzled/,
    ],
    [
      "a scale layout that the quantizer has not",
      { ...recipe, quantizer: "fp8-current", scales: "swizzled" },
      /tensor "x".*no swizzled layout/,
    ],
    ["a dtype that is not wide", { ...recipe, dtype: "u8" }, /dtype is "u8"; f32, bf16 or f16 is needed/],
    ["a missing field", { ...recipe, shape: undefined }, /shape is absent/],
    [
      "data of another shape",
      { ...recipe, shape: [64, 32] },
      /tensor "x.rowwise.data": is U8 \[32,32\]; by its recipe it must be U8 \[64,32\]/,
    ],
    [
      "scales that are missing",
      { ...recipe, usage: ["columnwise"] },
      /tensor "x.columnwise.data" is needed and not there/,
    ],
  ])("%s", async (_, recipe, message) => {
    const data = [
      raw("x.rowwise.data", "U8", [32, 32], new Array(1024).fill(0)),
      raw("x.rowwise.scale_inv", "U8", [32, 1], new Array(32).fill(127)),
    ];
    await w.write("in", data, { "lockstep.x": typeof recipe === "string" ? recipe : JSON.stringify(recipe) });
    const { status, stderr } = await w.run("dequantize", "@in", "-o", "@out");
    expect(stderr).toMatch(message);
    expect(stderr.split("\n")).toHaveLength(2);
    expect(status).toBe(2);
    expect(w.names).toEqual(["in"]);
  });
});
