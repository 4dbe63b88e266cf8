/** The tensors that a dialect's row lists are recognized, and equal the tensors in the library's recorded files. */
import { describe, expect, it } from "vitest";
import { blockBytes, blockType } from "../../../../src/checkpoints/gguf/types.js";
import { recognize } from "../../../../src/checkpoints/recognize/recognize.js";
import { quantizerOf } from "../../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectTensor } from "../../../../src/dialects/table.js";
import { isLineWide, isTensorWide, tileSize } from "../../../../src/formats/block.js";
import { FILE_DTYPES, type FileDType, fileBytes } from "../../../../src/io/dtypes.js";
import { MemorySource } from "../../../../src/io/source.js";
import { recordedPackages } from "../../witness/dialects/recorded.js";

const [N, K] = [256, 384];
const GGUF = ["gguf-mxfp4", "gguf-nvfp4"] as const;
const rows = DIALECT_NAMES.map((name) => [name, DIALECTS[name] as Dialect] as const).filter(
  ([name, { tensors }]) => tensors.length > 0 && !GGUF.some((ggufName) => ggufName === name),
);
/** Dialects without a checkpoint convention: torchao does not store 6-bit codes in files. */
const UNREAD = /^torchao-mxfp6-/;
/** Dialects whose recorded function returns other shapes than their files have, or needs rows of whole blocks. */
const READ_OTHERWISE = /^(fbgemm-|modelopt-mxfp8$)/;

/** The size that a string such as `3K/4` or `ceil(N/128)` stands for. */
function sizeOf(text: string): number {
  const [, product = "", divisor = "1"] = /^(?:ceil\()?([^/)]*)(?:\/(\d+)\)?)?/.exec(text.trim()) ?? [];
  const [numerator = product, otherFactor = ""] = product.split("*");
  const factor = (factorText: string): number => {
    const [, count = "", letter = ""] = /^(\d*)([NK]?)$/.exec(factorText) ?? [];
    return Number(count || "1") * (letter === "N" ? N : letter === "K" ? K : 1);
  };
  return Math.ceil((factor(numerator) * factor(otherFactor)) / Number(divisor));
}

/** The shapes in a row: `[N, K], MXFP4 [N, K/2]` has two, the second for another format. */
const shapesOf = (shape: string): number[][] =>
  [...shape.matchAll(/\[(.*?)\]/g)].map(([, sizeList = ""]) =>
    sizeList === "" ? [] : sizeList.split(",").map(sizeOf),
  );

/** The dtypes in a row for a format. */
function dtypesOf({ dtype }: DialectTensor, format: string): readonly FileDType[] {
  if (dtype === "the model's") return ["BF16", "F32"];
  if (dtype === "by format") return format === "e2m1" ? ["U8"] : ["F8_E4M3"];
  return dtype.split(", or ").filter((dtypeName): dtypeName is FileDType => dtypeName in FILE_DTYPES);
}

describe.each(rows.filter(([name]) => !UNREAD.test(name)))("the files of %s", (name, { tensors }) => {
  it("are recognized as a weight with its codes, blocks and scales", () => {
    const { spec } = quantizerOf({ dialect: name });
    const [codes, scale] = tensors as [DialectTensor, DialectTensor];
    const shapes = tensors.filter(({ role }) => role === "logicalShape");
    const conventions = dtypesOf(scale, spec.format).flatMap((scaleDType) => {
      const fileTensors = tensors.map((tensor) => {
        const shapesByFormat = shapesOf(tensor.shape);
        const shape = (spec.format === "e2m1" ? shapesByFormat.at(-1) : shapesByFormat[0]) ?? [];
        const [firstDType = "U8"] = dtypesOf(tensor, spec.format);
        const dtype = tensor === scale ? scaleDType : firstDType;
        return { name: `layer.${tensor.name}`, dtype, shape, bytes: new Uint8Array(fileBytes(dtype, shape)) };
      });
      const shard = new MemorySource("drawn", fileTensors);
      const tensorMap = new Map(
        fileTensors.map((fileTensor) => [fileTensor.name, { shard, entry: shard.entry(fileTensor.name) }]),
      );
      const packedShapes = new Map(shapes.map((tensor) => [`layer.${tensor.name}`, [N, K]]));
      const { weights, findings, plain } = recognize(
        { shards: [shard], tensors: tensorMap, metadata: {} },
        undefined,
        { packedShapes },
      );
      expect([...findings, ...plain].length === 0 || scale.dtype.includes(" or ")).toBe(true);
      return weights;
    });
    expect(conventions.length).toBeGreaterThan(0);
    const { tile } = spec;
    const block = isTensorWide(tile) ? [N, K] : isLineWide(tile) ? [1, K] : [...tileSize(tile)];
    for (const weight of conventions) {
      expect([weight.shape.slice(-2), weight.type]).toEqual([[N, K], spec.format]);
      expect([...weight.geometry.block]).toEqual(block);
      const tensorsOfWeight = [weight.codes, weight.scale, ...(weight.global ? [weight.global] : [])];
      expect(tensorsOfWeight.map(({ entry }) => entry.name)).toEqual(
        tensors.filter(({ role }) => role !== "logicalShape").map((tensor) => `layer.${tensor.name}`),
      );
    }
    expect(codes.role).toBe("codes");
  });
});

it.each(rows.filter(([name]) => !READ_OTHERWISE.test(name)))(
  "the scales of %s have the shapes of its record",
  (name, { tensors }) => {
    const recordedDialects = recordedPackages().flatMap(({ dialects }) => dialects);
    const recordedDialect = recordedDialects.find(
      ({ dialect }) => dialect === name || dialect === name.replace(/(mxfp6)/, "$1-e2m3"),
    );
    const layout = recordedDialect?.facts.layout?.replaceAll(/\b(rows|M)\b/g, "N");
    const scales = tensors.filter(({ role }) => role === "multiplier" || role === "divisor");
    expect(scales.length).toBeGreaterThan(0);
    for (const { shape } of scales) expect(layout).toContain(shape.replace(/;.*$/, ""));
  },
);

it.each(GGUF)("the row of %s tells the bytes of its blocks", (name) => {
  const type = blockType(name === "gguf-mxfp4" ? "F8_E8M0" : "F8_E4M3");
  if (!type) throw new Error("GGUF has the type");
  const [codes, scale] = DIALECTS[name].tensors;
  const size = blockBytes(type);
  const { scales } = type;
  const { spec } = quantizerOf({ dialect: name });
  expect(codes.shape).toBe(`[N, K/2]; bytes ${scales} to ${size - 1} of each block of ${size}`);
  const bytes = scales === 1 ? "byte 0" : `bytes 0 to ${scales - 1}`;
  expect(scale.shape).toBe(`[N, K/${tileSize(spec.tile)[1]}]; ${bytes} of each block of ${size}`);
});
