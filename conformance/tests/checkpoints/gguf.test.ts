/** GGUF files are read as gguf-py, which wrote them, reads them. */
import { createHash } from "node:crypto";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { WideTarget } from "../../../src/checkpoints/convert/dequantize/round.js";
import { wideConversions } from "../../../src/checkpoints/convert/plan/steps.js";
import { TensorAppender } from "../../../src/checkpoints/convert/tensor-appender.js";
import { openGgufFile } from "../../../src/checkpoints/gguf/open.js";
import { Kernels } from "../../../src/checkpoints/kernels/kernels.js";
import { openCheckpointFiles } from "../../../src/checkpoints/stored/open.js";
import { surveyFiles } from "../../../src/checkpoints/survey.js";
import { PACKED_LAYOUTS } from "../../../src/dialects/packed/packed.js";
import { valueOfCode } from "../../../src/formats/derive.js";
import { SafetensorsFile } from "../../../src/io/safetensors.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import {
  convertTo,
  errorsIn,
  GGUF,
  inFolder,
  readContents,
  reportOf,
  type StoredTensor,
  valuesIn,
} from "./files/checkpoints.js";
import { ggufBytes, TYPE } from "./gguf/files.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

interface RecordedTensor {
  readonly type: string;
  readonly shape: readonly number[];
  readonly f32: string;
  readonly bf16: string;
  readonly bytes: string;
}
interface Witness {
  readonly package: string;
  readonly version: string;
  readonly files: Readonly<Record<string, Readonly<Record<string, RecordedTensor>>>>;
}
const WITNESS: Witness = JSON.parse(readFileSync(join(GGUF, "gguf.json"), "utf8"));
const COMPARED = { "gguf-model": 6, "gguf-codes": 3, "gguf-packed": 22 } as const;
const NAMES = Object.keys(COMPARED) as readonly (keyof typeof COMPARED)[];
const SCALED = "blk.0.ffn_down";

const pathOf = (name: string): string => join(GGUF, `${name}.gguf`);
const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

it("the package and its version are recorded, with every file", () => {
  expect([WITNESS.package, WITNESS.version]).toEqual(["gguf", "0.19.0"]);
  expect(Object.keys(WITNESS.files).toSorted()).toEqual(NAMES.toSorted());
});

/** The tensors of a file as conversion writes them, whatever their values are: `convert` refuses codes under scales of 0. */
async function dequantizeTo(input: string, target: WideTarget): Promise<Map<string, StoredTensor>> {
  const checkpoint = await openCheckpointFiles(input);
  const kernels = Kernels.open();
  const means = { kernels: () => kernels, backend: () => Promise.resolve(backend()) };
  const { steps } = wideConversions(await surveyFiles(checkpoint), target, () => true, means);
  const tensors = new Map<string, StoredTensor>();
  for (const { entry, shard } of checkpoint.tensors.values()) {
    const step = steps.get(entry.name);
    const [plan = entry] = step?.outputs ?? [];
    const pieces: Uint8Array[] = [];
    if (step)
      await step.write(
        new TensorAppender(
          async (_, bytes) => void pieces.push(bytes.slice()),
          () => {},
        ),
      );
    else pieces.push(await shard.read(entry));
    tensors.set(plan.name, { dtype: plan.dtype, shape: plan.shape, bytes: Buffer.concat(pieces) });
  }
  await checkpoint.close();
  return tensors;
}

describe.each(NAMES)("%s", (name) => {
  const recordedTensors = WITNESS.files[name] ?? {};

  it.each(["f32", "bf16"] as const)("gives the package's own values as %s", async (target) => {
    const tensors = await dequantizeTo(pathOf(name), target);
    const comparedNames: string[] = [];
    for (const [key, { type, shape, bytes: storedBytes, ...values }] of Object.entries(recordedTensors)) {
      if (key.startsWith(`${SCALED}.`)) continue;
      const tensor = tensors.get(key);
      expect(tensor?.shape, key).toEqual(shape);
      const isQuantized = !/^B?F\d+$/.test(type);
      expect(tensor?.dtype, key).toBe(isQuantized ? target.toUpperCase() : type);
      expect(digest(tensor?.bytes ?? new Uint8Array()), key).toBe(isQuantized ? values[target] : storedBytes);
      comparedNames.push(key);
    }
    expect(comparedNames.length).toBe(COMPARED[name]);
  });
});

