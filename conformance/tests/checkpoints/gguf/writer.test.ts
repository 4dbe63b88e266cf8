/** GGUF files that conversions write: the bytes of gguf-py's own writer, its quantizer's codes, and refusals. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { planConversion } from "../../../../src/checkpoints/convert/plan/plan.js";
import { ggmlScale, quantizeMxfp4 } from "../../../../src/checkpoints/convert/quantize/ggml.js";
import { parseTarget } from "../../../../src/checkpoints/convert/targets/named.js";
import { writeConversion } from "../../../../src/checkpoints/convert/write.js";
import { openGgufFile } from "../../../../src/checkpoints/gguf/open.js";
import { blockType } from "../../../../src/checkpoints/gguf/types.js";
import { packBlocks } from "../../../../src/checkpoints/gguf/views.js";
import { writeGguf } from "../../../../src/checkpoints/gguf/writer.js";
import { ggufTensors } from "../../../../src/checkpoints/gguf/written-tensors.js";
import { openCheckpointFiles } from "../../../../src/checkpoints/stored/open.js";
import { FileError } from "../../../../src/errors.js";
import type { FileDType } from "../../../../src/io/dtypes.js";
import { useWorkspace } from "../../harness/cli.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { drawValues } from "../../witness/dialects/draws.js";
import { difference, recordedPackages } from "../../witness/dialects/recorded.js";
import {
  convertTo,
  errorsIn,
  GGUF,
  inFolder,
  readContents,
  reportOf,
  type StoredTensor,
  VECTORS,
  valuesIn,
  writeContents,
} from "../files/checkpoints.js";
import { ggufBytes, TYPE } from "./files.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const w = useWorkspace();
const ORIGINAL = join(VECTORS, "original");

describe.each(["mxfp4", "nvfp4"])("the original as gguf-%s", (name) => {
  it("is the file of gguf-py's own writer, byte for byte", () =>
    inFolder(async (folder) => {
      const out = join(folder, "out");
      await convertTo(backend(), ORIGINAL, out, `gguf-${name}`);
      expect(readdirSync(out).toSorted()).toEqual(["config.json", "model.gguf"]);
      const writtenFile = readFileSync(join(GGUF, `gguf-written-${name}.gguf`));
      expect(Buffer.compare(readFileSync(join(out, "model.gguf")), writtenFile)).toBe(0);
      const config = JSON.parse(readFileSync(join(out, "config.json"), "utf8"));
      expect(config.quantization_config).toBeUndefined();
    }));
});

const witness = recordedPackages().find(({ origin }) => origin.package === "gguf");
const recordedRows = (witness?.dialects ?? []).filter(({ dialect }) => dialect === "gguf-mxfp4");
/** NaN and infinity are refused here; the package refuses rows that are not whole blocks. */
const REFUSED = ["nan", "infinity", "ragged"];
const cases = recordedRows.flatMap(({ cases }) =>
  cases.filter(({ dtype, case: name }) => dtype === "f32" && !REFUSED.includes(name)),
);

