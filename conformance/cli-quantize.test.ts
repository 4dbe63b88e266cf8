/** The command line: what quantize writes, and what dequantize makes of it. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Backend } from "../src/backends/backend.js";
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
} from "../src/index.js";
import { type FileContents, f32, floats, ramp, raw, Workspace } from "./harness/cli.js";
import { liveAtClose } from "./harness/live-at-close.js";

vi.mock("../src/backends/open.js", async (original) => {
  const { recordingOpen } = await import("./harness/live-at-close.js");
  return recordingOpen(await original());
});

let w: Workspace;
beforeEach(() => {
  w = new Workspace();
});
afterEach(() => {
  w[Symbol.dispose]();
  expect(liveAtClose.splice(0).filter((bytes) => bytes > 0)).toEqual([]);
});

const BOTH = ["--usage", "rowwise,columnwise"];
const [M, K] = [160, 192];

/** Type and shape of each tensor. */
function layoutOf({ tensors }: FileContents): Record<string, string> {
  return Object.fromEntries(
    Object.values(tensors).map(({ name, dtype, shape }) => [name.replace(/^x\./, ""), `${dtype} ${shape}`]),
  );
}

const FP4 = "U8 160,96";

/** By quantizer options: rowwise data and scales, then columnwise ones (cli.md's table), with M 160 and K 192. */
const LAYOUTS: readonly (readonly [
  options: string,
  ...tensors: readonly [string, string, string, string],
])[] = [
  ["fp8-current", "U8 160,192", "F32 1", "U8 192,160", "F32 1"],
  ["fp8-delayed --scale 2", "U8 160,192", "F32 1", "U8 192,160", "F32 1"],
  ["fp8-block", "U8 160,192", "F32 160,2", "U8 192,160", "F32 192,2"],
  ["fp8-block --tile 128x128", "U8 160,192", "F32 2,2", "U8 192,160", "F32 2,2"],
  ["mxfp8", "U8 160,192", "U8 160,6", "U8 160,192", "U8 5,192"],
  ["mxfp8 --tile 32x32 --format e5m2", "U8 160,192", "U8 160,6", "U8 160,192", "U8 5,192"],
  ["mxfp6 --format e3m2", "U8 160,192", "U8 160,6", "U8 160,192", "U8 5,192"],
  ["mxfp4", FP4, "U8 160,6", "U8 192,80", "U8 5,192"],
  ["nvfp4", FP4, "U8 160,12", "U8 192,80", "U8 192,10"],
  ["nvfp4 --tile 16x16", FP4, "U8 160,12", "U8 192,80", "U8 192,10"],
  ["nvfp4 --four-over-six", FP4, "U8 160,12", "U8 192,80", "U8 192,10"],
];

/** What some quantizers write besides. */
function amaxesOf(options: string): Record<string, string> {
  if (options.startsWith("nvfp4")) return { "rowwise.amax": "F32 1", "columnwise.amax": "F32 1" };
  return options.startsWith("fp8-delayed") ? { amax: "F32 1" } : {};
}

type Make = (backend: Backend) => Quantizer;

/** The same by the library, which the suites of its operations hold to the oracles. */
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
  [
    "nvfp4 --stochastic --seed 9 --offset 4",
    () => new NVFP4Quantizer({ stochastic: true, random: new RandomState(9n, 4n) }),
  ],
];

async function byLibrary(make: Make, values: Float32Array): Promise<Float32Array> {
  const backend = await openBackend("wasm", { threads: 1 });
  try {
    using _scope = new Scope();
    const quantized = make(backend).quantize(tensor(backend, values, [2, M / 2, K]));
    return Float32Array.from(dequantize(quantized, "f32").dataSync());
  } finally {
    await backend.dispose();
  }
}

