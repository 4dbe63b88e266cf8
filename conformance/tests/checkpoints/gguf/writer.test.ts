/** GGUF files that conversions write: the bytes of gguf-py's own writer, its quantizer's codes, and refusals. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { planConversion } from "../../../../src/checkpoints/convert/plan/plan.js";
import { ggmlScale, quantizeMxfp4 } from "../../../../src/checkpoints/convert/quantize/ggml.js";
import { parseTarget } from "../../../../src/checkpoints/convert/targets/named.js";
import { writeConversion } from "../../../../src/checkpoints/convert/write.js";
import { GgufFile } from "../../../../src/checkpoints/gguf/file.js";
import { blockType } from "../../../../src/checkpoints/gguf/types.js";
import { packBlocks } from "../../../../src/checkpoints/gguf/views.js";
import { ggufTensors, writeGguf } from "../../../../src/checkpoints/gguf/writer.js";
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
  type Held,
  inFolder,
  readContents,
  reportOf,
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
      const written = readFileSync(join(GGUF, `gguf-written-${name}.gguf`));
      expect(Buffer.compare(readFileSync(join(out, "model.gguf")), written)).toBe(0);
      const config = JSON.parse(readFileSync(join(out, "config.json"), "utf8"));
      expect(config.quantization_config).toBeUndefined();
    }));
});

const witness = recordedPackages().find(({ origin }) => origin.package === "gguf");
const recorded = (witness?.dialects ?? []).filter(({ dialect }) => dialect === "gguf-mxfp4");
/** NaN and infinity are refused here; the package refuses rows that are not whole blocks. */
const REFUSED = ["nan", "infinity", "ragged"];
const cases = recorded.flatMap(({ cases }) =>
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
    const leftOut = new Set<number>();
    for (let block = 0; block < scales.length; block++) {
      const own = bytesOf(block, 1);
      const amax = own.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
      // the package's byte wraps around
      if (amax > 0 && amax < 2 ** -125) {
        leftOut.add(Math.floor((block * 32) / columns));
        continue;
      }
      expect(
        quantizeMxfp4(
          own,
          codes.subarray(block * 16, block * 16 + 16),
          scales.subarray(block, block + 1),
          new Float32Array(1),
        ),
      ).toBe(true);
    }
    const type = blockType("F8_E8M0");
    if (!type || !witness) throw new Error("the witness and the type are there");
    const packed = packBlocks(type, codes, scales);
    const halves = Uint8Array.from(codes, (_, i) => packed[Math.floor(i / 16) * 17 + 1 + (i % 16)] as number);
    const { codes: theirs, scale } = row.results ?? {};
    if (!theirs || !scale) throw new Error("codes and scales are recorded");
    const skip = (at: number): boolean => leftOut.has(at);
    expect(difference(witness, scale, scales, skip)).toBeUndefined();
    expect(difference(witness, theirs, halves, skip)).toBeUndefined();
    expect(leftOut.size, row.case).toBeLessThan(rows);
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
  .map(({ kind, rows, columns, seed, global, wild }) => {
    const draw = (count: number, below: number, salt: number) =>
      Uint8Array.from({ length: count }, (_, i) => (Math.imul(i + seed, 0x9e3779b1 ^ salt) >>> 9) % below);
    const codes = draw((rows * columns) / 2, 256, 1);
    const size = kind === "mxfp4" ? 32 : 16;
    const drawn = draw((rows * columns) / size, wild ? (kind === "mxfp4" ? 255 : 127) : 16, 2);
    const scales = wild ? drawn : drawn.map((scale) => scale + 104);
    return { kind, rows, columns, codes, scales, global };
  });

it("codes and scales are moved both ways without a change, and values are the same", () =>
  fc.assert(
    fc.asyncProperty(blocks, ({ kind, rows, columns, codes, scales, global }) =>
      inFolder(async (folder) => {
        const nv = kind === "nvfp4";
        const tensors = new Map<string, Held>([
          ["a.o_proj.weight", { dtype: "U8", shape: [rows, columns / 2], bytes: codes }],
          [
            "a.o_proj.weight_scale",
            { dtype: nv ? "F8_E4M3" : "U8", shape: [rows, columns / (nv ? 16 : 32)], bytes: scales },
          ],
        ]);
        if (nv) {
          const bytes = new Uint8Array(Float32Array.of(global).buffer);
          tensors.set("a.o_proj.weight_scale_2", { dtype: "F32", shape: [], bytes });
        } else {
          const held = tensors.get("a.o_proj.weight");
          tensors.delete("a.o_proj.weight");
          if (held) tensors.set("a.o_proj.weight_packed", held);
        }
        const own = nv
          ? { quant_method: "modelopt", quant_algo: "NVFP4" }
          : { quant_method: "compressed-tensors", format: "mxfp4-pack-quantized" };
        const config = { quantization_config: own };
        const source = join(folder, "source");
        mkdirSync(source);
        await writeContents(source, { tensors, metadata: {}, json: new Map([["config.json", config]]) });
        if (errorsIn((await reportOf(source)).findings).length > 0) {
          await expect(convertTo(backend(), source, join(folder, "there"), `gguf-${kind}`)).rejects.toThrow(
            FileError,
          );
          return;
        }
        const [there, again, back] = ["there", "again", "back"].map((each) => join(folder, each)) as [
          string,
          string,
          string,
        ];
        const first = await convertTo(backend(), source, there, `gguf-${kind}`);
        const second = await convertTo(backend(), there, again, `gguf-${kind}`);
        const third = await convertTo(backend(), again, back, nv ? "modelopt-nvfp4" : "ct-mxfp4");
        for (const { plan, changes } of [first, second, third]) {
          expect([...plan.converted.values()]).toEqual(["repacked"]);
          expect(changes.map(({ changed }) => changed)).toEqual([0]);
        }
        expect((await readContents(back)).tensors).toEqual(tensors);
        const file = (path: string) => readFileSync(join(path, "model.gguf"));
        expect(file(again).equals(file(there))).toBe(true);
        const plus = (values: Map<string, Float64Array>) =>
          [...values].map(([, own]) => own.map((x) => x + 0));
        expect(plus(await valuesIn(there))).toEqual(plus(await valuesIn(source)));
        const gguf = await GgufFile.open(join(there, "model.gguf"));
        expect(await gguf.read(gguf.entry("a.o_proj.weight"))).toEqual(codes);
        await gguf.close();
      }),
    ),
    { numRuns: draws(15) },
  ));

it("bytes that are numbers in GGUF alone are quantized anew", () =>
  inFolder(async (folder) => {
    // 2^127 and a zero of the scale: NaN in other conventions
    for (const [type, dimensions, data, to] of [
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
      const { plan } = await convertTo(backend(), path, join(folder, `${type}`), to);
      expect([...plan.converted.values()]).toEqual(["quantized"]);
    }
  }));

const drawnTensor = (rows: number, columns: number): Held => ({
  dtype: "BF16",
  shape: [rows, columns],
  bytes: new Uint8Array(Uint16Array.from({ length: rows * columns }, (_, i) => 0x3c00 + (i % 399)).buffer),
});

describe("a model of several shards", () => {
  const write = async (folder: string) => {
    const map: Record<string, string> = {};
    for (const part of [1, 2]) {
      const inner = join(folder, "part");
      mkdirSync(inner, { recursive: true });
      const tensors = new Map([[`m.${part}.o_proj.weight`, drawnTensor(4, 64)]]);
      await writeContents(inner, { tensors, metadata: {}, json: new Map() });
      const name = `some-${part}.safetensors`;
      writeFileSync(join(folder, name), readFileSync(join(inner, "model.safetensors")));
      map[`m.${part}.o_proj.weight`] = name;
    }
    writeFileSync(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map: map }));
    writeFileSync(join(folder, "config.json"), JSON.stringify({ model_type: "qwen3" }));
    writeFileSync(join(folder, "tokenizer.json"), "{}");
  };

  it("becomes the files of a split one, which are read together and go on after an interruption", async () => {
    mkdirSync(w.path("in"));
    await write(w.path("in"));
    const checkpoint = await openCheckpointFiles(w.path("in"));
    const target = parseTarget("gguf-mxfp4");
    const plan = await planConversion(checkpoint, { target, backend: () => Promise.resolve(backend()) });
    let seen = 0;
    const stop = (count: number): void => {
      seen += count;
      if (seen > plan.bytes / 2) throw new Error("interrupted");
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
    const [before, after] = [await reportOf(source), await reportOf(join(folder, "out"))];
    const { "general.alignment": _, ...kept } = before.gguf?.metadata ?? {};
    expect(after.gguf?.metadata).toEqual({
      ...kept,
      "general.file_type": 38,
      "general.quantization_version": 2,
    });
    const raw = readFileSync(join(folder, "out", "model.gguf"));
    expect(raw.includes("größer")).toBe(true);
    // rows of 96 elements are not whole blocks of NVFP4
    const refused = convertTo(backend(), source, join(folder, "no"), "gguf-nvfp4");
    await expect(refused).rejects.toThrow(/ffn_up_exps.*no multiple of 64/);
  }));

const ones = (count: number): Uint8Array => new Uint8Array(new Float32Array(count).fill(1).buffer);

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
    await writeGguf(path, { tensors, metadata: [] }, async (put) => {
      for (const { name, shape } of tensors)
        await put(name, ones(shape.reduce((product, size) => product * size, 1)));
    });
    for (const to of ["gguf-mxfp4", "gguf-nvfp4", "ct-mxfp4"]) {
      const { plan } = await convertTo(backend(), path, join(folder, to), to);
      expect([...plan.converted.keys()]).toEqual([
        "blk.0.attn_q.weight",
        "blk.0.ffn_gate.weight",
        "blk.0.ffn_up_exps.weight",
      ]);
    }
  }));