describe("MXFP4 is quantized as gguf-py does it", () => {
  it.each(cases)("$case", (row) => {
    const [rows, columns] = row.shape;
    const pattern = drawValues(row.case, row.dtype, row.shape);
    const values = new Float32Array(pattern.buffer, pattern.byteOffset, rows * columns);
    const codes = new Uint8Array(values.length / 2);
    const scales = new Uint8Array(values.length / 32);
    const bytesOf = (from: number, count: number) => values.subarray(from * 32, (from + count) * 32);
    const omittedBlocks = new Set<number>();
    for (let block = 0; block < scales.length; block++) {
      const ownBytes = bytesOf(block, 1);
      const amax = ownBytes.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
      // the package's byte wraps around
      if (amax > 0 && amax < 2 ** -125) {
        omittedBlocks.add(Math.floor((block * 32) / columns));
        continue;
      }
      expect(
        quantizeMxfp4(
          ownBytes,
          codes.subarray(block * 16, block * 16 + 16),
          scales.subarray(block, block + 1),
          new Float32Array(1),
        ),
      ).toBe(true);
    }
    const type = blockType("F8_E8M0");
    if (!type || !witness) throw new Error("the witness and the type are there");
    const packedBlocks = packBlocks(type, codes, scales);
    const halves = Uint8Array.from(
      codes,
      (_, i) => packedBlocks[Math.floor(i / 16) * 17 + 1 + (i % 16)] as number,
    );
    const { codes: expectedCodes, scale } = row.results ?? {};
    if (!expectedCodes || !scale) throw new Error("codes and scales are recorded");
    const skip = (block: number): boolean => omittedBlocks.has(block);
    expect(difference(witness, scale, scales, skip)).toBeUndefined();
    expect(difference(witness, expectedCodes, halves, skip)).toBeUndefined();
    expect(omittedBlocks.size, row.case).toBeLessThan(rows);
  });

  it("has a byte of 0 where C has none", () => {
    expect([2 ** -149, 2 ** -126, 2 ** -125, 2 ** -124, 0].map(ggmlScale)).toEqual([0, 0, 0, 1, 0]);
  });
});

/** Any codes and scales of the conventions that correspond to GGUF's. */
const blocks = fc
  .record({
    kind: fc.constantFrom("mxfp4" as const, "nvfp4" as const),
    rows: fc.integer({ min: 1, max: 5 }),
    columns: fc.integer({ min: 1, max: 4 }).map((count) => 64 * count),
    seed: fc.nat(),
    global: fc.float({ min: 2 ** -20, max: 2 ** -8, noNaN: true }),
    // scales of any size, even sizes that no trained weight has
    wild: fc.boolean(),
  })
  .map(({ kind, rows, columns, seed, global: globalScale, wild }) => {
    const draw = (count: number, limit: number, salt: number) =>
      Uint8Array.from({ length: count }, (_, i) => (Math.imul(i + seed, 0x9e3779b1 ^ salt) >>> 9) % limit);
    const codes = draw((rows * columns) / 2, 256, 1);
    const size = kind === "mxfp4" ? 32 : 16;
    const drawnScales = draw((rows * columns) / size, wild ? (kind === "mxfp4" ? 255 : 127) : 16, 2);
    const scales = wild ? drawnScales : drawnScales.map((scale) => scale + 104);
    return { kind, rows, columns, codes, scales, global: globalScale };
  });

it("codes and scales survive both directions unchanged, and so do the values", () =>
  fc.assert(
    fc.asyncProperty(blocks, ({ kind, rows, columns, codes, scales, global: globalScale }) =>
      inFolder(async (folder) => {
        const nv = kind === "nvfp4";
        const tensors = new Map<string, StoredTensor>([
          ["a.o_proj.weight", { dtype: "U8", shape: [rows, columns / 2], bytes: codes }],
          [
            "a.o_proj.weight_scale",
            { dtype: nv ? "F8_E4M3" : "U8", shape: [rows, columns / (nv ? 16 : 32)], bytes: scales },
          ],
        ]);
        if (nv) {
          const bytes = new Uint8Array(Float32Array.of(globalScale).buffer);
          tensors.set("a.o_proj.weight_scale_2", { dtype: "F32", shape: [], bytes });
        } else {
          const tensor = tensors.get("a.o_proj.weight");
          tensors.delete("a.o_proj.weight");
          if (tensor) tensors.set("a.o_proj.weight_packed", tensor);
        }
        const ownScale = nv
          ? { quant_method: "modelopt", quant_algo: "NVFP4" }
          : { quant_method: "compressed-tensors", format: "mxfp4-pack-quantized" };
        const config = { quantization_config: ownScale };
        const source = join(folder, "source");
        mkdirSync(source);
        await writeContents(source, { tensors, metadata: {}, json: new Map([["config.json", config]]) });
        if (errorsIn((await reportOf(source)).findings).length > 0) {
          await expect(convertTo(backend(), source, join(folder, "there"), `gguf-${kind}`)).rejects.toThrow(
            FileError,
          );
          return;
        }
        const [ggufFolder, secondFolder, backFolder] = ["there", "again", "back"].map((name) =>
          join(folder, name),
        ) as [string, string, string];
        const firstConversion = await convertTo(backend(), source, ggufFolder, `gguf-${kind}`);
        const secondConversion = await convertTo(backend(), ggufFolder, secondFolder, `gguf-${kind}`);
        const thirdConversion = await convertTo(
          backend(),
          secondFolder,
          backFolder,
          nv ? "modelopt-nvfp4" : "ct-mxfp4",
        );
        for (const { plan, changes } of [firstConversion, secondConversion, thirdConversion]) {
          expect([...plan.converted.values()]).toEqual(["repacked"]);
          expect(changes.map(({ changed: numChanged }) => numChanged)).toEqual([0]);
        }
        expect((await readContents(backFolder)).tensors).toEqual(tensors);
        const file = (path: string) => readFileSync(join(path, "model.gguf"));
        expect(file(secondFolder).equals(file(ggufFolder))).toBe(true);
        const plus = (values: Map<string, Float64Array>) =>
          [...values].map(([, ownValues]) => ownValues.map((x) => x + 0));
        expect(plus(await valuesIn(ggufFolder))).toEqual(plus(await valuesIn(source)));
        const gguf = await openGgufFile(join(ggufFolder, "model.gguf"));
        expect(await gguf.read(gguf.entry("a.o_proj.weight"))).toEqual(codes);
        await gguf.close();
      }),
    ),
    { numRuns: draws(15) },
  ));