describe("quantize", () => {
  it.each(LAYOUTS)(
    "--quantizer %s writes the tensors of the contract",
    async (options, row, rowScale, column, columnScale) => {
      await w.write("in", [f32("x", [2, M / 2, K], ramp(M * K))]);
      await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", ...options.split(" "), ...BOTH);
      expect(layoutOf(await w.read("out"))).toEqual({
        "rowwise.data": row,
        "rowwise.scale_inv": rowScale,
        "columnwise.data": column,
        "columnwise.scale_inv": columnScale,
        ...amaxesOf(options),
      });
    },
  );

  it.each(QUANTIZERS)(
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
      const expected = await byLibrary(make, values);
      for (const name of ["fromA", "fromB"]) {
        const { tensors, metadata } = await w.read(name);
        expect({ ...metadata }).toEqual({});
        expect(tensors).toEqual({ x: f32("x", [2, M / 2, K], expected) });
      }
    },
  );

  it("swizzles scales of mxfp8 and nvfp4 so that dequantize sees the same", async () => {
    await w.write("in", [f32("x", [M, K], ramp(M * K))]);
    for (const quantizer of ["mxfp8", "mxfp4", "nvfp4"]) {
      for (const usage of ["rowwise", "columnwise"]) {
        const args = ["quantize", "@in", "--quantizer", quantizer, "--usage", usage];
        await w.succeed(...args, "-o", "@logical");
        await w.succeed(...args, "--scales", "swizzled", "-o", "@swizzled");
        await w.succeed("dequantize", "@logical", "-o", "@a");
        await w.succeed("dequantize", "@swizzled", "-o", "@b");
        expect(await w.succeed("compare", "@a", "@b")).toMatch("1 of 1 tensors equal");
      }
    }
  });

  it("says in the metadata how each tensor was made, and only what applies", async () => {
    await w.write("in", [f32("x", [32, 64], ramp(2048)), f32("y.z", [64], ramp(64))], { note: "kept" });
    const recipes = async (...options: string[]): Promise<unknown[]> => {
      await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", ...options);
      const { "lockstep.x": x = "", "lockstep.y.z": y = "", ...rest } = (await w.read("out")).metadata;
      expect(rest).toEqual({ note: "kept" });
      return [JSON.parse(x), JSON.parse(y)];
    };
    const made = { backend: "wasm", version: "0.1.0", scales: "logical", usage: ["rowwise"], dtype: "f32" };
    const block = {
      quantizer: "fp8-block",
      format: "e5m2",
      tile: "1x128",
      pow2Scales: true,
      epsilon: 0.5,
      ...made,
    };
    expect(await recipes("fp8-block", "--format", "e5m2", "--epsilon", "0.5")).toEqual([
      { ...block, shape: [32, 64] },
      { ...block, shape: [64] },
    ]);
    await w.write("in", [f32("x", [32, 64], ramp(2048)), f32("y.z", [32, 32], ramp(1024))], { note: "kept" });
    const [mx] = await recipes("mxfp8");
    expect(mx).toEqual({ quantizer: "mxfp8", format: "e4m3", tile: "1x32", ...made, shape: [32, 64] });
    const [nv] = await recipes("nvfp4", "--four-over-six");
    const flags = { rht: false, stochastic: false, fourOverSix: true, e4m3Max: 256 };
    expect(nv).toEqual({
      quantizer: "nvfp4",
      format: "e2m1",
      tile: "1x16",
      ...flags,
      ...made,
      shape: [32, 64],
    });
    const [current] = await recipes("fp8-current");
    expect(current).toMatchObject({ quantizer: "fp8-current", pow2Scales: false, epsilon: 0 });
    expect(current).not.toHaveProperty("tile");
  });

  it("leaves integers and tensors not asked for as they are", async () => {
    const others = [raw("n", "I64", [1], [1, 2, 3, 4, 5, 6, 7, 8]), f32("y", [3, 5], ramp(15))];
    await w.write("in", [f32("x", [32, 32], ramp(1024)), ...others]);
    await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", "mxfp8", "--tensors", "x");
    const { tensors } = await w.read("out");
    expect(Object.keys(tensors).toSorted()).toEqual(["n", "x.rowwise.data", "x.rowwise.scale_inv", "y"]);
    expect([tensors.n, tensors.y]).toEqual(others);
    await w.succeed("dequantize", "@out", "-o", "@back", "--dtype", "bf16");
    const back = (await w.read("back")).tensors;
    expect(Object.keys(back).toSorted()).toEqual(["n", "x", "y"]);
    expect(back.x).toMatchObject({ dtype: "BF16", shape: [32, 32] });
    expect(back.y).toEqual(others[1]);
  });

  it.each(["fp8-current", "fp8-delayed", "fp8-block", "mxfp8", "mxfp4", "nvfp4"])(
    "%s takes tensors without elements",
    async (quantizer) => {
      await w.write("in", [f32("wide", [0, 64], []), f32("tall", [3, 32, 0], [])]);
      await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", quantizer, ...BOTH);
      await w.succeed("dequantize", "@out", "-o", "@back");
      expect(await w.succeed("compare", "@in", "@back")).toMatch("2 of 2 tensors equal");
    },
  );

  it("records fp8-delayed's amax and applies its scale; epsilon bounds fp8-current's amax", async () => {
    await w.write("in", [f32("x", [1, 3], [0.5, -3, 1])]);
    await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", "fp8-delayed", "--scale", "4");
    const { tensors } = await w.read("out");
    expect(floats(tensors["x.amax"]!)).toEqual(Float32Array.of(3));
    expect(floats(tensors["x.rowwise.scale_inv"]!)).toEqual(Float32Array.of(0.25));
    expect([...tensors["x.rowwise.data"]!.bytes]).toEqual([0x40, 0xd4, 0x48]);
    await w.succeed("quantize", "@in", "-o", "@e", "--quantizer", "fp8-current", "--epsilon", "448");
    expect(floats((await w.read("e")).tensors["x.rowwise.scale_inv"]!)).toEqual(Float32Array.of(1));
  });

  it("dequantizes columnwise copies where the rowwise ones are gone", async () => {
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

  it("restarts the random words with each tensor, and follows seed and offset", async () => {
    await w.write("in", [f32("x", [32, 32], ramp(1024)), f32("y", [32, 32], ramp(1024))]);
    const args = ["quantize", "@in", "--quantizer", "nvfp4", "--stochastic", "--seed", "7"];
    await w.succeed(...args, "-o", "@a");
    await w.succeed(...args, "-o", "@b", "--offset", "1", "--threads", "1");
    const [a, b] = [(await w.read("a")).tensors, (await w.read("b")).tensors];
    expect(a["x.rowwise.data"]?.bytes).toEqual(a["y.rowwise.data"]?.bytes);
    expect(a["x.rowwise.data"]?.bytes).not.toEqual(b["x.rowwise.data"]?.bytes);
  });
});

describe("quantize --rht", () => {
  const bf16 = (name: string) =>
    raw(
      name,
      "BF16",
      [32, 32],
      new Array(2048).fill(0).map((_, i) => (i % 2 === 0 ? i : 0x3f)),
    );

  it("transforms BF16 tensors columnwise, and nothing rowwise", async () => {
    await w.write("in", [bf16("x")]);
    await w.succeed("quantize", "@in", "-o", "@plain", "--quantizer", "nvfp4", ...BOTH);
    await w.succeed("quantize", "@in", "-o", "@rht", "--quantizer", "nvfp4", "--rht", ...BOTH);
    const { stdout } = await w.run("compare", "@plain", "@rht", "--json");
    const { tensors } = JSON.parse(stdout) as { tensors: { name: string; status: string }[] };
    const status = Object.fromEntries(tensors.map((each) => [each.name, each.status]));
    expect(status["x.rowwise.data"]).toBe("equal");
    expect(status["x.columnwise.data"]).toBe("different");
  });

  it("refuses an F32 tensor by name", async () => {
    await w.write("in", [bf16("x"), f32("y", [32, 32], ramp(1024))]);
    const { status, stderr } = await w.run(
      "quantize",
      "@in",
      "-o",
      "@out",
      "--quantizer",
      "nvfp4",
      "--rht",
      ...BOTH,
    );
    expect(status).toBe(2);
    expect(stderr).toMatch(/tensor "y": quantize: the random Hadamard transform takes bf16 input; x is f32/);
    expect(w.names).toEqual(["in"]);
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
  ])("%s", async (_, recipe, says) => {
    const data = [
      raw("x.rowwise.data", "U8", [32, 32], new Array(1024).fill(0)),
      raw("x.rowwise.scale_inv", "U8", [32, 1], new Array(32).fill(127)),
    ];
    await w.write("in", data, { "lockstep.x": typeof recipe === "string" ? recipe : JSON.stringify(recipe) });
    const { status, stderr } = await w.run("dequantize", "@in", "-o", "@out");
    expect(stderr).toMatch(says);
    expect(stderr.split("\n")).toHaveLength(2);
    expect(status).toBe(2);
    expect(w.names).toEqual(["in"]);
  });
});
