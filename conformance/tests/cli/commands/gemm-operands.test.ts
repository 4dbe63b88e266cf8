/**
 * The command line: operands named x and w give the same bytes as operands named a and b. A file must contain exactly one
 * complete pair.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type FileTensor, f32, ramp, raw, useWorkspace } from "../../harness/cli.js";
import { draws } from "../../harness/draws.js";

const w = useWorkspace();

/** The options of `quantize` for a file of plain tensors before it is multiplied; undefined to leave it as it is. */
const QUANTIZERS = [
  undefined,
  "fp8-current",
  "fp8-block",
  "mxfp8 --format e5m2",
  "mxfp4 --scales padded",
  "nvfp4 --scales swizzled",
] as const;

/** The tensors of a product; the operands have these names. */
const tensorsOf = (
  [m, n, k]: readonly [number, number, number],
  input: string,
  weight: string,
  seed: number,
) => [f32(input, [m, k], ramp(m * k, seed)), f32(weight, [n, k], ramp(n * k, seed + 1))];
const addends = ([m, n]: readonly [number, number, number]) => [
  f32("c", [m, n], ramp(m * n, 3)),
  f32("bias", [n], ramp(n, 4)),
];

const sizes = fc.integer({ min: 1, max: 5 }).map((n) => 32 * n);
const product = fc.record({
  shape: fc.tuple(sizes, sizes, sizes),
  quantizer: fc.constantFrom(...QUANTIZERS),
  datapath: fc.constantFrom("exact", "hopper", "blackwell"),
  options: fc.subarray(["--beta 0.5", "--bias", "--out-dtype bf16", "--alpha -3", "--split-accumulator"]),
  seed: fc.nat({ max: 1000 }),
});

describe("gemm of x and w", () => {
  it("writes and refuses the same as gemm of a and b, except for the names", async () => {
    let numWritten = 0;
    await fc.assert(
      fc.asyncProperty(product, async ({ shape, quantizer, datapath, options, seed }) => {
        const results: unknown[] = [];
        for (const [input, weight] of [
          ["x", "w"],
          ["a", "b"],
        ] as const) {
          await w.write("operands", tensorsOf(shape, input, weight, seed));
          await w.write("addends", addends(shape));
          if (quantizer)
            await w.succeed("quantize", "@operands", "-o", "@q", "--quantizer", ...quantizer.split(" "));
          const args = options.flatMap((option) => option.split(" "));
          const { status, stderr } = await w.run(
            ...["gemm", quantizer ? "@q" : "@operands", "@addends", "-o", "@out", "--force"],
            ...["--datapath", datapath, ...args],
          );
          if (status === 0) numWritten++;
          results.push(
            status === 0
              ? await w.read("out")
              : stderr.replaceAll(`"${input}"`, "X").replaceAll(`"${weight}"`, "W"),
          );
        }
        expect(results[0]).toEqual(results[1]);
      }),
      {
        numRuns: draws(40),
        examples: [
          [{ shape: [32, 64, 96], quantizer: "fp8-current", datapath: "hopper", options: [], seed: 1 }],
        ],
      },
    );
    expect(numWritten).toBeGreaterThan(draws(40) / 2);
  });

  it("reads scales and metadata by the names x and w", async () => {
    const [x, scale] = [
      raw("x", "F8_E4M3", [2, 128], new Uint8Array(256).fill(0x38)),
      f32("x.scale_inv", [2, 1], [2, 4]),
    ];
    await w.write("in", [
      x,
      scale,
      raw("w", "F8_E4M3", [1, 128], new Uint8Array(128).fill(0x38)),
      f32("w.scale_inv", [1, 1], [1]),
    ]);
    await w.succeed("gemm", "@in", "-o", "@out");
    expect((await w.read("out")).tensors.d).toEqual(f32("d", [2, 1], [256, 512]));
  });
});

/** The forms in which a file may store an operand, and some forms that only resemble an operand. */
const FORMS: Readonly<Record<string, (name: string) => FileTensor>> = {
  plain: (name) => f32(name, [2, 32], new Float32Array(64)),
  rowwise: (name) => raw(`${name}.rowwise.data`, "U8", [2, 32], new Uint8Array(64)),
  columnwise: (name) => raw(`${name}.columnwise.data`, "U8", [32, 2], new Uint8Array(64)),
};

const NAMES = ["x", "w", "a", "b"] as const;

describe("gemm exits 2 and lists the existing names,", () => {
  const subsets = Array.from({ length: 2 ** NAMES.length }, (_, code) =>
    NAMES.filter((_name, i) => (code >> i) & 1),
  );
  const mixes = subsets.filter(
    (names) => names.some((name) => "xw".includes(name)) && names.some((name) => "ab".includes(name)),
  );
  for (const form of Object.keys(FORMS))
    it.each(mixes.map((names) => [names.join(", "), names] as const))(
      `for tensors of both pairs: %s, the first of them ${form}`,
      async (_, names) => {
        const [firstOperand, ...otherOperands] = names.map((name) => FORMS.plain?.(name) as FileTensor);
        const tensor = FORMS[form]?.(firstOperand?.name ?? "") as FileTensor;
        await w.write("in", [tensor]);
        await w.write("more", otherOperands);
        const { status, stderr } = await w.run("gemm", "@in", "@more", "-o", "@out", "--datapath", "exact");
        const quotedNames = names.map((name) => `"${name}"`).join(", ");
        expect(stderr).toBe(
          `lockstep gemm: tensors ${quotedNames}: operands are "x" and "w", or "a" and "b"; give one pair alone\n`,
        );
        expect(status).toBe(2);
        expect(w.names).toEqual(["in", "more"]);
      },
    );

  it.each([
    ["x", "w"],
    ["w", "x"],
    ["a", "b"],
    ["b", "a"],
  ])("for %s without %s", async (presentNames, missingName) => {
    await w.write("in", [f32(presentNames, [2, 32], new Float32Array(64))]);
    const { status, stderr } = await w.run("gemm", "@in", "-o", "@out", "--datapath", "exact");
    expect({ status, stderr }).toMatchObject({ status: 2 });
    expect(stderr).toMatch(`tensor "${missingName}" is needed and not there; give "${missingName}"`);
  });

  it("if there is no operand at all, with both pairs of names", async () => {
    await w.write("in", [f32("y", [2, 32], new Float32Array(64))]);
    const { status, stderr } = await w.run("gemm", "@in", "-o", "@out");
    expect(status).toBe(2);
    expect(stderr).toMatch(/tensor "x" is needed and not there; give "x" and "w", or "a" and "b"/);
  });
});