it("bytes that are numbers only in GGUF are quantized anew", () =>
  inFolder(async (folder) => {
    // 2^127 and a zero of the scale: NaN in other conventions
    for (const [type, dimensions, data, target] of [
      [
        TYPE.mxfp4,
        [32, 2],
        [
          [255, ...Array(16).fill(0)],
          [127, ...Array(16).fill(0x21)],
        ].flat(),
        "ct-mxfp4",
      ],
      [
        TYPE.nvfp4,
        [64, 1],
        [0x7f, 0x30, 0x30, 0x30, ...Array(8).fill(0), ...Array(24).fill(0x21)],
        "torchao-nvfp4",
      ],
    ] as const) {
      const path = join(folder, `${type}.gguf`);
      const tensors = [{ name: "a.o_proj.weight", dimensions, type, offset: 0 }];
      writeFileSync(path, ggufBytes({ tensors, data: Uint8Array.from(data) }));
      const { plan } = await convertTo(backend(), path, join(folder, `${type}`), target);
      expect([...plan.converted.values()]).toEqual(["quantized"]);
    }
  }));

const drawnTensor = (rows: number, columns: number): StoredTensor => ({
  dtype: "BF16",
  shape: [rows, columns],
  bytes: new Uint8Array(Uint16Array.from({ length: rows * columns }, (_, i) => 0x3c00 + (i % 399)).buffer),
});

