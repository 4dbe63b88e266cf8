/** The command line: gemm with operands of every form, and the calls that it refuses. */
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type FileTensor, f32, floats, ramp, raw, useWorkspace } from "../../harness/cli.js";

const w = useWorkspace();

/** Pseudorandom finite codes of an 8-bit format, the same in every run. */
function codes(
  name: string,
  shape: readonly [number, number],
  seed = 1,
  dtype: FileTensor["dtype"] = "F8_E4M3",
): FileTensor {
  const count = shape[0] * shape[1];
  return raw(
    name,
    dtype,
    shape,
    Array.from({ length: count }, (_, i) => (Math.imul(i + seed, 0x9e3779b1) >>> 24) & 0xf7),
  );
}

async function product(
  tensors: readonly FileTensor[],
  ...options: string[]
): Promise<Record<string, FileTensor>> {
  await w.write("in", tensors);
  await w.succeed("gemm", "@in", "-o", "@out", ...options);
  return (await w.read("out")).tensors;
}

const A = f32("a", [2, 3], [1, 2, 3, 4, 5, 6]);
const B = f32("b", [4, 3], [1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, -1]);

describe("gemm", () => {
  it("writes d[i][j], the sum over k of a[i][k] * b[j][k], F32 [M,N]", async () => {
    const { d: result, ...otherTensors } = await product([A, B], "--datapath", "exact");
    expect(result).toEqual(f32("d", [2, 4], [1, 2, 3, 0, 4, 5, 6, 3]));
    expect(otherTensors).toEqual({});
  });

  it("applies alpha, beta with c, and bias", async () => {
    const c = f32("c", [2, 4], [1, 1, 1, 1, 2, 2, 2, 2]);
    const bias = raw("bias", "BF16", [4], [0, 0, 0x80, 0x3f, 0, 0x40, 0, 0]);
    const options = ["--datapath", "fp32", "--alpha", "-2", "--beta", "10", "--bias"];
    const { d: result } = await product([A, B, c, bias], ...options);
    expect([...floats(result!)]).toEqual([8, 7, 6, 10, 12, 11, 10, 14]);
    const { d: resultWithoutBeta } = await product([A, B, c, bias], "--datapath", "fp32", "--alpha", "-2");
    expect([...floats(resultWithoutBeta!)]).toEqual([-2, -4, -6, 0, -8, -10, -12, -6]);
  });

  it("writes 8-bit outputs of d times the scale, and d.amax before it", async () => {
    const { d: result, ...otherTensors } = await product(
      [A, B],
      "--datapath",
      "exact",
      "--out-dtype",
      "e5m2",
      "--out-scale",
      "0.5",
    );
    expect(result).toEqual(raw("d", "F8_E5M2", [2, 4], [0x38, 0x3c, 0x3e, 0, 0x40, 0x41, 0x42, 0x3e]));
    expect(otherTensors).toEqual({ "d.amax": f32("d.amax", [1], [6]) });
    expect((await product([A, B], "--datapath", "exact", "--out-dtype", "bf16")).d).toMatchObject({
      dtype: "BF16",
    });
  });

  it("reads operands from several files, and flattens leading dimensions, also if there are none", async () => {
    await w.write("one", [{ ...A, shape: [2, 1, 3] }]);
    await w.write("two", [B]);
    await w.succeed("gemm", "@one", "@two", "-o", "@out", "--datapath", "exact");
    expect((await w.read("out")).tensors.d?.shape).toEqual([2, 4]);
    expect((await product([codes("a", [0, 32]), codes("b", [3, 32])])).d).toEqual(f32("d", [0, 3], []));
    expect((await product([codes("a", [2, 0]), codes("b", [1, 0])])).d).toEqual(f32("d", [2, 1], [0, 0]));
  });

  it("multiplies by per-tensor scales of plain operands", async () => {
    const tensors = [codes("a", [5, 64]), codes("b", [7, 64], 9, "F8_E5M2")];
    const { d: result } = await product(tensors, "--datapath", "exact");
    const scaledResults = await product(
      [...tensors, f32("a.scale_inv", [1], [4]), f32("b.scale_inv", [1], [0.5])],
      "--datapath",
      "exact",
    );
    expect(floats(scaledResults.d!)).toEqual(floats(result!).map((x) => 2 * x));
  });

  it.each(["fp8-current", "fp8-block --no-pow2-scales", "mxfp8 --format e5m2", "mxfp4", "nvfp4"])(
    "multiplies what quantize --quantizer %s wrote, whatever the layout of its scales and the threads",
    async (options) => {
      await w.write("in", [f32("a", [160, 256], ramp(160 * 256)), f32("b", [96, 256], ramp(96 * 256, 5))]);
      const layouts = options.startsWith("fp8") ? ["logical", "padded"] : ["logical", "padded", "swizzled"];
      for (const layout of layouts) {
        await w.succeed(
          "quantize",
          "@in",
          "-o",
          "@q",
          "--quantizer",
          ...options.split(" "),
          "--scales",
          layout,
        );
        await w.succeed("gemm", "@q", "-o", `@${layout}`, "--threads", layout === "logical" ? "1" : "2");
        expect((await w.run("compare", "@logical", `@${layout}`)).stdout).toMatch("1 of 1 tensors equal");
      }
      await w.succeed("dequantize", "@q", "-o", "@values");
      await w.succeed("gemm", "@values", "-o", "@exact", "--datapath", "exact");
      const [result, exact] = [(await w.read("logical")).tensors.d!, (await w.read("exact")).tensors.d!];
      expect(result.shape).toEqual([160, 96]);
      const [actual, expected] = [floats(result), floats(exact)];
      const size = Math.max(...expected.map(Math.abs));
      expect(Math.max(...actual.map((x, i) => Math.abs(x - expected[i]!))) / size).toBeLessThan(0.01);
    },
  );

  it("takes the block of plain scales from their shape, 1x128 where both shapes are the same, and from metadata", async () => {
    const b = [codes("b", [130, 256]), f32("b.scale_inv", [2, 2], [1, 2, 4, 8])];
    const a = [codes("a", [1, 256]), f32("a.scale_inv", [1, 2], [1, 0.5])];
    const { d: result } = await product([...a, ...b]);
    expect(result?.shape).toEqual([1, 130]);
    const recipe = {
      quantizer: "fp8-block",
      format: "e4m3",
      tile: "128x128",
      shape: [1, 256],
      dtype: "f32",
      scales: "logical",
      usage: ["rowwise"],
    };
    await w.write("in", [...a, ...b], { "lockstep.a": JSON.stringify(recipe) });
    const { status, stderr } = await w.run("gemm", "@in", "-o", "@out");
    expect(status).toBe(2);
    expect(stderr).toMatch(
      /tensor "a": is F8_E4M3 \[1,256\] with scales F32 \[1,2\], scaled per 128x128; only "b" may be/,
    );
  });

  it("prints the plan, and accepts it as input", async () => {
    await w.write("in", [codes("a", [16, 512]), codes("b", [16, 512], 3)]);
    const output = await w.succeed(
      "gemm",
      "@in",
      "-o",
      "@one",
      "--split-accumulator",
      "--split-k",
      "3",
      "--print-plan",
    );
    expect(JSON.parse(output)).toEqual({ datapath: "hopper-fp8", splitAccumulator: true, splitK: 3 });
    writeFileSync(w.path("plan"), output);
    await w.succeed("gemm", "@in", "-o", "@two", "--plan", "@plan");
    expect((await w.run("compare", "@one", "@two")).status).toBe(0);
    await w.succeed("gemm", "@in", "-o", "@three");
    expect((await w.run("compare", "@one", "@three")).status).toBe(1);
  });
});

