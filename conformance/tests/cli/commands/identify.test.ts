/** The command line: identify, and dequantize --dialect. */
import { describe, expect, it } from "vitest";
import { f32, raw, useWorkspace } from "../../harness/cli.js";

const w = useWorkspace();
const SIZE = [128, 128] as const;
const VALUES = Float32Array.from({ length: SIZE[0] * SIZE[1] }, (_, i) => Math.sin(i) * (64 + (i >> 5)));

describe("identify", () => {
  it.each(["torchao-mxfp4-rceil", "modelopt-nvfp4", "deepseek-fp8-block"])(
    "finds the tensors that quantize wrote for %s, and their dialect",
    async (dialect) => {
      await w.write("in", [f32("x", SIZE, VALUES)]);
      await w.succeed("quantize", "@in", "-o", "@out", "--dialect", dialect);
      const { dialects, excluded } = JSON.parse(await w.succeed("identify", "@in", "@out", "--json"));
      expect(dialects).toContain(dialect);
      const text = await w.succeed("identify", "@in", "@out");
      expect(text).toContain(`not ${excluded[0].dialect}: ${excluded[0].because}`);
    },
  );

  it("reads codes under a library's names, in types of files", async () => {
    // with ties, which dialects round differently
    await w.write("in", [f32("x", SIZE, VALUES.map(Math.round))]);
    await w.succeed(
      "quantize",
      "@in",
      "-o",
      "@out",
      "--dialect",
      "torchao-mxfp4-rceil",
      "--scales",
      "swizzled",
    );
    const { tensors } = await w.read("out");
    const [codes, scales] = [tensors["x.rowwise.data"], tensors["x.rowwise.scale_inv"]];
    await w.write("theirs", [
      raw("layer.weight_packed", "I8", [128, 64], codes?.bytes ?? new Uint8Array()),
      raw("layer.weight_scale", "F8_E8M0", [128, 4], scales?.bytes ?? new Uint8Array()),
    ]);
    const { dialects, readings } = JSON.parse(await w.succeed("identify", "@in", "@theirs", "--json"));
    expect(dialects).toEqual(["torchao-mxfp4-rceil"]);
    expect(readings[0].arrangement).toBe("swizzled");
  });

  it.each([[], ["--four-over-six"]])(
    "names row-scaled NVFP4, with %j, and not the tensor's scale",
    async (...tensors) => {
      await w.write("in", [f32("x", SIZE, VALUES)]);
      await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", "nvfp4", "--row-scaled", ...tensors);
      const { readings, excluded, words } = JSON.parse(await w.succeed("identify", "@in", "@out", "--json"));
      const fourOverSix = tensors.length > 0 ? "mae" : "none";
      expect(readings[0]).toMatchObject({ quantizer: "nvfp4", rowScaled: true, fourOverSix });
      expect(words).toMatch(/^no dialect of the table; row-scaled twoLevel/);
      expect(excluded.find(({ dialect }: { dialect: string }) => dialect === "te").because).toMatch(
        /scales differ/,
      );
    },
  );

  it("reads INT4 as compressed-tensors packs it, beside an amax of another size", async () => {
    await w.write("in", [f32("x", SIZE, VALUES)]);
    await w.succeed("quantize", "@in", "-o", "@out", "--dialect", "ct-int4-group");
    const { tensors } = await w.read("out");
    const codes = tensors["x.rowwise.data"]?.bytes ?? new Uint8Array();
    const scales = tensors["x.rowwise.scale_inv"];
    await w.write("theirs", [
      raw(
        "x.weight_packed",
        "I32",
        [128, 16],
        codes.map((byte) => byte ^ 0x88),
      ),
      raw("x.weight_scale", "F32", scales?.shape ?? [], scales?.bytes ?? new Uint8Array()),
      // the size excludes a tensor scale
      raw("x.input_amax", "F32", [3], new Uint8Array(12)),
    ]);
    const { dialects, readings } = JSON.parse(await w.succeed("identify", "@in", "@theirs", "--json"));
    expect(dialects).toContain("ct-int4-group");
    expect(readings[0].packing).toBe("eight in a word, plus 8");
    const { status, stderr } = await w.run("identify", "@in", "@theirs", "--tensor-scale", "x.weight_packed");
    expect([status, stderr]).toEqual([2, expect.stringMatching(/is I32; give --tensor-scale NAME/)]);
  });

  it("takes the scale of the tensor in BF16, where it is exact", async () => {
    const values = VALUES.map((value, i) => (i === 0 ? 1024 : value));
    await w.write("in", [f32("x", SIZE, values)]);
    await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", "nvfp4");
    const { tensors } = await w.read("out");
    const [codes, scales] = [tensors["x.rowwise.data"], tensors["x.rowwise.scale_inv"]];
    for (const [amax, expected] of [
      [0x4480, ["te"]],
      [0x4400, []],
    ] as const) {
      await w.write("theirs", [
        raw("x.codes", "U8", [128, 64], codes?.bytes ?? new Uint8Array()),
        raw("x.scales", "U8", scales?.shape ?? [], scales?.bytes ?? new Uint8Array()),
        raw("x.amax", "BF16", [1], Uint8Array.of(amax % 256, amax >> 8)),
      ]);
      const { stdout } = await w.run("identify", "@in", "@theirs", "--json");
      expect(JSON.parse(stdout).dialects).toEqual(expected);
    }
  });

  it("has status 1 if no dialect explains the codes, and names the nearest one", async () => {
    await w.write("in", [f32("x", SIZE, VALUES)]);
    await w.write("out", [
      raw("codes", "U8", SIZE, new Uint8Array(128 * 128).fill(7)),
      raw("scales", "U8", [128, 4], new Uint8Array(512).fill(9)),
    ]);
    const { status, stdout } = await w.run("identify", "@in", "@out");
    expect([status, stdout]).toEqual([
      1,
      expect.stringMatching(/^nothing known explains every code and scale; nearest are /),
    ]);
  });

  it("asks for names that it cannot find", async () => {
    await w.write("in", [f32("x", SIZE, VALUES), f32("y", SIZE, VALUES)]);
    const { status, stderr } = await w.run("identify", "@in", "@in");
    expect([status, stderr]).toEqual([2, expect.stringMatching(/give --tensor NAME/)]);
  });
});

describe("dequantize --dialect", () => {
  it("writes the values of the library, and refuses a dialect of another quantizer", async () => {
    await w.write("in", [f32("x", SIZE, VALUES)]);
    await w.succeed("quantize", "@in", "-o", "@out", "--dialect", "ct-nvfp4");
    await w.succeed("dequantize", "@out", "-o", "@own", "--dialect", "ct-nvfp4");
    await w.succeed("dequantize", "@out", "-o", "@plain");
    const [f32Input, plainInput] = [(await w.read("own")).tensors.x, (await w.read("plain")).tensors.x];
    const bits = new Uint32Array((f32Input?.bytes ?? new Uint8Array(4)).slice().buffer);
    expect(bits.every((word) => word % 0x10000 === 0)).toBe(true);
    expect(f32Input?.bytes).not.toEqual(plainInput?.bytes);
    const { status, stderr } = await w.run("dequantize", "@out", "-o", "@no", "--dialect", "ct-mxfp8");
    expect([status, stderr]).toEqual([
      2,
      expect.stringMatching(/the dialect ct-mxfp8 has no quantizer nvfp4/),
    ]);
  });
});
