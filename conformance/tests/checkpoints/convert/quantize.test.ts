/**
 * Conversions to codes and scales: they write the bytes of the libraries' own writers, convert every form to every other one, and
 * report the changes.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DIALECT_TARGETS, parseTarget } from "../../../../src/checkpoints/convert/targets/named.js";
import { conventionOf } from "../../../../src/checkpoints/stored/conventions.js";
import { quantizerOf } from "../../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, type DialectName } from "../../../../src/dialects/table.js";
import { ArgumentError, FileError } from "../../../../src/errors.js";
import { blockFormat } from "../../../../src/formats/block.js";
import { fromBytes } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { useWorkspace } from "../../harness/cli.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import {
  type ConversionReport,
  convertTo,
  errorsIn,
  inFolder,
  readContents,
  reportOf,
  type StoredTensor,
  VECTORS,
  valuesIn,
  writeContents,
} from "../files/checkpoints.js";

const w = useWorkspace();
const backend = useBackend({ threads: 1 });
const ORIGINAL = join(VECTORS, "original");

/** The fixtures that a dialect's rule reproduces. The other fixtures have other blocks, or drawn codes. */
const WRITERS: Readonly<Record<string, string>> = {
  "ct-fp8-tensor": "ct-fp8-tensor",
  "ct-fp8-channel": "ct-fp8-channel",
  "ct-int8-channel": "ct-int8-channel",
  "ct-mxfp8": "ct-mxfp8",
  "ct-mxfp6": "ct-mxfp6",
  "ct-mxfp4": "ct-mxfp4",
  "ct-nvfp4": "ct-nvfp4",
  "modelopt-fp8": "modelopt-fp8",
  "modelopt-mxfp4": "modelopt-mxfp4",
  "modelopt-nvfp4": "modelopt-nvfp4",
  "torchao-mxfp8": "torchao-mxfp8-rceil",
  "torchao-nvfp4": "torchao-nvfp4-two-level",
  "torchao-fp8": "torchao-fp8-row",
  "fbgemm-fp8": "fbgemm-fp8",
};
/** Tensors of fixtures that no conversion of the original writes: experts of fbgemm, scales of activations. */
const BESIDE = /\.experts\.|\.input_scale$/;

const readJson = (folder: string, name: string) => JSON.parse(readFileSync(join(folder, name), "utf8"));

describe.each(Object.entries(WRITERS))("the original as %s", (fixture, target) => {
  it("has the bytes of the library's own writer, and its configuration", async () => {
    await convertTo(backend(), ORIGINAL, w.path(fixture), target);
    const [expectedContents, actual] = [
      await readContents(join(VECTORS, fixture)),
      await readContents(w.path(fixture)),
    ];
    const expected = new Map([...expectedContents.tensors].filter(([name]) => !BESIDE.test(name)));
    expect([...actual.tensors.keys()].toSorted()).toEqual([...expected.keys()].toSorted());
    for (const [name, tensor] of expected) expect([name, actual.tensors.get(name)]).toEqual([name, tensor]);
    const parseMetadata = (metadata: Readonly<Record<string, string>>) =>
      Object.fromEntries(
        Object.entries(metadata)
          .filter(([key]) => key !== "format")
          .map(([key, text]) => [key, [JSON.parse(text)].flat(key === "tensor_names" ? 1 : 0).toSorted()]),
      );
    expect(parseMetadata(actual.metadata)).toEqual(parseMetadata(expectedContents.metadata));
    if (!/^(ct|fbgemm)-/.test(fixture)) return;
    expect(actual.json.get("config.json")).toEqual(readJson(join(VECTORS, fixture), "config.json"));
  });
});