describe("gemm exits 2 with one line about the mismatch,", () => {
  const E = codes("a", [128, 256]);
  const F = codes("b", [128, 256]);
  const scale = (name: string, shape: readonly number[]): FileTensor =>
    f32(name, shape, new Array(shape.reduce((x, y) => x * y, 1)).fill(1));
  it.each<[string, readonly FileTensor[], string, RegExp]>([
    ["without b", [A], "", /tensor "b" is needed and not there; give "b", or "b.rowwise.data"/],
    [
      "for a plain and quantized at once",
      [A, B, raw("a.rowwise.data", "U8", [1], [0])],
      "",
      /both "a" .* and "a.rowwise.data"/,
    ],
    [
      "for quantized data of no known recipe",
      [B, raw("a.rowwise.data", "U8", [1], [0])],
      "",
      /tensor "a.rowwise.data": metadata lockstep.a are needed/,
    ],
    [
      "for a of a type that is not multiplied",
      [raw("a", "U8", [1, 3], [1, 2, 3]), B],
      "",
      /tensor "a": is U8 \[1,3\]; it must be F8_E4M3, F8_E5M2, BF16, F16 or F32/,
    ],
    [
      "for other K",
      [A, f32("b", [1, 4], [1, 2, 3, 4])],
      "",
      /"a" and "b": are F32 \[2,3\] and F32 \[1,4\]; their last dimensions must be equal/,
    ],
    [
      "for F32 on tensor cores",
      [A, B],
      "",
      /datapath hopper does not multiply f32.*tensors "a" and "b" are F32 \[2,3\] and F32 \[4,3\]/,
    ],
    [
      "for types that do not pair",
      [E, f32("b", [4, 256], new Array(1024).fill(0))],
      "",
      /does not multiply e4m3 by f32.*F8_E4M3 \[128,256\]/,
    ],
    [
      "for scales of F32 values",
      [A, B, scale("a.scale_inv", [1])],
      "",
      /tensor "a": is F32 \[2,3\] and has "a.scale_inv"/,
    ],
    [
      "for scales of another shape",
      [E, F, scale("a.scale_inv", [3, 2])],
      "",
      /"a.scale_inv": is F32 \[3,2\]; it must be F32 \[1\] for tensor|it must be F32 \[1\]/,
    ],
    [
      "for 128x128 on a alone",
      [E, F, scale("a.scale_inv", [1, 2]), scale("b.scale_inv", [128, 2])],
      "",
      /tensor "a".*scaled per 128x128; only "b" may be/,
    ],
    [
      "for 128x128 on both",
      [E, F, scale("a.scale_inv", [1, 2]), scale("b.scale_inv", [1, 2])],
      "--datapath exact",
      /tensor "a".*scaled per 128x128/,
    ],
    [
      "for beta without c",
      [A, B],
      "--datapath exact --beta 1",
      /tensor "c" is needed and not there; --beta multiplies it/,
    ],
    [
      "for c of another shape",
      [A, B, f32("c", [4, 2], new Array(8).fill(0))],
      "--datapath exact --beta 1",
      /tensor "c": is F32 \[4,2\]; it must be F32, BF16 or F16 \[2,4\]/,
    ],
    [
      "for bias of another shape",
      [A, B, f32("bias", [2], [0, 0])],
      "--datapath exact --bias",
      /tensor "bias": is F32 \[2\]; it must be .* \[4\]/,
    ],
    ["for more splits than tiles", [E, F], "--split-k 3", /splitK is 3 and K 256 has 2 tiles of 128/],
    [
      "for an output type that there is not",
      [A, B],
      "--out-dtype e2m1",
      /--out-dtype: "e2m1" is not one of f32, bf16, f16, e4m3, e5m2/,
    ],
    ["for a plan beside what it plans", [E, F], "--plan @plan --split-k 2", /--split-k is part of the plan/],
    ["for a plan of other operands", [A, B], "--plan @plan", /./],
    ["for a plan that is none", [E, F], "--plan @in", /in: is not valid JSON/],
    ["for a plan that is not there", [E, F], "--plan @none", /none: cannot be read: there is no such file/],
  ])("%s", async (_, tensors, options, message) => {
    await w.write("in", tensors);
    writeFileSync(
      w.path("plan"),
      JSON.stringify({ datapath: "hopper-fp8", splitAccumulator: false, splitK: 1 }),
    );
    const { status, stderr, stdout } = await w.run(
      "gemm",
      "@in",
      "-o",
      "@out",
      ...options.split(" ").filter(Boolean),
    );
    expect(stderr).toMatch(message);
    expect(stderr).toMatch(/^lockstep gemm: (?!.*gemm: )[^\n]*\n$/);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(w.names).toEqual(["in", "plan"]);
  });

  it("for a tensor in two of its files", async () => {
    await w.write("one", [A, B]);
    await w.write("two", [A]);
    const { status, stderr } = await w.run("gemm", "@one", "@two", "-o", "@out");
    expect(status).toBe(2);
    expect(stderr).toMatch(/tensor "a": \S+one and \S+two both have it/);
  });
});