describe("a model of several shards", () => {
  const write = async (folder: string) => {
    const map: Record<string, string> = {};
    for (const part of [1, 2]) {
      const innerFolder = join(folder, "part");
      mkdirSync(innerFolder, { recursive: true });
      const tensors = new Map([[`m.${part}.o_proj.weight`, drawnTensor(4, 64)]]);
      await writeContents(innerFolder, { tensors, metadata: {}, json: new Map() });
      const name = `some-${part}.safetensors`;
      writeFileSync(join(folder, name), readFileSync(join(innerFolder, "model.safetensors")));
      map[`m.${part}.o_proj.weight`] = name;
    }
    writeFileSync(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map: map }));
    writeFileSync(join(folder, "config.json"), JSON.stringify({ model_type: "qwen3" }));
    writeFileSync(join(folder, "tokenizer.json"), "{}");
  };

  it("becomes the files of a split checkpoint, which are read together and continue after an interruption", async () => {
    mkdirSync(w.path("in"));
    await write(w.path("in"));
    const checkpoint = await openCheckpointFiles(w.path("in"));
    const target = parseTarget("gguf-mxfp4");
    const plan = await planConversion(checkpoint, { target, backend: () => Promise.resolve(backend()) });
    let numTensors = 0;
    const stop = (count: number): void => {
      numTensors += count;
      if (numTensors > plan.bytes / 2) throw new Error("interrupted");
    };
    await expect(writeConversion(checkpoint, plan, w.path("out"), stop)).rejects.toThrow("interrupted");
    expect(existsSync(w.path("out"))).toBe(false);
    expect(readdirSync(w.path("out.partial"))).toContain("model-00001-of-00002.gguf");
    await writeConversion(checkpoint, plan, w.path("out"));
    await checkpoint.close();
    const names = ["model-00001-of-00002.gguf", "model-00002-of-00002.gguf"];
    expect(readdirSync(w.path("out")).toSorted()).toEqual(["config.json", ...names, "tokenizer.json"]);
    const report = await reportOf(w.path("out"));
    expect(report.weights.map(({ name }) => name)).toEqual(["m.1.o_proj.weight", "m.2.o_proj.weight"]);
    expect([report.tensors, report.shards, errorsIn(report.findings)]).toEqual([2, 2, []]);
    expect(report.gguf?.metadata).toEqual({
      "general.architecture": "qwen3",
      "general.file_type": 38,
      "general.quantization_version": 2,
      ...{ "split.no": 0, "split.count": 2, "split.tensors.count": 2 },
    });
    expect((await reportOf(join(w.path("out"), names[1] ?? ""))).gguf?.metadata).toEqual({
      ...{ "split.no": 1, "split.count": 2, "split.tensors.count": 2 },
    });
    // converts back, into one file for each of them
    await w.succeed("convert", "@out", "-o", "@wide", "--to", "bf16");
    expect((await reportOf(w.path("wide"))).tensors).toBe(2);
  });
});

it("metadata of a GGUF file are kept, except the keys that describe how tensors are stored", () =>
  inFolder(async (folder) => {
    const source = join(GGUF, "gguf-model.gguf");
    await convertTo(backend(), source, join(folder, "out"), "gguf-mxfp4");
    const [reportBefore, reportAfter] = [await reportOf(source), await reportOf(join(folder, "out"))];
    const { "general.alignment": _, ...otherMetadata } = reportBefore.gguf?.metadata ?? {};
    expect(reportAfter.gguf?.metadata).toEqual({
      ...otherMetadata,
      "general.file_type": 38,
      "general.quantization_version": 2,
    });
    const fileBytes = readFileSync(join(folder, "out", "model.gguf"));
    expect(fileBytes.includes("größer")).toBe(true);
    // rows of 96 elements are not whole blocks of NVFP4
    const conversion = convertTo(backend(), source, join(folder, "no"), "gguf-nvfp4");
    await expect(conversion).rejects.toThrow(/ffn_up_exps.*no multiple of 64/);
  }));

const f32Ones = (count: number): Uint8Array => new Uint8Array(new Float32Array(count).fill(1).buffer);

it("of a GGUF file the weights of layers are quantized, with those of experts; embeddings, outputs and routers stay", () =>
  inFolder(async (folder) => {
    const shapes: Record<string, readonly number[]> = {
      "token_embd.weight": [4, 64],
      "output.weight": [4, 64],
      "blk.0.attn_q.weight": [4, 64],
      "blk.0.ffn_gate.weight": [4, 64],
      "blk.0.ffn_up_exps.weight": [2, 4, 64],
      "blk.0.ffn_gate_inp.weight": [4, 64],
      "blk.0.ssm_conv1d.weight": [4, 64],
      "blk.0.attn_norm.weight": [64],
    };
    const path = join(folder, "m.gguf");
    const tensors = Object.entries(shapes).map(([name, shape]) => ({
      name,
      dtype: "F32" as FileDType,
      shape,
    }));
    await writeGguf(path, { tensors, metadata: [] }, async (writeTensor) => {
      for (const { name, shape } of tensors)
        await writeTensor(name, f32Ones(shape.reduce((product, size) => product * size, 1)));
    });
    for (const target of ["gguf-mxfp4", "gguf-nvfp4", "ct-mxfp4"]) {
      const { plan } = await convertTo(backend(), path, join(folder, target), target);
      expect([...plan.converted.keys()]).toEqual([
        "blk.0.attn_q.weight",
        "blk.0.ffn_gate.weight",
        "blk.0.ffn_up_exps.weight",
      ]);
    }
  }));