it("ModelOpt's configurations leave out what the conversion leaves out, and claim no scales of activations", async () => {
  for (const [name, target] of [
    ["modelopt-fp8", "modelopt-fp8"],
    ["modelopt-nvfp4", "modelopt-nvfp4"],
    ["modelopt-mxfp4", "modelopt-mxfp4"],
    ["modelopt-int8", "modelopt-int8-row"],
  ] as const) {
    await convertTo(backend(), ORIGINAL, w.path(`${name}-config`), target);
    const [expected, actual] = [join(VECTORS, name), w.path(`${name}-config`)].map((folder) => ({
      config: readJson(folder, "config.json").quantization_config,
      own: readJson(folder, "hf_quant_config.json").quantization,
    }));
    expect(actual?.config.ignore.toSorted()).toEqual(expected?.config.ignore.toSorted());
    expect(actual?.own.exclude_modules.toSorted()).toEqual(expected?.own.exclude_modules.toSorted());
    const [ownGroup, otherGroup] = [actual, expected].map((config) => config?.config.config_groups?.group_0);
    expect(ownGroup?.weights).toEqual(otherGroup?.weights);
    expect(ownGroup?.input_activations).toBeUndefined();
    if (name !== "modelopt-nvfp4") expect(actual?.own.quant_algo).toBe(expected?.own.quant_algo);
  }
});

/**
 * The forms that the small weights of the original can have. torchao's modes differ in the quantizer only, so there is one entry
 * for each mode.
 */
const FORMS = DIALECT_TARGETS.filter(
  (name) =>
    !["gpt-oss", "transformers-fp8-block", "modelopt-fp8-block", "gguf-nvfp4"].includes(name) &&
    !/-(ceil|even)$/.test(name),
).filter((name) => !["torchao-mxfp8-floor", "torchao-mxfp4-rceil"].includes(name));

interface Change {
  readonly changed: number;
  readonly max: number;
  readonly relative: number;
}

/** The changes between two sets of values, computed independently. */
function changesBetween(original: Float64Array, converted: Float64Array): Change {
  const differences = [...original.keys()].filter((i) => original[i] !== converted[i]);
  const sizes = differences.map((i) => Math.abs((original[i] as number) - (converted[i] as number)));
  const relativeChanges = differences.map(
    (i, index) => (sizes[index] as number) / Math.abs(original[i] as number),
  );
  return {
    changed: differences.length,
    max: Math.max(0, ...sizes),
    relative: Math.max(0, ...relativeChanges),
  };
}

function expectHonest(
  { changes }: ConversionReport,
  original: ReadonlyMap<string, Float64Array>,
  converted: ReadonlyMap<string, Float64Array>,
): void {
  expect(new Set(converted.keys())).toEqual(new Set(original.keys()));
  for (const { name, changed, max, relative, elements } of changes) {
    const [originalValues, convertedValues] = [
      original.get(name) ?? new Float64Array(),
      converted.get(name) ?? new Float64Array(),
    ];
    expect([name, elements, { changed, max, relative }]).toEqual([
      name,
      originalValues.length,
      changesBetween(originalValues, convertedValues),
    ]);
  }
}

describe.each(sampleCases(FORMS))("%s", (from) => {
  it("converts to other forms and back; verify finds no error, and the report of convert is true", async () => {
    const source = w.path("source");
    await convertTo(backend(), ORIGINAL, source, from);
    const original = await valuesIn(source);
    const otherForms = sampleCases(
      FORMS.filter((form) => form !== from),
      2,
      FORMS.indexOf(from),
    );
    for (const target of [from, ...otherForms]) {
      await inFolder(async (folder) => {
        const [thereFolder, backFolder] = [join(folder, "there"), join(folder, "back")];
        const firstConversion = await convertTo(backend(), source, thereFolder, target);
        expect([target, errorsIn((await reportOf(thereFolder)).findings)]).toEqual([target, []]);
        const between = await valuesIn(thereFolder);
        expectHonest(firstConversion, original, between);
        if (target === from) {
          expect([...firstConversion.plan.converted.values()]).toEqual(Array(7).fill("repacked"));
          expect((await readContents(thereFolder)).tensors).toEqual((await readContents(source)).tensors);
          return;
        }
        const secondConversion = await convertTo(backend(), thereFolder, backFolder, from);
        const returnedValues = await valuesIn(backFolder);
        expectHonest(secondConversion, between, returnedValues);
        const isExact = firstConversion.changes.every(({ changed }) => changed === 0);
        const isRepacked = [...secondConversion.plan.converted.values()].every(
          (conversion) => conversion === "repacked",
        );
        if (isExact && isRepacked) expect(returnedValues).toEqual(original);
      });
    }
  }, 300_000);
});