it("inspect and verify list each tensor with its shape, and find no error in a sound file", async () => {
  const report = await reportOf(pathOf("gguf-model"));
  expect(errorsIn(report.findings)).toEqual([]);
  expect(report.tensors).toBe(9);
  expect(report.weights.map(({ name, convention, shape, bits }) => [name, convention, shape, bits])).toEqual([
    ["blk.0.attn_q.weight", "gguf-mxfp4", [32, 64], 4.25],
    ["blk.0.ffn_up_exps.weight", "gguf-mxfp4", [2, 8, 96], 4.25],
    ["blk.0.ffn_up.weight", "gguf-nvfp4", [16, 128], 4.5],
    ["blk.0.ffn_down.weight", "gguf-nvfp4", [16, 128], 4.5 + 32 / 2048],
  ]);
  expect(report.unquantized.map(({ name, dtype }) => [name, dtype])).toEqual([
    ["token_embd.weight", "F16"],
    ["output_norm.weight", "F32"],
    ["output.weight", "BF16"],
  ]);
  expect(report.gguf).toEqual({
    version: 3,
    tensors: 9,
    metadata: {
      "general.architecture": "llama",
      "general.alignment": 64,
      "general.name": "small",
      ...{ "test.u8": 255, "test.i8": -128, "test.u16": 65535, "test.i16": -32768 },
      ...{ "test.u32": 2 ** 32 - 1, "test.i32": -(2 ** 31), "test.f32": 0.5 },
      ...{ "test.u64": "18446744073709551615", "test.i64": -(2 ** 40), "test.f64": 0.1, "test.bool": true },
      ...{ "test.text": "größer", "test.numbers": "3 of i32", "test.texts": "3 of text" },
    },
  });
});

it("inspect says how packed tensors are stored, and counts their own bytes", async () => {
  const report = await reportOf(pathOf("gguf-packed"));
  expect(errorsIn(report.findings)).toEqual([]);
  const packedTensors = report.unquantized.filter(({ layout }) => layout !== undefined);
  expect(packedTensors.map(({ layout }) => layout)).toEqual(
    Object.values(WITNESS.files["gguf-packed"] ?? {})
      .filter(({ type }) => type !== "F32")
      .map(({ type }) => `gguf:${type.toLowerCase()}`),
  );
  const blocks = packedTensors.map(({ layout = "gguf:q4_0" }) => PACKED_LAYOUTS[layout]);
  const bytes = blocks.reduce((sum, { elements, bytes: size }) => sum + (768 / elements) * size, 4 * 256);
  expect(report.bitsPerWeight).toBeCloseTo((8 * bytes) / (21 * 768 + 256), 10);
});

it("packed tensors are quantized from their values, any range of which is read", () =>
  inFolder(async (folder) => {
    const source = pathOf("gguf-packed");
    const [wideFolder, convertedFolder] = [join(folder, "wide"), join(folder, "there")];
    await convertTo(backend(), source, wideFolder, "f32");
    const { plan } = await convertTo(backend(), source, convertedFolder, "ct-mxfp8", [
      "*.q4_k.weight",
      "*.iq1_m.weight",
    ]);
    expect([...plan.converted]).toEqual([
      ["blk.0.q4_k.weight", "quantized"],
      ["blk.0.iq1_m.weight", "quantized"],
    ]);
    const [values, file] = [await readContents(wideFolder), await openGgufFile(source)];
    for (const entry of file.tensors.values()) {
      const wholeValues = values.tensors.get(entry.name)?.bytes ?? new Uint8Array();
      for (const [begin, end] of [
        [0, 4],
        [124, 132],
        [4, 3068],
        [1000, 1000],
      ])
        if ((end ?? 0) <= wholeValues.length)
          expect(await file.read(entry, begin, end)).toEqual(wholeValues.slice(begin, end));
    }
    await file.close();
  }));

it("the scale of a whole NVFP4 tensor multiplies, and is not left in the output", () =>
  inFolder(async (folder) => {
    const output = join(folder, "wide");
    const { plan } = await convertTo(backend(), pathOf("gguf-model"), output, "f32");
    expect(plan.dropped).toEqual([`${SCALED}.input_scale`]);
    const file = await SafetensorsFile.open(join(output, "model.safetensors"));
    expect([...file.tensors.keys()].filter((name) => name.startsWith(SCALED))).toEqual([`${SCALED}.weight`]);
    const bytes = await file.read(file.entry(`${SCALED}.weight`));
    await file.close();
    const values = new Float32Array(bytes.slice().buffer);

    const source = await openGgufFile(pathOf("gguf-model"));
    const codes = await source.read(source.entry(`${SCALED}.weight`));
    const scales = await source.read(source.entry(`${SCALED}.weight.block_scales`));
    await source.close();
    const globalScale = Math.fround(0.3);
    values.forEach((value, i) => {
      const code = ((codes[i >> 1] ?? 0) >> (4 * (i & 1))) & 15;
      const scale = Math.fround((valueOfCode("e4m3", scales[i >> 4] ?? 0) / 2) * globalScale);
      expect(value).toBe(Math.fround(code === 8 ? 0 : 2 * valueOfCode("e2m1", code) * scale));
    });
  }));

