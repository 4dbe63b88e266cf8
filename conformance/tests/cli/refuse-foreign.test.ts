/**
 * No command copies, drops or decodes parts of another library's quantized weight, or codes whose scales are absent: it refuses
 * the file and names the tensor.
 */
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FILE_DTYPES, type FileDType } from "../../../src/io/dtypes.js";
import { FIXTURES, readContents, VECTORS } from "../checkpoints/files/checkpoints.js";
import { type FileTensor, f32, ramp, raw, useWorkspace } from "../harness/cli.js";
import { draws } from "../harness/draws.js";

const w = useWorkspace();

/** The commands that would copy or convert tensors, with their options. */
const COMMANDS: readonly (readonly string[])[] = [
  ["dequantize"],
  ["encode", "--format", "e4m3"],
  ["quantize", "--quantizer", "fp8-current"],
  ["quantize", "--quantizer", "fp8-current", "--tensors", "*"],
];

async function expectNamed(command: readonly string[], names: RegExp): Promise<void> {
  const [name = "", ...options] = command;
  const { status, stderr, stdout } = await w.run(name, "@in", "-o", "@out", ...options);
  expect({ status, stdout, names: w.names }, command.join(" ")).toEqual({
    status: 2,
    stdout: "",
    names: ["in"],
  });
  expect(stderr).toMatch(names);
}

const fixture = async (name: string): Promise<FileTensor[]> => {
  const { tensors } = await readContents(join(VECTORS, name));
  return [...tensors].map(([tensorName, fileTensor]) => ({ name: tensorName, ...fileTensor }));
};

describe.each(FIXTURES)("%s", (name) => {
  it("is refused by every command that would copy it or take its scales for values", async () => {
    await w.write("in", await fixture(name));
    for (const command of COMMANDS) await expectNamed(command, /tensor ".*": .*lockstep convert reads it/);
  });

  it("is refused by decode, for every format that its codes or scales might be taken for", async () => {
    const tensors = await fixture(name);
    await w.write("in", tensors);
    for (const [format, dtypes] of [
      ["e2m1", ["U8"]],
      ["e4m3", ["U8", "F8_E4M3"]],
      ["e8m0", ["U8", "F8_E8M0"]],
    ] as const) {
      const hasDtype = tensors.some(({ dtype }) => (dtypes as readonly string[]).includes(dtype));
      if (hasDtype)
        await expectNamed(["decode", "--format", format], /tensor ".*": is part of the quantized weight/);
    }
  });
});

describe("codes without scales", () => {
  const CODES = ["F4", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"] as const;
  it("are refused by name, whatever other tensors the file has", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...CODES),
        fc.stringMatching(/^[a-z_]{1,8}(\.[a-z_]{1,8}){0,3}(\.weight)?$/),
        fc.constantFrom(...COMMANDS),
        fc.array(fc.stringMatching(/^[a-z]{1,8}\.bias$/), { maxLength: 3 }),
        async (dtype, name, command, otherNames) => {
          const bytes = new Uint8Array((32 * FILE_DTYPES[dtype].bits) / 8).fill(0x38);
          const biases = [...new Set(otherNames)].map((otherName) => f32(otherName, [32], ramp(32)));
          await w.write("in", [...biases, raw(name, dtype, [1, 32], bytes)]);
          await expectNamed(command, new RegExp(`tensor "${name.replaceAll(".", "\\.")}"`));
        },
      ),
      { numRuns: draws(60) },
    );
  });

  it("are not touched if --tensors names other tensors", async () => {
    await w.write("in", [
      raw("a.weight", "F8_E4M3", [1, 32], new Uint8Array(32)),
      f32("b.weight", [1, 32], ramp(32)),
    ]);
    await w.succeed("quantize", "@in", "-o", "@out", "--quantizer", "fp8-current", "--tensors", "b.*");
    expect(Object.keys((await w.read("out")).tensors)).toContain("b.weight.rowwise.data");
  });
});