describe("a tensor that GGUF cannot hold is refused before anything is written", () => {
  const tensor = drawnTensor(4, 64);
  const unquantizedTensor = (dtype: FileDType, shape: readonly number[], bytes: number): StoredTensor => ({
    dtype,
    shape,
    bytes: new Uint8Array(bytes),
  });
  it.each<readonly [string, Record<string, StoredTensor>, RegExp]>([
    [
      "another type",
      { flags: unquantizedTensor("BOOL", [3], 3) },
      /"flags": is BOOL, a type that GGUF has not/,
    ],
    [
      "more dimensions",
      { deep: unquantizedTensor("F32", [1, 1, 1, 1, 2], 8) },
      /"deep": has 5 dimensions; GGUF has 4/,
    ],
    [
      "a longer name",
      { ["x".repeat(64)]: unquantizedTensor("F32", [1], 4) },
      /its name has 64 bytes; ggml reads 63/,
    ],
  ])("%s", (_, otherTensors, message) =>
    inFolder(async (folder) => {
      const tensors = new Map(Object.entries({ "a.o_proj.weight": tensor, ...otherTensors }));
      await writeContents(folder, { tensors, metadata: {}, json: new Map() });
      const out = join(folder, "out");
      await expect(convertTo(backend(), folder, out, "gguf-mxfp4")).rejects.toThrow(message);
      expect(readdirSync(folder)).toEqual(["model.safetensors"]);
    }),
  );
});

it("the name of a tensor has at most 63 bytes in UTF-8, whatever its characters", () => {
  const names = fc.string({ unit: fc.constantFrom("a", ".", "é", "漢", "😀"), minLength: 12, maxLength: 64 });
  fc.assert(
    fc.property(names, (name) => {
      const plan = () => ggufTensors("x.gguf", [{ name, dtype: "F32", shape: [1] }]);
      const bytes = Buffer.byteLength(name);
      if (bytes > 63) expect(plan).toThrow(`its name has ${bytes} bytes; ggml reads 63`);
      else expect(plan()).toMatchObject([{ name }]);
    }),
    { numRuns: draws(400, 30) },
  );
});

it("no file remains if the data have less, more or other tensors than the plan", () =>
  inFolder(async (folder) => {
    const path = join(folder, "x.gguf");
    const tensors = [
      { name: "x", dtype: "U8" as const, shape: [1, 32] },
      { name: "x.block_scales", dtype: "F8_E4M3" as const, shape: [1, 4] },
    ];
    const bytes = (count: number) => new Uint8Array(count);
    const bodies: readonly [string, Parameters<typeof writeGguf>[2]][] = [
      ["nothing", async () => {}],
      ["no scales", async (writeTensor) => writeTensor("x", bytes(32))],
      ["more", async (writeTensor) => writeTensor("x", bytes(33))],
      ["out of order", async (writeTensor) => writeTensor("x", bytes(16), 16)],
      ["another", async (writeTensor) => writeTensor("y", bytes(1))],
    ];
    for (const [title, body] of bodies) {
      await expect(writeGguf(path, { tensors, metadata: [] }, body), title).rejects.toThrow();
      expect(readdirSync(folder), title).toEqual([]);
    }
    await writeGguf(path, { tensors, metadata: [] }, async (writeTensor) => {
      await writeTensor("x", bytes(7), 0);
      await writeTensor("x.block_scales", bytes(4), 0);
      await writeTensor("x", bytes(25), 7);
    });
    const file = await openGgufFile(path);
    expect([...file.tensors.keys()]).toEqual(["x", "x.block_scales"]);
    await file.close();
  }));

