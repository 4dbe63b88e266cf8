/** The command line: explain. */
import { describe, expect, it } from "vitest";
import { f32, raw, useWorkspace } from "../../harness/cli.js";

const w = useWorkspace();

/** 32 rows of 64: the first block has an exact tie of e4m3 under the scale 1; the rest are small. */
const VALUES = Float32Array.from({ length: 2048 }, (_, i) =>
  i === 0 ? 448 : i === 1 ? -1.0625 : (i % 7) / 8,
);
const X = f32("x", [32, 64], VALUES);

describe("explain", () => {
  it("shows the amax, the scale, the exact tie and the even code of an element", async () => {
    await w.write("in", [X]);
    const text = await w.succeed("explain", "@in", "--at", "0,1", "--quantizer", "mxfp8");
    expect(text).toMatch("amax of rows 0 to 0, columns 0 to 31 = 448 at [0,0]\n");
    expect(text).toMatch("stored as e8m0 0x7f = 1, index 0\n");
    expect(text).toMatch("an exact tie\n");
    expect(text).toMatch("tie: down to the even code: code 0xb8 = -1\n");
    const json = JSON.parse(
      await w.succeed("explain", "@in", "--at", "0,1", "--quantizer", "mxfp8", "--json"),
    ) as {
      readonly text: readonly string[];
      readonly explanation: { readonly code: number; readonly rounding: { readonly tie: boolean } };
    };
    expect(json.explanation).toMatchObject({ code: 0xb8, rounding: { tie: true } });
    expect(`${json.text.join("\n")}\n`).toBe(text);
  });

  it("shows each step of a product and the products of a step that is asked for, and gives the bits of gemm", async () => {
    const w2 = f32(
      "w",
      [32, 64],
      VALUES.map((value, i) => value + (i % 5)),
    );
    await w.write("in", [X, w2]);
    await w.succeed("quantize", "@in", "-o", "@q", "--quantizer", "mxfp8");
    await w.succeed("gemm", "@q", "-o", "@d", "--out-dtype", "bf16");
    const explainArgs = ["explain", "@q", "--op", "gemm", "--at", "3,5", "--out-dtype", "bf16"] as const;
    const { explanation } = JSON.parse(await w.succeed(...explainArgs, "--json")) as {
      readonly explanation: { readonly out: { readonly code: number } };
    };
    const product = (await w.read("d")).tensors.d?.bytes ?? new Uint8Array();
    expect(explanation.out.code).toBe(
      new DataView(product.buffer, product.byteOffset).getUint16((3 * 32 + 5) * 2, true),
    );
    const text = await w.succeed(...explainArgs, "--products", "17");
    expect(text.split("\n").filter((line) => line.startsWith("  k "))).toHaveLength(4);
    expect(text.split("\n").filter((line) => line.startsWith("    k "))).toHaveLength(16);
  });

  it.each([
    [["--at", "32,0"], /at is \[32, 0\]|at is \[32,0\]; index 0 must be a whole number from 0 to 31/],
    [["--at", "1"], /1 indices for 2 dimensions/],
    [["--at", "1,2,3"], /3 indices for 2 dimensions/],
    [["--at", "1,x"], /"x" is not an integer from 0/],
    [["--at", "1,2", "--usage", "rowwise,columnwise"], /one copy is explained/],
    [["--at", "1,2", "--alpha", "2"], /--alpha is no option of explain --op quantize/],
    [["--at", "1,2", "--tensor", "codes"], /codes": is U8/],
    [["--at", "1,2", "--tensor", "y"], /tensor "y" is needed and not there/],
    [["--at", "1,2", "--rht"], /--rht is for nvfp4/],
  ] as const)("refuses %j", async (options, message) => {
    await w.write("in", [X, raw("codes", "U8", [2], [1, 2])]);
    const { status, stderr, stdout } = await w.run("explain", "@in", "--quantizer", "mxfp8", ...options);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toMatch(message);
  });

  it("explains a value of a special function, given as a number or as bits", async () => {
    const rsqrt = ["--function", "rsqrt.approx.ftz.f32"] as const;
    const text = await w.succeed("explain", "1.5", ...rsqrt);
    expect(text).toMatch(/^ {2}T = t0 \+ t1 \+ t2 \+ 32767 = 897747517439$/m);
    expect(text.trimEnd().split("\n").at(-1)).toMatch(/, bits 0x3f5105eb$/);
    expect(await w.succeed("explain", "0x3fc00000", ...rsqrt, "--op", "function")).toBe(text);
  });

  it.each([
    [["one", "--function", "sin.approx.f32"], /"one" is neither a number nor the bits of an f32/],
    [["1", "2", "--function", "sin.approx.f32"], /"2" is one argument too many; a function has one value/],
    [["1", "2", "3", "--function", "powf"], /"3" is one argument too many; powf has two values/],
    [["1", "--function", "powf"], /powf needs two values/],
    [["1", "--function", "sin"], /"sin" is not one of ex2.approx.ftz.f32, /],
    [["1", "--op", "function"], /--function NAME is needed/],
    [["1", "--function", "sin.approx.f32", "--at", "1"], /--at is no option of explain --op function/],
  ] as const)("refuses %j of a function", async (args, message) => {
    const { status, stderr } = await w.run("explain", ...args);
    expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringMatching(message) });
  });
});