describe("unquantized tensors with names and types that codes and scales also have", () => {
  const ENDS = [
    "scale",
    "scales",
    "_scale",
    "_scales",
    ".codes",
    ".q",
    ".zeros",
    ".biases",
    ".SCB",
    ".absmax",
    "",
  ];
  const namedTensor = fc.record({
    module: fc.constantFrom("z", "layers.0.mlp"),
    end: fc.constantFrom(...ENDS).map((end) => (end.startsWith("s") ? `.${end}` : end)),
    dtype: fc.constantFrom("U8", "I8", "I32", "F32"),
    shape: fc.constantFrom([32, 1], [32, 32], [32]),
  });
  const namedTensors = fc.uniqueArray(namedTensor, {
    maxLength: 4,
    selector: ({ module, end }) => module + end,
  });

  it("are copied or converted by every command, alone or together", async () => {
    await fc.assert(
      fc.asyncProperty(
        namedTensors,
        fc.constantFrom(...COMMANDS),
        async (drawnTensors, [name = "", ...options]) => {
          const tensors = drawnTensors.map(({ module, end, dtype, shape }): FileTensor => {
            const count = shape.reduce((a: number, b: number) => a * b, 1);
            return raw(
              module + end,
              dtype as FileDType,
              shape,
              new Uint8Array(count * (FILE_DTYPES[dtype as FileDType].bits / 8)),
            );
          });
          await w.write("in", [f32("a", [32, 32], ramp(1024)), ...tensors]);
          await w.succeed(name, "@in", "-o", "@out", ...options, "--force");
        },
      ),
      {
        numRuns: draws(60),
        examples: [
          [
            [
              { module: "z", end: ".scales", dtype: "U8", shape: [32, 1] },
              { module: "z", end: ".codes", dtype: "U8", shape: [32, 32] },
            ],
            ["encode", "--format", "e4m3"],
          ],
        ],
      },
    );
  });

  it("are decoded from what encode wrote of them", async () => {
    const names = fc.uniqueArray(fc.constantFrom("z.scales", "z_scales", "z.scale", "z.codes", "z"), {
      minLength: 1,
    });
    await fc.assert(
      fc.asyncProperty(names, fc.constantFrom("e4m3", "e8m0", "e2m1", "bf16"), async (drawnNames, format) => {
        await w.write(
          "in",
          drawnNames.map((tensorName) => f32(tensorName, [32, 32], new Float32Array(1024).fill(2))),
        );
        await w.succeed("encode", "@in", "-o", "@out", "--format", format, "--force");
        await w.succeed("decode", "@out", "-o", "@wide", "--format", format, "--force");
        const { tensors } = await w.read("wide");
        for (const tensorName of drawnNames)
          expect(new Float32Array(tensors[tensorName]!.bytes.slice().buffer)[7]).toBe(2);
      }),
      { numRuns: draws(20) },
    );
  });
});

describe("--as", () => {
  it("of convert takes the conventions that verify takes, and gives the same values of them", async () => {
    const path = join(VECTORS, "modelopt-nvfp4", "model.safetensors");
    await w.succeed("convert", path, "-o", "@plain", "--to", "f32");
    const expectedTensors = (await w.read("plain/model.safetensors")).tensors;
    let [numTaken, numRefused] = [0, 0];
    for (const convention of ["modelopt-nvfp4", "ct-nvfp4", "ct-mxfp4", "ct-float"]) {
      const verifyRun = await w.run("verify", path, "--as", convention);
      const { status } = await w.run(
        "convert",
        path,
        "-o",
        "@other",
        "--to",
        "f32",
        "--as",
        convention,
        "--force",
      );
      expect([convention, status === 0]).toEqual([convention, verifyRun.status === 0]);
      if (status !== 0) numRefused++;
      else {
        numTaken++;
        expect((await w.read("other/model.safetensors")).tensors).toEqual(expectedTensors);
      }
    }
    expect(Math.min(numTaken, numRefused)).toBeGreaterThan(0);
  });
});

describe("--tensors", () => {
  it("takes patterns, and refuses those that match nothing", async () => {
    await w.write(
      "in",
      ["layers.0.q", "layers.0.k", "layers.1.q", "head"].map((name) => f32(name, [1, 32], ramp(32))),
    );
    const chosenNames = async (globs: string): Promise<readonly string[]> => {
      const json = JSON.parse(
        await w.succeed(
          "quantize",
          "@in",
          "-o",
          "@out",
          "--quantizer",
          "fp8-current",
          "--tensors",
          globs,
          "--json",
        ),
      );
      return json.quantized;
    };
    expect(await chosenNames("*")).toHaveLength(4);
    expect(await chosenNames("layers.*.q")).toEqual(["layers.0.q", "layers.1.q"]);
    expect(await chosenNames("layers.0.?,head")).toEqual(["layers.0.q", "layers.0.k", "head"]);
    expect(await chosenNames("head")).toEqual(["head"]);
    const { status, stderr } = await w.run(
      "quantize",
      "@in",
      "-o",
      "@out",
      "--quantizer",
      "fp8-current",
      "--tensors",
      "layer.*",
    );
    expect({ status, stderr }).toEqual({
      status: 2,
      stderr: expect.stringMatching(/no tensor matches "layer\.\*"; there are layers\.0\.q/),
    });
  });

  it("of inspect and verify reads only these weights", async () => {
    const path = join(VECTORS, "ct-nvfp4");
    const { weights } = JSON.parse(
      await w.succeed("inspect", path, "--json", "--tensors", "*.k_proj.*,*gate*"),
    );
    expect(weights.map(({ name }: { name: string }) => name.split(".").at(-2)).toSorted()).toEqual([
      "gate_proj",
      "k_proj",
    ]);
    expect((await w.run("verify", path, "--tensors", "none")).status).toBe(2);
  });
});