describe("a tensor that GGUF cannot hold is refused before anything is written", () => {
  const held = drawnTensor(4, 64);
  const plain = (dtype: FileDType, shape: readonly number[], bytes: number): Held => ({
    dtype,
    shape,
    bytes: new Uint8Array(bytes),
  });
  it.each<readonly [string, Record<string, Held>, RegExp]>([
    ["another type", { flags: plain("BOOL", [3], 3) }, /"flags": is BOOL, a type that GGUF has not/],
    ["more dimensions", { deep: plain("F32", [1, 1, 1, 1, 2], 8) }, /"deep": has 5 dimensions; GGUF has 4/],
    ["a longer name", { ["x".repeat(64)]: plain("F32", [1], 4) }, /its name has 64 bytes; ggml reads 63/],
  ])("%s", (_, other, why) =>
    inFolder(async (folder) => {
      const tensors = new Map(Object.entries({ "a.o_proj.weight": held, ...other }));
      await writeContents(folder, { tensors, metadata: {}, json: new Map() });
      const out = join(folder, "out");
      await expect(convertTo(backend(), folder, out, "gguf-mxfp4")).rejects.toThrow(why);
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
      ["no scales", async (put) => put("x", bytes(32))],
      ["more", async (put) => put("x", bytes(33))],
      ["out of order", async (put) => put("x", bytes(16), 16)],
      ["another", async (put) => put("y", bytes(1))],
    ];
    for (const [what, body] of bodies) {
      await expect(writeGguf(path, { tensors, metadata: [] }, body), what).rejects.toThrow();
      expect(readdirSync(folder), what).toEqual([]);
    }
    await writeGguf(path, { tensors, metadata: [] }, async (put) => {
      await put("x", bytes(7), 0);
      await put("x.block_scales", bytes(4), 0);
      await put("x", bytes(25), 7);
    });
    const file = await GgufFile.open(path);
    expect([...file.tensors.keys()]).toEqual(["x", "x.block_scales"]);
    await file.close();
  }));

describe("a stack of experts has one scale for each of them", () => {
  const EXPERTS = 3;
  const NAME = "blk.0.ffn_up_exps";
  /** Experts of very different magnitudes, as one file of plain values. */
  const stack = (): Held => {
    const bytes = new Uint8Array(4 * EXPERTS * 4 * 64);
    const floats = new Float32Array(bytes.buffer);
    floats.forEach((_, i) => {
      floats[i] = ((i * 37) % 101) * 2 ** (4 * Math.floor(i / 256) - 8) - 2 ** -9;
    });
    return { dtype: "F32", shape: [EXPERTS, 4, 64], bytes };
  };
  const written = async (folder: string, name: string, tensors: Record<string, Held>): Promise<string> => {
    const path = join(folder, name);
    const plan = Object.entries(tensors).map(([each, { dtype, shape }]) => ({ name: each, dtype, shape }));
    await writeGguf(path, { tensors: plan, metadata: [] }, async (put) => {
      for (const [each, { bytes }] of Object.entries(tensors)) await put(each, bytes);
    });
    return path;
  };
  /** A file with one expert only, converted. */
  const alone = async (folder: string, expert: number) => {
    const { bytes } = stack();
    const one = {
      dtype: "F32" as const,
      shape: [4, 64],
      bytes: bytes.slice(1024 * expert, 1024 * (expert + 1)),
    };
    const path = await written(folder, `one-${expert}.gguf`, { [`${NAME}.weight`]: one });
    await convertTo(backend(), path, join(folder, `one-${expert}`), "gguf-nvfp4");
    return { ...(await readContents(join(folder, `one-${expert}`))), path: join(folder, `one-${expert}`) };
  };

  it("is quantized as the experts alone are, and read as they are", () =>
    inFolder(async (folder) => {
      const path = await written(folder, "all.gguf", { [`${NAME}.weight`]: stack() });
      const { plan, changes } = await convertTo(backend(), path, join(folder, "all"), "gguf-nvfp4");
      expect([...plan.converted]).toEqual([[`${NAME}.weight`, "quantized"]]);
      const { tensors } = await readContents(join(folder, "all"));
      const globals = tensors.get(`${NAME}.scale`);
      expect([globals?.dtype, globals?.shape]).toEqual(["F32", [EXPERTS]]);
      const values = (await valuesIn(join(folder, "all"))).get(`${NAME}.weight`);
      for (let expert = 0; expert < EXPERTS; expert++) {
        const one = await alone(folder, expert);
        for (const end of [".weight", ".weight.block_scales", ".scale"]) {
          const [mine, all] = [one.tensors.get(NAME + end)?.bytes, tensors.get(NAME + end)?.bytes];
          const size = mine?.length ?? 0;
          expect([end, all?.slice(expert * size, (expert + 1) * size)]).toEqual([end, mine]);
        }
        const own = (await valuesIn(one.path)).get(`${NAME}.weight`);
        expect(values?.slice(expert * 256, (expert + 1) * 256)).toEqual(own);
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
      const path = await written(folder, "all.gguf", { [`${NAME}.weight`]: stack() });
      const first = join(folder, "first");
      await convertTo(backend(), path, first, "gguf-nvfp4");
      const again = await convertTo(backend(), first, join(folder, "again"), "gguf-nvfp4");
      expect([...again.plan.converted.values()]).toEqual(["repacked"]);
      expect((await readContents(join(folder, "again"))).tensors).toEqual(
        (await readContents(first)).tensors,
      );
      const values = (await valuesIn(first)).get(`${NAME}.weight`) ?? new Float64Array();
      await convertTo(backend(), first, join(folder, "wide"), "f32");
      const wide = (await readContents(join(folder, "wide"))).tensors.get(`${NAME}.weight`);
      expect(new Float32Array(wide?.bytes.slice().buffer ?? new ArrayBuffer(0))).toEqual(
        Float32Array.from(values),
      );
      const other = await convertTo(backend(), first, join(folder, "other"), "torchao-nvfp4-two-level");
      expect([...other.plan.converted.values()]).toEqual(["quantized"]);
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
      const path = await written(folder, "all.gguf", { [`${NAME}.weight`]: stack() });
      await convertTo(backend(), path, join(folder, "all"), "gguf-nvfp4");
      const { tensors } = await readContents(join(folder, "all"));
      for (const shape of [[1], [2], [4], [EXPERTS, 1]]) {
        const count = shape.reduce((product, size) => product * size, 1);
        const scale: Held = { dtype: "F32", shape, bytes: new Uint8Array(4 * count) };
        const bad = await written(folder, "bad.gguf", {
          ...Object.fromEntries(tensors),
          [`${NAME}.scale`]: scale,
        });
        const { findings } = await reportOf(bad);
        const match = findings.find(({ name }) => name === "scale-shape");
        expect(match?.what, String(shape)).toBe(
          `${NAME}.scale has shape [${shape}]; it must be [${EXPERTS}], one number for each matrix`,
        );
        await expect(convertTo(backend(), bad, join(folder, "no"), "bf16")).rejects.toThrow(/scale-shape/);
      }
    }));

  it("whose scale of one expert is zero or no number is named", () =>
    inFolder(async (folder) => {
      const path = await written(folder, "all.gguf", { [`${NAME}.weight`]: stack() });
      await convertTo(backend(), path, join(folder, "all"), "gguf-nvfp4");
      const { tensors } = await readContents(join(folder, "all"));
      for (const [value, name] of [
        [0, "scale-zero"],
        [Number.NaN, "scale-not-finite"],
        [-1, "scale-negative"],
      ] as const) {
        const own = tensors.get(`${NAME}.scale`)?.bytes.slice() ?? new Uint8Array();
        new DataView(own.buffer).setFloat32(4, value, true);
        const scale: Held = { dtype: "F32", shape: [EXPERTS], bytes: own };
        const bad = await written(folder, "bad.gguf", {
          ...Object.fromEntries(tensors),
          [`${NAME}.scale`]: scale,
        });
        expect((await reportOf(bad)).findings.map((each) => each.name)).toContain(name);
      }
    }));
});