describe("codes and scales equal the results of the dialect's quantizer for the whole weight", () => {
  const wideType = fc.constantFrom("BF16", "F16", "F32");
  const bits = { BF16: 16, F16: 16, F32: 32 } as const;
  /** Finite elements of many magnitudes, a few of them zero. */
  function drawTensor(dtype: keyof typeof bits, shape: readonly number[], seed: number): StoredTensor {
    const count = shape.reduce((product, size) => product * size, 1);
    const width = bits[dtype] / 8;
    const bytes = new Uint8Array(count * width);
    const view = new DataView(bytes.buffer);
    for (let i = 0; i < count; i++) {
      const hash = Math.imul(i + seed, 0x9e3779b1) >>> 0;
      const exponent = (dtype === "F16" ? 10 : 118) + (hash % 7);
      const sign = (hash >>> 8) & 1;
      const fraction = (hash >>> 9) & 0x7fffff;
      const word = hash % 61 === 0 ? 0 : exponent;
      if (dtype === "F32") view.setUint32(i * 4, ((sign << 31) | (word << 23) | fraction) >>> 0, true);
      else if (dtype === "BF16") view.setUint16(i * 2, (sign << 15) | (word << 7) | (fraction >>> 16), true);
      else view.setUint16(i * 2, (sign << 15) | (word << 10) | (fraction >>> 13), true);
    }
    return { dtype, shape, bytes };
  }

  // blocks of GGUF have codes in another order: gguf/writer.test.ts compares whole files; stored/transpose.test.ts has gpt-oss
  const plainTargets = DIALECT_TARGETS.filter((name) => {
    const { dialectTarget: row } = parseTarget(name);
    return row?.dialect !== undefined && !row.ggml && !conventionOf(row.convention).transposedWide;
  });
  it.each(plainTargets)("%s", async (name) => {
    const target = parseTarget(name);
    const dialect = target.dialectTarget?.dialect as DialectName;
    const { suffix } = conventionOf(target.dialectTarget?.convention ?? "gpt-oss").codes;
    await fc.assert(
      fc.asyncProperty(
        wideType,
        fc.constantFrom([256, 128], [128, 384], [384, 256]),
        fc.nat(1e6),
        async (dtype, shape, seed) => {
          await inFolder(async (folder) => {
            const tensor = drawTensor(dtype, shape, seed);
            const tensors = new Map([["m.o_proj.weight", tensor]]);
            await writeContents(folder, { tensors, metadata: {}, json: new Map() });
            await convertTo(backend(), folder, join(folder, "out"), name);
            using _scope = new Scope();
            const x = fromBytes(backend(), tensor.bytes, shape, dtype.toLowerCase() as "bf16");
            const expectedCopy = quantizerOf({ dialect }).quantize(x).copy("rowwise");
            const { tensors: convertedTensors } = await readContents(join(folder, "out"));
            const codes = convertedTensors.get(`m.o_proj${suffix}`)?.bytes ?? new Uint8Array();
            const expectedCodes = expectedCopy.data.dataSync() as Uint8Array;
            if (expectedCopy.data.dtype === "e2m3") expect(codes.length * 4).toBe(expectedCodes.length * 3);
            else expect(Buffer.compare(codes, expectedCodes)).toBe(0);
            const values = (await valuesIn(join(folder, "out"))).get("m.o_proj.weight");
            expect(values?.every(Number.isFinite)).toBe(true);
            expect(blockFormat(quantizerOf({ dialect }).spec.quantizer).tensorAmax).toBe(
              expectedCopy.amax !== undefined,
            );
          });
        },
      ),
      { numRuns: draws(4, 1) },
    );
  });

  it("also of a weight that is read in several pieces", async () => {
    const tensor = drawTensor("BF16", [2400, 1024], 7);
    const tensors = new Map([["m.o_proj.weight", tensor]]);
    await writeContents(w.path("."), { tensors, metadata: {}, json: new Map() });
    for (const name of ["ct-nvfp4", "deepseek-fp8-block", "torchao-mxfp8-rceil", "ct-fp8-tensor"] as const) {
      const { dialectTarget: row } = parseTarget(name);
      await convertTo(backend(), w.path("."), w.path(`pieces-${name}`), name);
      using _scope = new Scope();
      const scaleLayout = row?.layout === "swizzled" ? "swizzled" : "logical";
      const expectedTensor = quantizerOf({ dialect: name, scaleLayout }).quantize(
        fromBytes(backend(), tensor.bytes, tensor.shape, "bf16"),
      );
      const { data, scaleInv } = expectedTensor.copy("rowwise");
      const { tensors: convertedTensors } = await readContents(w.path(`pieces-${name}`));
      const convention = conventionOf(row?.convention ?? "gpt-oss");
      const bytes = (suffix: string) => convertedTensors.get(`m.o_proj${suffix}`)?.bytes ?? new Uint8Array();
      expect(Buffer.compare(bytes(convention.codes.suffix), data.dataSync() as Uint8Array)).toBe(0);
      const scales = scaleInv.dataSync();
      if (row?.scale === "source") continue;
      expect(
        Buffer.compare(
          bytes(convention.scale.suffix),
          new Uint8Array(scales.buffer, scales.byteOffset, scales.byteLength),
        ),
      ).toBe(0);
    }
  });
});