describe("a stack of experts has one scale for each of them", () => {
  const EXPERTS = 3;
  const NAME = "blk.0.ffn_up_exps";
  /** Experts of very different magnitudes, as one file of plain values. */
  const stack = (): StoredTensor => {
    const bytes = new Uint8Array(4 * EXPERTS * 4 * 64);
    const floats = new Float32Array(bytes.buffer);
    floats.forEach((_, i) => {
      floats[i] = ((i * 37) % 101) * 2 ** (4 * Math.floor(i / 256) - 8) - 2 ** -9;
    });
    return { dtype: "F32", shape: [EXPERTS, 4, 64], bytes };
  };
  const writeGgufFile = async (
    folder: string,
    name: string,
    tensors: Record<string, StoredTensor>,
  ): Promise<string> => {
    const path = join(folder, name);
    const plan = Object.entries(tensors).map(([tensorName, { dtype, shape }]) => ({
      name: tensorName,
      dtype,
      shape,
    }));
    await writeGguf(path, { tensors: plan, metadata: [] }, async (writeTensor) => {
      for (const [tensorName, { bytes }] of Object.entries(tensors)) await writeTensor(tensorName, bytes);
    });
    return path;
  };
  /** A file with one expert only, converted. */
  const convertExpert = async (folder: string, expert: number) => {
    const { bytes } = stack();
    const expertTensors = {
      dtype: "F32" as const,
      shape: [4, 64],
      bytes: bytes.slice(1024 * expert, 1024 * (expert + 1)),
    };
    const path = await writeGgufFile(folder, `one-${expert}.gguf`, { [`${NAME}.weight`]: expertTensors });
    await convertTo(backend(), path, join(folder, `one-${expert}`), "gguf-nvfp4");
    return { ...(await readContents(join(folder, `one-${expert}`))), path: join(folder, `one-${expert}`) };
  };

  it("is quantized and read like each expert on its own", () =>
    inFolder(async (folder) => {
      const path = await writeGgufFile(folder, "all.gguf", { [`${NAME}.weight`]: stack() });
      const { plan, changes } = await convertTo(backend(), path, join(folder, "all"), "gguf-nvfp4");
      expect([...plan.converted]).toEqual([[`${NAME}.weight`, "quantized"]]);
      const { tensors } = await readContents(join(folder, "all"));
      const globals = tensors.get(`${NAME}.scale`);
      expect([globals?.dtype, globals?.shape]).toEqual(["F32", [EXPERTS]]);
      const values = (await valuesIn(join(folder, "all"))).get(`${NAME}.weight`);
      for (let expert = 0; expert < EXPERTS; expert++) {
        const expertFile = await convertExpert(folder, expert);
        for (const end of [".weight", ".weight.block_scales", ".scale"]) {
          const [expertBytes, stackBytes] = [
            expertFile.tensors.get(NAME + end)?.bytes,
            tensors.get(NAME + end)?.bytes,
          ];
          const size = expertBytes?.length ?? 0;
          expect([end, stackBytes?.slice(expert * size, (expert + 1) * size)]).toEqual([end, expertBytes]);
        }
        const expertValues = (await valuesIn(expertFile.path)).get(`${NAME}.weight`);
        expect(values?.slice(expert * 256, (expert + 1) * 256)).toEqual(expertValues);
      }
      expect(new Set(new Float32Array(globals?.bytes.slice().buffer ?? new ArrayBuffer(0))).size).toBe(
        EXPERTS,
      );
      const { findings, weights } = await reportOf(join(folder, "all"));
      expect(findings).toEqual([]);
      expect(weights[0]?.scales.globals).toHaveLength(EXPERTS);
      // the reported changes are the actual ones
      const source = new Float32Array(stack().bytes.buffer);
      expect(changes[0]?.changed).toBe(source.filter((value, i) => value !== values?.[i]).length);
    }));

  it("is carried over to the same form, and dequantized and quantized to others by its values", () =>
    inFolder(async (folder) => {
      const path = await writeGgufFile(folder, "all.gguf", { [`${NAME}.weight`]: stack() });
      const firstPath = join(folder, "first");
      await convertTo(backend(), path, firstPath, "gguf-nvfp4");
      const secondConversion = await convertTo(backend(), firstPath, join(folder, "again"), "gguf-nvfp4");
      expect([...secondConversion.plan.converted.values()]).toEqual(["repacked"]);
      expect((await readContents(join(folder, "again"))).tensors).toEqual(
        (await readContents(firstPath)).tensors,
      );
      const values = (await valuesIn(firstPath)).get(`${NAME}.weight`) ?? new Float64Array();
      await convertTo(backend(), firstPath, join(folder, "wide"), "f32");
      const wideTensor = (await readContents(join(folder, "wide"))).tensors.get(`${NAME}.weight`);
      expect(new Float32Array(wideTensor?.bytes.slice().buffer ?? new ArrayBuffer(0))).toEqual(
        Float32Array.from(values),
      );
      const otherConversion = await convertTo(
        backend(),
        firstPath,
        join(folder, "other"),
        "torchao-nvfp4-two-level",
      );
      expect([...otherConversion.plan.converted.values()]).toEqual(["quantized"]);
      // codes and scales under one global scale become a stack with that scale for each expert
      await convertTo(backend(), join(folder, "other"), join(folder, "back"), "gguf-nvfp4");
      const back = (await readContents(join(folder, "back"))).tensors.get(`${NAME}.scale`);
      expect(back?.shape).toEqual([EXPERTS]);
      expect((await valuesIn(join(folder, "back"))).get(`${NAME}.weight`)).toEqual(
        (await valuesIn(join(folder, "other"))).get(`${NAME}.weight`),
      );
    }));

  it("of another number of scales is named, and no conversion begins", () =>
    inFolder(async (folder) => {
      const path = await writeGgufFile(folder, "all.gguf", { [`${NAME}.weight`]: stack() });
      await convertTo(backend(), path, join(folder, "all"), "gguf-nvfp4");
      const { tensors } = await readContents(join(folder, "all"));
      for (const shape of [[1], [2], [4], [EXPERTS, 1]]) {
        const count = shape.reduce((product, size) => product * size, 1);
        const scale: StoredTensor = { dtype: "F32", shape, bytes: new Uint8Array(4 * count) };
        const badPath = await writeGgufFile(folder, "bad.gguf", {
          ...Object.fromEntries(tensors),
          [`${NAME}.scale`]: scale,
        });
        const { findings } = await reportOf(badPath);
        const finding = findings.find(({ name }) => name === "scale-shape");
        expect(finding?.what, String(shape)).toBe(
          `${NAME}.scale has shape [${shape}]; it must be [${EXPERTS}], one number for each matrix`,
        );
        await expect(convertTo(backend(), badPath, join(folder, "no"), "bf16")).rejects.toThrow(
          /scale-shape/,
        );
      }
    }));

  it("whose scale of one expert is zero or no number is named", () =>
    inFolder(async (folder) => {
      const path = await writeGgufFile(folder, "all.gguf", { [`${NAME}.weight`]: stack() });
      await convertTo(backend(), path, join(folder, "all"), "gguf-nvfp4");
      const { tensors } = await readContents(join(folder, "all"));
      for (const [value, name] of [
        [0, "scale-zero"],
        [Number.NaN, "scale-not-finite"],
        [-1, "scale-negative"],
      ] as const) {
        const scaleBytes = tensors.get(`${NAME}.scale`)?.bytes.slice() ?? new Uint8Array();
        new DataView(scaleBytes.buffer).setFloat32(4, value, true);
        const scale: StoredTensor = { dtype: "F32", shape: [EXPERTS], bytes: scaleBytes };
        const badPath = await writeGgufFile(folder, "bad.gguf", {
          ...Object.fromEntries(tensors),
          [`${NAME}.scale`]: scale,
        });
        expect((await reportOf(badPath)).findings.map((finding) => finding.name)).toContain(name);
      }
    }));
});
