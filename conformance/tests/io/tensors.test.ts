/**
 * Named tensors in files: they are loaded as they were saved, in one format for programs, the command line and
 * checkpoints.
 */
import { createHash } from "node:crypto";
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, FileError, LockstepError } from "../../../src/errors.js";
import { FILE_DTYPES } from "../../../src/io/dtypes.js";
import {
  loadCheckpoint,
  loadTensors,
  type NamedTensor,
  SafetensorsFile,
  saveCheckpoint,
  saveTensors,
  writeSafetensors,
} from "../../../src/io/index.js";
import { Linear } from "../../../src/modules/linear.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { Quantizer } from "../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { MXFP8BlockScaling, NVFP4BlockScaling } from "../../../src/recipes/block-scaled.js";
import { DelayedScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { DIRECTIONS, QuantizedTensor, type QuantizeSpec } from "../../../src/tensor/quantized.js";
import { DTYPES, type DType, WIDE_DTYPES } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { quantizeSpec, USAGES } from "../../arbitraries/specs.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { useFolder } from "./folder.js";

const VECTORS = "conformance/vectors/io";
let folder = "";
let path = "";
useFolder((createdFolder) => {
  folder = createdFolder;
  path = join(folder, "tensors.safetensors");
});

const backend = useBackend({ threads: 1 });

/** Element types that files support, directly or as packed 6-bit codes. */
const STORED = DTYPES.filter(
  (dtype) =>
    ["e2m3", "e3m2"].includes(dtype) ||
    Object.values(FILE_DTYPES).some((row) => "dtype" in row && row.dtype === dtype),
);
const NOT_IN_FILES = DTYPES.filter((dtype) => !STORED.includes(dtype));

class Plain extends Quantizer {}

interface Drawn {
  readonly name: string;
  readonly seed: number;
  readonly plainTensor?: { readonly dtype: DType; readonly shape: readonly number[] };
  readonly quantizedTensor?: {
    readonly spec: QuantizeSpec;
    readonly shape: readonly number[];
    readonly dtype: "f32" | "bf16" | "f16";
    readonly usage: { readonly rowwise: boolean; readonly columnwise: boolean };
    readonly scaleLayout: "logical" | "padded" | "swizzled";
  };
}

const name = fc.oneof(
  { weight: 6, arbitrary: fc.stringMatching(/^[a-z]{1,3}(\.[a-z]{1,2})?$/) },
  fc.string({ unit: "grapheme", minLength: 1, maxLength: 8 }),
  fc.constantFrom("checkpoint", "__proto__", "constructor", "0", "-1"),
);
const seed = fc.nat();
const plainTensor = fc.record({
  dtype: fc.constantFrom(...STORED),
  shape: fc.array(fc.constantFrom(0, 1, 2, 3, 4, 8), { maxLength: 3 }).map((sizes) => [...sizes, 4]),
});
const quantizedTensor = quantizeSpec().chain((spec) =>
  fc.record({
    spec: fc.constant(spec),
    shape: fc.constantFrom([128, 128], [2, 64, 128], [256, 384], [0, 128], [128, 0]),
    dtype: fc.constantFrom(...WIDE_DTYPES),
    usage: fc.constantFrom(...USAGES),
    scaleLayout: fc.constantFrom("logical" as const, "padded" as const, "swizzled" as const),
  }),
);
const drawnTensor: fc.Arbitrary<Drawn> = fc.oneof(
  fc.record({ name, seed, plainTensor }),
  fc.record({ name, seed, quantizedTensor }),
);
const drawnTensors = fc.uniqueArray(drawnTensor, { selector: (record) => record.name, maxLength: 5 });

function noise(x: Tensor, seed: number): void {
  const bytes = new Uint8Array(x.byteLength);
  let state = seed | 1;
  for (let i = 0; i < bytes.length; i++) {
    state = Math.imul(state, 1664525) + 1013904223;
    bytes[i] = x.dtype === "e2m3" || x.dtype === "e3m2" ? (state >>> 24) & 63 : state >>> 24;
  }
  x.write(bytes);
}

/** A drawn tensor; undefined if the spec does not support the layout. */
function make({ seed, plainTensor, quantizedTensor }: Drawn): NamedTensor | undefined {
  if (plainTensor) {
    const createdTensor = empty(backend(), plainTensor.dtype, plainTensor.shape);
    noise(createdTensor, seed);
    return createdTensor;
  }
  if (!quantizedTensor) return undefined;
  const { spec, shape, dtype, usage, scaleLayout } = quantizedTensor;
  try {
    const createdTensor = new Plain(spec, { ...usage, scaleLayout }).makeEmpty(backend(), shape, dtype);
    for (const member of createdTensor.members) noise(member, seed);
    return createdTensor;
  } catch (error) {
    if (error instanceof LockstepError) return undefined;
    throw error;
  }
}

const bytesOf = (x: Tensor): Buffer => {
  const { buffer, byteOffset, byteLength } = x.dataSync();
  return Buffer.from(buffer, byteOffset, byteLength);
};

function expectEqual(actual: NamedTensor | undefined, expected: NamedTensor): void {
  if (expected instanceof QuantizedTensor) {
    if (!(actual instanceof QuantizedTensor)) throw new Error("is not quantized");
    expect([actual.spec, actual.shape, actual.dtype, actual.scaleLayout]).toEqual([
      expected.spec,
      expected.shape,
      expected.dtype,
      expected.scaleLayout,
    ]);
    expect(actual.usage).toEqual(expected.usage);
    for (const direction of DIRECTIONS)
      for (const field of ["data", "scaleInv", "amax"] as const) {
        const [actualMember, expectedMember] = [actual[direction]?.[field], expected[direction]?.[field]];
        expect(actualMember === undefined).toBe(expectedMember === undefined);
        if (actualMember && expectedMember) expectEqual(actualMember, expectedMember);
      }
    return;
  }
  if (!actual || actual instanceof QuantizedTensor) throw new Error("is not plain");
  expect([actual.dtype, actual.shape]).toEqual([expected.dtype, expected.shape]);
  expect(bytesOf(actual).equals(bytesOf(expected))).toBe(true);
}

function dispose(tensors: Iterable<NamedTensor>): void {
  for (const tensorToFree of tensors) tensorToFree.dispose();
}

const metadata = fc.dictionary(
  name.filter((key) => key !== "__proto__"),
  fc.string({ unit: "grapheme", maxLength: 8 }),
  { maxKeys: 3 },
);

describe("tensors that are saved", () => {
  it("are loaded with the same types, shapes, specs and bits, and saved again as the same bytes", async () => {
    let count = 0;
    await fc.assert(
      fc.asyncProperty(drawnTensors, metadata, async (drawnRecords, texts) => {
        const tensors = new Map(
          drawnRecords.flatMap((record) => {
            const createdTensor = make(record);
            return createdTensor ? [[record.name, createdTensor] as const] : [];
          }),
        );
        await saveTensors(path, tensors, { metadata: texts });
        const bytes = readFileSync(path);
        const file = await loadTensors(path, backend());
        expect(file.metadata).toEqual(texts);
        expect([...file.tensors.keys()].sort()).toEqual([...tensors.keys()].sort());
        for (const [key, value] of tensors) expectEqual(file.tensors.get(key), value);
        await saveTensors(path, new Map([...tensors.keys()].map((key) => [key, file.tensors.get(key)!])), {
          metadata: texts,
        });
        expect(readFileSync(path).equals(bytes)).toBe(true);
        count += tensors.size;
        dispose([...tensors.values(), ...file.tensors.values()]);
      }),
      { numRuns: draws(300) },
    );
    expect(count).toBeGreaterThan(draws(300));
  });

  it("have the values at the time of the call", async () => {
    const x = tensor(backend(), [1, 2, 3, 4]);
    const pendingSave = saveTensors(path, { x });
    x.dispose();
    await pendingSave;
    const { tensors } = await loadTensors(path, backend());
    expect([...(tensors.get("x") as Tensor).dataSync()]).toEqual([1, 2, 3, 4]);
    dispose(tensors.values());
  });

  it("are loaded by name, quantized ones too", async () => {
    const x = tensor(
      backend(),
      Float32Array.from({ length: 64 }, (_, i) => i),
      [8, 8],
    );
    const w = new Float8CurrentScalingQuantizer().quantize(x);
    await saveTensors(path, { x, w });
    for (const names of [["x"], ["w"], ["w", "x"], []]) {
      const { tensors } = await loadTensors(path, backend(), { names });
      expect([...tensors.keys()].sort()).toEqual([...names].sort());
      dispose(tensors.values());
    }
    const part = await loadTensors(path, backend(), { names: ["w.rowwise.data"] });
    expect((part.tensors.get("w.rowwise.data") as Tensor).dtype).toBe("u8");
    dispose(part.tensors.values());
    await expect(loadTensors(path, backend(), { names: ["x", "y"] })).rejects.toThrow(
      /"y" is needed and not there/,
    );
    dispose([x, w]);
  });

  it("pack codes of six bits four in three bytes, from the low bits on", async () => {
    const codes = Uint8Array.of(0b000001, 0b100000, 0b111111, 0b010101);
    const x = tensor(backend(), codes, [4], "e2m3");
    await saveTensors(path, { x });
    const file = await SafetensorsFile.open(path);
    expect(file.entry("x")).toMatchObject({ dtype: "F6_E2M3", shape: [4] });
    const word = codes.reduce((sum, code, i) => sum + code * 64 ** i, 0);
    expect([...(await file.read(file.entry("x")))]).toEqual([word & 255, (word >> 8) & 255, word >> 16]);
    await file.close();
    const three = tensor(backend(), codes.subarray(0, 3), [3], "e2m3");
    await expect(saveTensors(path, { three })).rejects.toThrow(DTypeError);
    dispose([x, three]);
  });
});

describe("what cannot be saved", () => {
  it.each([
    ["metadata of the library", { "lockstep.x": "1" }, ArgumentError, /keys that begin with "lockstep."/],
    ["metadata that are no texts", { step: 3 as unknown as string }, ArgumentError, /metadata.step is/],
  ])("is refused, and no file appears: %s", async (_name, texts, kind, message) => {
    const x = tensor(backend(), [1]);
    const error: unknown = await saveTensors(path, { x }, { metadata: texts }).catch(
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(kind);
    expect((error as Error).message).toMatch(message);
    expect(readdirSync(folder)).toEqual([]);
    x.dispose();
  });

  it("is refused if two would have one name, or if files have no such type", async () => {
    const x = tensor(
      backend(),
      Float32Array.from({ length: 64 }, (_, i) => i),
      [8, 8],
    );
    const w = new Float8CurrentScalingQuantizer().quantize(x);
    await expect(saveTensors(path, { w, "w.rowwise.data": x })).rejects.toThrow(FileError);
    for (const dtype of NOT_IN_FILES) {
      const otherTensor = empty(backend(), dtype, [4]);
      await expect(saveTensors(path, { other: otherTensor })).rejects.toThrow(DTypeError);
      otherTensor.dispose();
    }
    w.updateUsage({ rowwise: false });
    await expect(saveTensors(path, { w })).rejects.toThrow(ArgumentError);
    expect(readdirSync(folder)).toEqual([]);
    dispose([x, w]);
  });
});

describe("corrupt files", () => {
  it("give tensors or a FileError, and leak no memory", async () => {
    const x = tensor(
      backend(),
      Float32Array.from({ length: 1024 }, (_, i) => i),
      [32, 32],
    );
    const w = new MXFP8Quantizer({ columnwise: true }).quantize(x);
    await saveTensors(path, { x, w }, { metadata: { note: "text" } });
    dispose([x, w]);
    const wholeFile = readFileSync(path);
    const header = 8 + Number(wholeFile.readBigUInt64LE());
    const place = fc.oneof({ weight: 9, arbitrary: fc.nat(header - 1) }, fc.nat(wholeFile.length - 1));
    let numRefused = 0;
    await fc.assert(
      fc.asyncProperty(
        place,
        fc.integer({ min: 1, max: 255 }),
        fc.boolean(),
        async (position, mask, isTruncated) => {
          const damagedBytes = Buffer.from(isTruncated ? wholeFile.subarray(0, position) : wholeFile);
          if (!isTruncated) damagedBytes[position] = (damagedBytes[position] as number) ^ mask;
          writeFileSync(path, damagedBytes);
          try {
            dispose((await loadTensors(path, backend())).tensors.values());
          } catch (error) {
            expect(error).toBeInstanceOf(FileError);
            expect((error as Error).message).toContain(path);
            numRefused++;
          }
          expect(backend().memoryUse()).toMatchObject({ live: 0, blocks: 0 });
        },
      ),
      { numRuns: draws(400) },
    );
    expect(numRefused).toBeGreaterThan(draws(400) / 2);
  });

  it.each([
    ["{}", /quantizer is absent/],
    [
      '{"quantizer":"mxfp8","format":"e4m3","shape":[32,32],"dtype":"f32","scales":"logical","usage":["rowwise"]}',
      /"w.rowwise.data" is needed/,
    ],
    ["[", /not valid JSON/],
    ["null", /quantizer is absent/],
  ])("are refused if the metadata of a quantized tensor are %s", async (recipe, message) => {
    await writeSafetensors(path, { tensors: [], metadata: { "lockstep.w": recipe } }, async () => {});
    await expect(loadTensors(path, backend())).rejects.toThrow(message);
    await expect(loadTensors(path, backend())).rejects.toThrow(FileError);
  });

  it("are refused by name if tensors have no such type", async () => {
    await writeSafetensors(path, { tensors: [{ name: "steps", dtype: "I64", shape: [1] }] }, (writeTensor) =>
      writeTensor("steps", new Uint8Array(8)),
    );
    await expect(loadTensors(path, backend())).rejects.toThrow(
      /"steps": is I64, an element type that tensors do not have/,
    );
    expect((await loadTensors(path, backend(), { names: [] })).tensors.size).toBe(0);
  });

  it("are read only by the file's own entries, within their bytes", async () => {
    const plan = { tensors: [{ name: "a", dtype: "U8", shape: [4] }] } as const;
    await writeSafetensors(path, plan, (writeTensor) => writeTensor("a", Uint8Array.of(1, 2, 3, 4)));
    const file = await SafetensorsFile.open(path);
    const entry = file.entry("a");
    await expect(file.read({ ...entry })).rejects.toThrow(ArgumentError);
    for (const [begin, end] of [
      [-1, 2],
      [0, 5],
      [3, 2],
      [0.5, 1],
      [Number.NaN, 1],
    ])
      await expect(file.read(entry, begin, end)).rejects.toThrow(ArgumentError);
    expect([...(await file.read(entry, 1, 3))]).toEqual([2, 3]);
    await file.close();
  });
});

/** Files of an earlier version; docs/cli.md and docs/training.md describe the formats. */
describe("old files", () => {
  const quantizedFiles = readdirSync(VECTORS).filter((fileName) => fileName.startsWith("quantize-"));

  it.each(quantizedFiles)("%s loads as it was written", async (file) => {
    const source = join(VECTORS, file);
    const rawFile = await SafetensorsFile.open(source);
    const { tensors, metadata: texts } = await loadTensors(source, backend(), { names: ["x"] });
    expect(texts).toEqual({ note: "kept" });
    const x = tensors.get("x");
    if (!(x instanceof QuantizedTensor)) throw new Error("x is not quantized");
    expect(`quantize-${x.spec.quantizer}.safetensors`).toBe(file);
    for (const direction of DIRECTIONS)
      for (const [field, suffix] of [
        ["data", "data"],
        ["scaleInv", "scale_inv"],
        ["amax", "amax"],
      ] as const) {
        const member = x[direction]?.[field];
        const storedTensor = rawFile.tensors.get(`x.${direction}.${suffix}`);
        expect(member === undefined).toBe(storedTensor === undefined);
        if (member && storedTensor)
          expect(bytesOf(member).equals(await rawFile.read(storedTensor))).toBe(true);
      }
    await rawFile.close();
    await saveTensors(path, tensors);
    const reloadedFile = await loadTensors(path, backend());
    expectEqual(reloadedFile.tensors.get("x"), x);
    dispose([...tensors.values(), ...reloadedFile.tensors.values()]);
  });

  const RECIPES: readonly (readonly [string, Recipe, string])[] = [
    ["mxfp8", new MXFP8BlockScaling(), "5079e766c1eaff2084836620b71defe88313ccc2514cf940c19b00cc53b84742"],
    ["nvfp4", new NVFP4BlockScaling(), "1ecff35a918b951ae7584ac7e61a819a491985a96e953159a7056ec42d437cbf"],
    ["delayed", new DelayedScaling(), "7692b8bd2ae3edf855e1d04ae63f6053f5a8ee0373a944c54567726b6dea3bc5"],
  ];

  it.each(RECIPES)(
    "a checkpoint of version 1, %s, loads, and is saved in the form that loadTensors reads",
    async (name, recipe, digest) => {
      copyFileSync(join(VECTORS, `checkpoint-1-${name}.safetensors`), path);
      const random = new RandomState(1n);
      using module = quantizedModelInit({ recipe }, () => new Linear(backend(), 32, 32, { random }));
      using optimizer = new SGD(module, { learningRate: 1, momentum: 0.5 });
      const digestOf = (): string => {
        const hash = createHash("sha256");
        for (const { value } of module.parameters())
          for (const tensorToFree of value instanceof QuantizedTensor ? value.members : [value])
            hash.update(bytesOf(tensorToFree));
        return hash.digest("hex");
      };
      expect(digestOf()).not.toBe(digest);
      expect(await loadCheckpoint(path, { module, optimizer, random })).toEqual({ step: 3 });
      expect(digestOf()).toBe(digest);
      await saveCheckpoint(path, { module, optimizer, random });
      const { tensors } = await loadTensors(path, backend());
      for (const [parameter, { value }] of module.namedParameters())
        expectEqual(tensors.get(`module.${parameter}`), value);
      dispose(tensors.values());
      await loadCheckpoint(path, { module, optimizer, random });
      expect(digestOf()).toBe(digest);
    },
  );
});