describe("the weights that convert --to quantizes", () => {
  const linear = (shape: readonly number[] = [32, 32], fill = 0x3f80): StoredTensor => {
    const count = shape.reduce((product, size) => product * size, 1);
    return {
      dtype: "BF16",
      shape,
      bytes: new Uint8Array(Uint16Array.from({ length: count }, (_, i) => fill + (i % 7)).buffer),
    };
  };
  const convertTensors = (
    tensors: Record<string, StoredTensor>,
    target: string,
    patterns?: readonly string[],
  ) =>
    inFolder(async (folder) => {
      await writeContents(folder, {
        tensors: new Map(Object.entries(tensors)),
        metadata: {},
        json: new Map([["config.json", {}]]),
      });
      const out = join(folder, "out");
      const { plan } = await convertTo(backend(), folder, out, target, patterns);
      const config = readJson(out, "config.json");
      return { plan, config, contents: await readContents(out) };
    });

  it("is the weights of linear layers; embeddings, outputs, routers, norms and convolutions stay, and are named", async () => {
    const unchangedTensors = [
      "lm_head",
      "model.embed_tokens",
      "m.mlp.gate",
      "m.router",
      "m.mlp.shared_expert_gate",
      "wte",
    ];
    const { plan, config } = await convertTensors(
      {
        ...Object.fromEntries(unchangedTensors.map((name) => [`${name}.weight`, linear()])),
        "m.norm.weight": linear([32]),
        "m.conv.weight": linear([4, 4, 32]),
        "m.q_proj.weight": linear(),
        "m.q_proj.bias": linear([32]),
        "m.odd.weight": linear([32, 24]),
      },
      "ct-nvfp4",
    );
    expect([...plan.converted.keys()]).toEqual(["m.q_proj.weight"]);
    expect([...plan.skipped.keys()]).toEqual(["m.odd.weight"]);
    expect(config.quantization_config.ignore.toSorted()).toEqual(
      [...unchangedTensors.filter((name) => !/embed|wte/.test(name)), "m.conv", "m.odd"].toSorted(),
    );
  });

  it("is what --tensors names, and a weight that does not fit is an error that names it", async () => {
    const tensors = { "a.weight": linear(), "lm_head.weight": linear(), "odd.weight": linear([32, 24]) };
    const { plan } = await convertTensors(tensors, "ct-nvfp4", ["lm_*"]);
    expect([...plan.converted.keys()]).toEqual(["lm_head.weight"]);
    await expect(convertTensors(tensors, "ct-nvfp4", ["odd*"])).rejects.toThrow(
      /odd\.weight.*no multiple of 16/,
    );
    await expect(convertTensors(tensors, "ct-nvfp4", ["none*"])).rejects.toThrow(ArgumentError);
    await expect(convertTensors({ "norm.weight": linear([32]) }, "ct-nvfp4")).rejects.toThrow(
      /no weight of a linear layer .*: there are none;/,
    );
  });

  it.each([
    [1, /"0\.q_proj\.weight" does not fit: .*multiple of 16/],
    [3, /"0\.q_proj\.weight" and 2 more do not fit: .*multiple of 16/],
  ])("counts the weights that do not fit, if none does: %i", async (count, message) => {
    const names = Array.from({ length: count }, (_, i) => `${i}.q_proj.weight`);
    const tensors = Object.fromEntries(names.map((name) => [name, linear([32, 24])]));
    await expect(convertTensors(tensors, "ct-nvfp4")).rejects.toThrow(message);
  });

  it("has one global scale for projections that loaders fuse", async () => {
    for (const [target, suffix] of [
      ["ct-nvfp4", "_global_scale"],
      ["modelopt-nvfp4", "_scale_2"],
    ] as const) {
      const { contents } = await convertTensors(
        {
          "m.q_proj.weight": linear([32, 32], 0x3f80),
          "m.k_proj.weight": linear([32, 32], 0x4180),
          "m.v_proj.weight": linear([32, 32], 0x3e00),
          "m.o_proj.weight": linear([32, 32], 0x3e00),
        },
        target,
      );
      const [q, k, v, o] = ["q", "k", "v", "o"].map(
        (letter) => contents.tensors.get(`m.${letter}_proj.weight${suffix}`)?.bytes,
      );
      expect([k, v]).toEqual([q, q]);
      expect(o).not.toEqual(q);
    }
  });

  it("is refused with NaN and infinity, and nothing appears", async () => {
    for (const word of [0x7fc0, 0x7f80, 0xff80]) {
      for (const target of ["ct-nvfp4", "ct-mxfp8", "deepseek-fp8-block", "ct-fp8-tensor"]) {
        const tensor = linear();
        new Uint16Array(tensor.bytes.buffer)[500] = word;
        await inFolder(async (folder) => {
          await writeContents(folder, {
            tensors: new Map([["a.weight", tensor]]),
            metadata: {},
            json: new Map(),
          });
          const out = join(folder, "out");
          await expect(convertTo(backend(), folder, out, target)).rejects.toThrow(
            /a\.weight.*NaN or infinity/,
          );
          await expect(readContents(out)).rejects.toThrow(FileError);
        });
      }
    }
  });
});

it("every dialect is a form, or is refused by name with the reason", () => {
  for (const name of DIALECT_NAMES) {
    // GGUF files do not use ggml's own rule, which gives small weights subnormal scales
    const fixture = name === "gguf-nvfp4" ? "modelopt-nvfp4" : name;
    if (DIALECT_TARGETS.some((target) => target === name))
      expect(parseTarget(name).dialectTarget?.dialect).toBe(fixture);
    else expect(() => parseTarget(name)).toThrow(new RegExp(`^${name} cannot be written: `));
  }
  expect(() => parseTarget("ct-nvfp")).toThrow(/"ct-nvfp" is not one of bf16, f32, ct-fp8-tensor/);
});