it("is found by its first bytes where its name does not say what it is", () =>
  inFolder(async (folder) => {
    const path = join(folder, "blob");
    copyFileSync(pathOf("gguf-model"), path);
    expect((await reportOf(path)).weights).toEqual((await reportOf(pathOf("gguf-model"))).weights);
  }));

it("a configuration of another model beside the file claims nothing", () =>
  inFolder(async (folder) => {
    copyFileSync(pathOf("gguf-model"), join(folder, "x.gguf"));
    writeFileSync(
      join(folder, "config.json"),
      JSON.stringify({ quantization_config: { quant_method: "fp8" } }),
    );
    expect((await reportOf(join(folder, "x.gguf"))).findings).toEqual(
      (await reportOf(pathOf("gguf-model"))).findings,
    );
  }));

/** The element of a block for each code, by the layout of ggml: byte j of a half of h bytes holds elements j and j + h. */
function expectedCodes(block: Uint8Array, scales: number): number[] {
  const bytesPerHalf = (block.length - scales) / scales;
  const codes: number[] = [];
  for (let sub = 0; sub < scales; sub++)
    for (let j = 0; j < bytesPerHalf; j++) {
      const byte = block[scales + sub * bytesPerHalf + j] ?? 0;
      codes[2 * bytesPerHalf * sub + j] = byte & 15;
      codes[2 * bytesPerHalf * sub + bytesPerHalf + j] = byte >> 4;
    }
  return codes;
}

it("any blocks have their codes in order, and any range of bytes is read", () =>
  inFolder(async (folder) => {
    const path = join(folder, "any.gguf");
    const kind = fc.constantFrom(
      { type: TYPE.mxfp4, elements: 32, scales: 1, bytes: 17 },
      { type: TYPE.nvfp4, elements: 64, scales: 4, bytes: 36 },
    );
    const cases = fc
      .tuple(kind, fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 5 }))
      .chain(([type, rows, blocks]) =>
        fc.record({
          type: fc.constant(type),
          rows: fc.constant(rows),
          blocks: fc.constant(blocks),
          data: fc.uint8Array({
            minLength: rows * blocks * type.bytes,
            maxLength: rows * blocks * type.bytes,
          }),
          range: fc.tuple(
            fc.nat(rows * blocks * (type.elements / 2)),
            fc.nat(rows * blocks * (type.elements / 2)),
          ),
        }),
      );
    await fc.assert(
      fc.asyncProperty(cases, async ({ type, rows, blocks, data, range }) => {
        const dimensions = [blocks * type.elements, rows];
        writeFileSync(
          path,
          ggufBytes({ tensors: [{ name: "x", dimensions, type: type.type, offset: 0 }], data }),
        );
        const split = Array.from({ length: rows * blocks }, (_, i) =>
          data.slice(i * type.bytes, (i + 1) * type.bytes),
        );
        const codes = split.flatMap((block) => expectedCodes(block, type.scales));
        const packedBytes = Uint8Array.from(
          { length: codes.length / 2 },
          (_, i) => (codes[2 * i] ?? 0) | ((codes[2 * i + 1] ?? 0) << 4),
        );
        const file = await openGgufFile(path);
        expect(await file.read(file.entry("x"))).toEqual(packedBytes);
        expect(await file.read(file.entry("x.block_scales"))).toEqual(
          Uint8Array.from(split.flatMap((block) => [...block.slice(0, type.scales)])),
        );
        const [begin, end] = range.toSorted((a, b) => a - b);
        expect(await file.read(file.entry("x"), begin, end)).toEqual(packedBytes.slice(begin, end));
        await file.close();
        expect([...(await valuesIn(path)).values()][0]?.length).toBe(codes.length);
      }),
      { numRuns: draws(60) },
    );
  }));

it("plain tensors of any shape keep their bytes", () =>
  inFolder(async (folder) => {
    const path = join(folder, "plain.gguf");
    const types = fc.constantFrom(
      [TYPE.f32, 4, "F32"] as const,
      [TYPE.f16, 2, "F16"] as const,
      [TYPE.bf16, 2, "BF16"] as const,
    );
    await fc.assert(
      fc.asyncProperty(
        types,
        fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 4 }),
        async ([type, size, dtype], shape) => {
          const length = shape.reduce((product, dimension) => product * dimension, size);
          const data = Uint8Array.from({ length }, (_, i) => (i * 37) & 255);
          writeFileSync(
            path,
            ggufBytes({ tensors: [{ name: "x", dimensions: shape.toReversed(), type, offset: 0 }], data }),
          );
          const checkpoint = await openCheckpointFiles(path);
          const tensor = checkpoint.tensors.get("x");
          expect(tensor?.entry).toMatchObject({ dtype, shape });
          expect(tensor && (await tensor.shard.read(tensor.entry))).toEqual(data);
          await checkpoint.close();
        },
      ),
      { numRuns: draws(40) },
    );
  }));
