/** Conversions: every convention to BF16 and F32, in one file or in shards, whole or in part, interrupted or not. */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Changes } from "../../../src/checkpoints/convert/changes/changes.js";
import { encodeWide } from "../../../src/checkpoints/convert/dequantize/round.js";
import { planConversion } from "../../../src/checkpoints/convert/plan/plan.js";
import { parseTarget } from "../../../src/checkpoints/convert/targets/named.js";
import { writeConversion } from "../../../src/checkpoints/convert/write.js";
import { openCheckpointFiles } from "../../../src/checkpoints/stored/open.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import { useWorkspace } from "../harness/cli.js";
import { sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import {
  copyFixture,
  errorsIn,
  FIXTURES,
  readContents,
  reportOf,
  transpose,
  VECTORS,
  valuesIn,
} from "./files/checkpoints.js";

const w = useWorkspace();
const backend = useBackend({ threads: 1, datapath: "hopper" });

describe.each(sampleCases(FIXTURES, 8))("%s", (name) => {
  it.each(["bf16", "f32"] as const)(
    "converts to %s: checks the values, the other tensors, the configuration and the report",
    async (target) => {
      const input = join(VECTORS, name);
      const original = await readContents(input);
      const values = new Map(
        [...(await valuesIn(input))].map(([weightName, exact]) => [weightName, Float32Array.from(exact)]),
      );
      const jsonReport = JSON.parse(
        await w.succeed("convert", input, "-o", "@out", "--to", target, "--json"),
      );
      const converted = await readContents(w.path("out"));
      expect(new Set(jsonReport.converted)).toEqual(new Set(values.keys()));
      for (const [weight, convertedValues] of values) {
        const {
          dtype,
          bytes,
          shape = [],
        } = converted.tensors.get(weight) ?? { dtype: "BOOL", bytes: new Uint8Array() };
        // transformers stores these experts as [E, K, N] if they are not quantized
        const [, rows = 0, columns = 0] = shape;
        const exact =
          name === "gpt-oss" ? Float32Array.from(transpose(convertedValues, columns, rows)) : convertedValues;
        expect(dtype).toBe(target === "bf16" ? "BF16" : "F32");
        if (target === "f32") expect(new Float32Array(bytes.buffer, 0, exact.length)).toEqual(exact);
        else {
          using _scope = new Scope();
          const codes = encode(tensor(backend(), exact), { format: "bf16" }).dataSync();
          expect(
            Buffer.compare(bytes, new Uint8Array(codes.buffer, codes.byteOffset, codes.byteLength)),
          ).toBe(0);
        }
      }
      const expected = [...original.tensors].filter(
        ([weightName]) =>
          !/(scale|scales|scale_inv|scale_2|packed|blocks|qdata|_shape)$/.test(weightName) &&
          !values.has(weightName),
      );
      for (const [tensorName, storedTensor] of expected)
        expect(converted.tensors.get(tensorName)).toEqual(storedTensor);
      expect(converted.tensors.size).toBe(expected.length + values.size);
      expect(converted.json.get("config.json")?.quantization_config).toBeUndefined();
      expect(converted.json.has("hf_quant_config.json")).toBe(false);
      const report = await reportOf(w.path("out"));
      expect([report.findings, report.weights]).toEqual([[], []]);
      expect(jsonReport.changes).toHaveLength(values.size);
      for (const { elements, changed: numChanged, max, relative } of jsonReport.changes) {
        expect(numChanged).toBeLessThanOrEqual(elements);
        expect(max > 0).toBe(numChanged > 0);
        expect(relative).toBeLessThanOrEqual(target === "bf16" ? 2 ** -8 + 2 ** -24 : 2 ** -24);
      }
    },
  );
});

describe("a part of a checkpoint", () => {
  it.each(["ct-nvfp4", "modelopt-nvfp4", "transformers-fp8"])(
    "of %s is converted alone, and verify finds no error in the rest",
    async (name) => {
      const input = join(VECTORS, name);
      await w.succeed("convert", input, "-o", "@out", "--to", "bf16", "--tensors", "*mlp*");
      const report = await reportOf(w.path("out"));
      expect(errorsIn(report.findings)).toEqual([]);
      expect(report.weights).toHaveLength(4);
      const [original, converted] = [await readContents(input), await readContents(w.path("out"))];
      for (const [tensorName, storedTensor] of original.tensors)
        if (tensorName.includes("self_attn")) expect(converted.tensors.get(tensorName)).toEqual(storedTensor);
    },
  );
});

describe("the output", () => {
  it("exists only with --force, and is not touched without it", async () => {
    copyFixture("ct-mxfp4", w.path("in"));
    const original = await readContents(w.path("in"));
    const { status, stderr } = await w.run("convert", "@in", "-o", "@in", "--to", "bf16");
    expect({ status, stderr }).toEqual({
      status: 2,
      stderr: expect.stringMatching(/exists; give a new folder, or force/),
    });
    expect(await readContents(w.path("in"))).toEqual(original);
    await w.succeed("convert", "@in", "-o", "@in", "--to", "bf16", "--force");
    expect((await reportOf(w.path("in"))).weights).toEqual([]);
    expect(w.names).toEqual(["in"]);
  });

  it("is not written with --dry-run, and not begun for a checkpoint that would be read wrong", async () => {
    copyFixture("ct-mxfp4", w.path("in"));
    const report = JSON.parse(
      await w.succeed("convert", "@in", "-o", "@out", "--to", "f32", "--dry-run", "--json"),
    );
    expect(report).toMatchObject({ written: false, kept: [] });
    expect(w.names).toEqual(["in"]);
    const config = JSON.parse(readFileSync(join(w.path("in"), "config.json"), "utf8"));
    writeFileSync(
      join(w.path("in"), "config.json"),
      JSON.stringify({ ...config, quantization_config: undefined }),
    );
    const { status, stderr } = await w.run("convert", "@in", "-o", "@out", "--to", "f32");
    expect({ status, stderr, names: w.names }).toEqual({
      status: 2,
      stderr: expect.stringMatching(/config-missing/),
      names: ["in"],
    });
  });

  it("has the other files of the folder, and goes on where a run was interrupted", async () => {
    copyFixture("ct-nvfp4", w.path("in"));
    writeFileSync(join(w.path("in"), "tokenizer.json"), "{}");
    const checkpoint = await openCheckpointFiles(w.path("in"));
    const plan = await planConversion(checkpoint, {
      target: parseTarget("bf16"),
      backend: () => Promise.resolve(backend()),
    });
    const stop = (): void => {
      throw new Error("interrupted");
    };
    await expect(writeConversion(checkpoint, plan, w.path("out"), stop)).rejects.toThrow("interrupted");
    expect(existsSync(w.path("out"))).toBe(false);
    expect(w.names).toEqual(["in", "out.partial"]);
    // another conversion does not mix with it
    expect((await w.run("convert", "@in", "-o", "@out", "--to", "f32")).stderr).toMatch(
      /is left of another conversion/,
    );
    await writeConversion(checkpoint, plan, w.path("out"));
    await checkpoint.close();
    expect(w.names).toEqual(["in", "out"]);
    await w.succeed("convert", "@in", "-o", "@whole", "--to", "bf16");
    for (const name of readdirSync(w.path("whole")))
      expect(
        readFileSync(join(w.path("out"), name)).equals(readFileSync(join(w.path("whole"), name))),
        name,
      ).toBe(true);
    expect(readdirSync(w.path("out"))).toContain("tokenizer.json");
    rmSync(w.path("out"), { recursive: true });
  });
});

it("rounds every f32 to BF16 as encode does, and counts what changed", () => {
  const bits = Uint32Array.from({ length: 1 << 16 }, (_, i) => Math.imul(i, 0x10001) ^ (i << 3));
  const floats = new Float32Array(bits.buffer);
  const counts = new Changes();
  const bytes = encodeWide("bf16", Float64Array.from(floats), counts);
  using _scope = new Scope();
  const codes = encode(tensor(backend(), floats), { format: "bf16", overflow: "nonfinite" }).dataSync();
  const expected = new Uint16Array(bytes.buffer);
  let numEqual = 0;
  for (let i = 0; i < expected.length; i++) {
    const unordered = ((expected[i] ?? 0) & 0x7fff) > 0x7f80;
    if (Number.isNaN(floats[i])) expect(unordered).toBe(true);
    else expect(expected[i]).toBe(Number(codes[i]) & 0xffff);
    if (Number.isNaN(floats[i]) || ((bits[i] ?? 0) & 0xffff) === 0) numEqual++;
  }
  expect(counts).toMatchObject({ elements: expected.length, changed: expected.length - numEqual });
});
