/** The command line: the files that quantize writes. */
import { describe, expect, it } from "vitest";
import { DIRECTIONS } from "../../../../src/tensor/quantized.js";
import { type FileContents, f32, floats, ramp, raw, useWorkspace } from "../../harness/cli.js";

const w = useWorkspace();

const BOTH = ["--usage", DIRECTIONS.join()];
const [M, K] = [160, 192];

/** Type and shape of each tensor. */
function layoutOf({ tensors }: FileContents): Record<string, string> {
  return Object.fromEntries(
    Object.values(tensors).map(({ name, dtype, shape }) => [name.replace(/^x\./, ""), `${dtype} ${shape}`]),
  );
}

const FP4 = "U8 160,96";

/**
 * For each quantizer: the types and shapes of the rowwise data and scales, then of the columnwise data and scales (cli.md's
 * table), with M 160 and K 192.
 */
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
  ["nvfp4 --row-scaled", FP4, "U8 160,12", "U8 192,80", "U8 192,10"],
  ["nvfp4 --four-over-six", FP4, "U8 160,12", "U8 192,80", "U8 192,10"],
];

/** The additional tensors of some quantizers. */
function amaxesOf(options: string): Record<string, string> {
  if (options.includes("--row-scaled")) return { "rowwise.amax": `F32 ${M}`, "columnwise.amax": `F32 ${K}` };
  if (options.startsWith("nvfp4")) return { "rowwise.amax": "F32 1", "columnwise.amax": "F32 1" };
  return options.startsWith("fp8-delayed") ? { amax: "F32 1" } : {};
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

  it("swizzles scales of mxfp8 and nvfp4 so that dequantize sees the same", async () => {
    await w.write("in", [f32("x", [M, K], ramp(M * K))]);
    for (const quantizer of ["mxfp8", "mxfp4", "nvfp4"]) {
      for (const usage of DIRECTIONS) {
        const args = ["quantize", "@in", "--quantizer", quantizer, "--usage", usage];
        await w.succeed(...args, "-o", "@logical");
        await w.succeed(...args, "--scales", "swizzled", "-o", "@swizzled");
        await w.succeed("dequantize", "@logical", "-o", "@a");
        await w.succeed("dequantize", "@swizzled", "-o", "@b");
        expect(await w.succeed("compare", "@a", "@b")).toMatch("1 of 1 tensors equal");
      }
    }
  });

  it("the metadata have the options of each tensor, and only those that apply", async () => {
    await w.write("in", [f32("x", [32, 64], ramp(2048)), f32("y.z", [64], ramp(64))], { note: "kept" });
    const recipes = async (...options: string[]): Promise<unknown[]> => {
      await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", ...options);
      const {
        "lockstep.x": x = "",
        "lockstep.y.z": y = "",
        ...otherMetadata
      } = (await w.read("out")).metadata;
      expect(otherMetadata).toEqual({ note: "kept" });
      return [JSON.parse(x), JSON.parse(y)];
    };
    const commonFields = {
      backend: "wasm",
      version: "0.1.0",
      scales: "logical",
      usage: ["rowwise"],
      dtype: "f32",
    };
    const block = {
      quantizer: "fp8-block",
      format: "e5m2",
      tile: "1x128",
      pow2Scales: true,
      epsilon: 0.5,
      ...commonFields,
    };
    expect(await recipes("fp8-block", "--format", "e5m2", "--amax-epsilon", "0.5")).toEqual([
      { ...block, shape: [32, 64] },
      { ...block, shape: [64] },
    ]);
    await w.write("in", [f32("x", [32, 64], ramp(2048)), f32("y.z", [32, 32], ramp(1024))], { note: "kept" });
    const [mx] = await recipes("mxfp8");
    expect(mx).toEqual({
      quantizer: "mxfp8",
      format: "e4m3",
      tile: "1x32",
      ...commonFields,
      shape: [32, 64],
    });
    const [nv] = await recipes("nvfp4", "--four-over-six");
    const flags = { rht: false, stochastic: false, fourOverSix: true, e4m3Max: 256 };
    expect(nv).toEqual({
      quantizer: "nvfp4",
      format: "e2m1",
      tile: "1x16",
      ...flags,
      ...commonFields,
      shape: [32, 64],
    });
    const squaredErrorRecipes = await recipes(
      "nvfp4",
      "--four-over-six",
      "--err-mode",
      "mse",
      "--e4m3-max",
      "448",
    );
    expect(squaredErrorRecipes[0]).toMatchObject({ fourOverSix: "mse", e4m3Max: 448 });
    expect((await recipes("nvfp4", "--row-scaled"))[0]).toMatchObject({
      quantizer: "nvfp4",
      rowScaled: true,
    });
    const [currentRecipe] = await recipes("fp8-current");
    expect(currentRecipe).toMatchObject({ quantizer: "fp8-current", pow2Scales: false, epsilon: 0 });
    expect(currentRecipe).not.toHaveProperty("tile");
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
    await w.succeed("quantize", "@in", "-o", "@e", "--quantizer", "fp8-current", "--amax-epsilon", "448");
    expect(floats((await w.read("e")).tensors["x.rowwise.scale_inv"]!)).toEqual(Float32Array.of(1));
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

  it("rounds by random bits of the file, as explain and encode do, and names those that are missing", async () => {
    const bits = (name: string, word: number) =>
      raw(name, "U32", [32, 32], new Uint8Array(new Uint32Array(1024).fill(word).buffer));
    const file = (word: number) => [
      f32("x", [32, 32], ramp(1024)),
      bits("x.random_bits", word),
      bits("x.random_bits_columnwise", word),
    ];
    const args = ["--quantizer", "mxfp8", "--stochastic", "--random-bits"];
    const write = async (name: string, word: number) => {
      await w.write(name, file(word));
      await w.succeed("quantize", `@${name}`, ...args, "--usage", "rowwise,columnwise", "-o", "@q");
      await w.succeed("encode", `@${name}`, "-o", "@e", "--format", "e2m1", ...RANDOM_ENCODING);
      const { tensors } = await w.read("q");
      return [
        tensors["x.rowwise.data"],
        tensors["x.columnwise.data"],
        (await w.read("e")).tensors.x,
      ] as const;
    };
    const [roundedDown, roundedUp] = [await write("down", 0), await write("up", 0xffffffff)];
    for (const [i, tensor] of roundedUp.entries()) expect(tensor?.bytes).not.toEqual(roundedDown[i]?.bytes);
    const explainArgs = ["explain", "@up", "--tensor", "x", "--at", "1,2", ...args, "--json"];
    const { explanation } = JSON.parse(await w.succeed(...explainArgs));
    expect(explanation.code).toBe(roundedUp[0]?.bytes[34]);
    expect(explanation.rounding.random).toMatchObject({ bits: 0xffffffff, width: 32 });
    await w.write("lacking", [f32("x", [32, 32], ramp(1024))]);
    const { status, stderr } = await w.run("quantize", "@lacking", ...args, "-o", "@none");
    expect({ status, named: /x\.random_bits/.test(stderr) }).toEqual({ status: 2, named: true });
  });
});

const RANDOM_ENCODING = ["--rounding", "stochastic", "--random-bits"];

describe("quantize of a file that quantize wrote", () => {
  const QUANTIZERS = [
    ["fp8-current", "x.rowwise.scale_inv"],
    ["fp8-delayed", "x.rowwise.scale_inv"],
    ["nvfp4", "x.rowwise.amax"],
  ] as const;

  it.each(QUANTIZERS)("%s: refuses its parts, and leaves no file", async (quantizer, part) => {
    await w.write("in", [f32("x", [32, 32], ramp(1024)), f32("y", [32, 32], ramp(1024))]);
    await w.succeed("quantize", "@in", "-o", "@once", "--quantizer", quantizer, "--tensors", "x");
    const quantizeArgs = ["quantize", "@once", "-o", "@twice", "--quantizer", "mxfp8"];
    const encodeRun = await w.run("encode", "@once", "-o", "@twice", "--format", "e4m3");
    expect(encodeRun).toMatchObject({ status: 2, stdout: "" });
    expect(encodeRun.stderr).toMatch(/belongs to "x".*; dequantize the file first\n$/);
    for (const tensors of [[], ["--tensors", `y,${part}`]]) {
      const { status, stdout, stderr } = await w.run(...quantizeArgs, ...tensors);
      expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
      expect(stderr).toBe(
        `lockstep quantize: tensor "${part}": belongs to "x", which is quantized already (metadata lockstep.x); leave it out by --tensors, or dequantize the file first\n`,
      );
    }
    expect(w.names).toEqual(["in", "once"]);
  });

  it("quantizes the tensors that --tensors chooses, also in a file whose other tensors are quantized already", async () => {
    await w.write("in", [f32("x", [32, 32], ramp(1024)), f32("y", [32, 32], ramp(1024))]);
    await w.succeed("quantize", "@in", "-o", "@x", "--quantizer", "fp8-delayed", "--tensors", "x");
    await w.succeed("quantize", "@x", "-o", "@xy", "--quantizer", "fp8-delayed", "--tensors", "y");
    await w.succeed("quantize", "@in", "-o", "@both", "--quantizer", "fp8-delayed");
    expect(await w.succeed("compare", "@xy", "@both")).toBe("6 of 6 tensors equal\n");
    expect((await w.read("xy")).metadata).toEqual((await w.read("both")).metadata);
  });

  it("copies the file unchanged if none of its parts is f32, bf16 or f16", async () => {
    await w.write("in", [f32("x", [32, 32], ramp(1024))]);
    await w.succeed("quantize", "@in", "-o", "@once", "--quantizer", "mxfp8");
    await w.succeed("quantize", "@once", "-o", "@twice", "--quantizer", "fp8-current");
    expect(await w.read("twice")).toEqual(await w.read("once"));
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

  it("transforms BF16 tensors columnwise, and not rowwise", async () => {
    await w.write("in", [bf16("x")]);
    await w.succeed("quantize", "@in", "-o", "@plain", "--quantizer", "nvfp4", ...BOTH);
    await w.succeed("quantize", "@in", "-o", "@rht", "--quantizer", "nvfp4", "--rht", ...BOTH);
    const { stdout } = await w.run("compare", "@plain", "@rht", "--json");
    const { tensors } = JSON.parse(stdout) as { tensors: { name: string; status: string }[] };
    const status = Object.fromEntries(tensors.map((tensor) => [tensor.name, tensor.status]));
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
    expect(stderr).toMatch(
      /^lockstep quantize: tensor "y": the random Hadamard transform takes bf16 input; x is f32/,
    );
    expect(w.names).toEqual(["in"]);
  });
});
