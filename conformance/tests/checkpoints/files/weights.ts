/** Quantized weights in memory, drawn with hostile codes and scales, and their values by plain loops. */
import * as fc from "fast-check";
import { CODE_TYPES, type CodeTypeName } from "../../../../src/checkpoints/stored/code-types.js";
import {
  type ConventionName,
  conventionOf,
  type ScaleKind,
} from "../../../../src/checkpoints/stored/conventions.js";
import type { QuantizedWeight } from "../../../../src/checkpoints/stored/weight.js";
import { valueOfCode } from "../../../../src/formats/derive.js";
import { type FileDType, fileBytes } from "../../../../src/io/dtypes.js";
import { MemorySource } from "../../../../src/io/source.js";

/** f32 bit patterns of zeros, subnormals, the least and the largest normals, one, infinities and NaN. */
const HOSTILE = [
  0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000,
  0x7f800000, 0xff800000, 0x7fc00000, 0x3f7fffff, 0x33800000, 0x7f000000,
];

export const float = (bits: number): number => new Float32Array(Uint32Array.of(bits).buffer)[0] as number;

/** f32 values of all magnitudes, about one in four hostile. */
export const floats: fc.Arbitrary<number> = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: 0x3a000000, max: 0x42000000 }).map(float) },
  { weight: 1, arbitrary: fc.constantFrom(...HOSTILE).map(float) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 0xffffffff }).map(float) },
);

/** A kind of weight: the position of each element's scale, and the storage of scales. */
interface Kind {
  readonly convention: ConventionName;
  readonly scale: FileDType;
  readonly kind: ScaleKind;
  /** The rows and columns that share a scale; 0 for all. */
  readonly block: readonly [number, number];
}

/**
 * Every kind of weight whose values are computed differently: groups and blocks of each kind of code, including kinds without a
 * kernel.
 */
export const KINDS: readonly Kind[] = [
  { convention: "ct-nvfp4", scale: "F8_E4M3", kind: "group", block: [1, 16] },
  { convention: "modelopt-nvfp4", scale: "F8_E4M3", kind: "group", block: [1, 16] },
  { convention: "gguf-nvfp4", scale: "F8_E4M3", kind: "group", block: [1, 16] },
  { convention: "gguf-mxfp4", scale: "F8_E8M0", kind: "group", block: [1, 32] },
  { convention: "ct-mxfp4", scale: "U8", kind: "group", block: [1, 32] },
  { convention: "ct-mxfp8", scale: "U8", kind: "group", block: [1, 32] },
  { convention: "ct-mxfp6", scale: "U8", kind: "group", block: [1, 32] },
  { convention: "block-fp8", scale: "F32", kind: "tile", block: [128, 128] },
  { convention: "block-fp8", scale: "F8_E8M0", kind: "tile", block: [128, 128] },
  { convention: "ct-float", scale: "BF16", kind: "tile", block: [128, 128] },
  { convention: "ct-float", scale: "F32", kind: "whole", block: [0, 0] },
  { convention: "ct-float", scale: "F32", kind: "row", block: [1, 0] },
  { convention: "ct-int8", scale: "F32", kind: "whole", block: [0, 0] },
  { convention: "ct-int4", scale: "F32", kind: "group", block: [1, 32] },
];

/** A weight, the f32 scale and the code of each element. */
export interface Drawn {
  readonly weight: QuantizedWeight;
  readonly codes: readonly number[];
  readonly scales: readonly number[];
}

const PACKED: Readonly<Partial<Record<CodeTypeName, 4 | 6>>> = {
  e2m1: 4,
  e2m1x2: 4,
  int4: 4,
  e2m3: 6,
  e3m2: 6,
};

/** Codes as bytes, from the low bits. */
function packCodes(type: CodeTypeName, codes: readonly number[]): Uint8Array {
  const bits = PACKED[type] ?? 8;
  const bytes = new Uint8Array((codes.length * bits) / 8);
  for (const [i, code] of codes.entries())
    for (let bit = 0; bit < bits; bit++)
      if ((code >> bit) & 1)
        bytes[(i * bits + bit) >> 3] = (bytes[(i * bits + bit) >> 3] ?? 0) | (1 << ((i * bits + bit) & 7));
  return bytes;
}

/** The bytes of a scale in a type: the upper bits of an f32, or all its bits. */
function encodeScale(
  dtype: FileDType,
  bits: number,
): { readonly bytes: readonly number[]; readonly value: number } {
  if (dtype === "F32") return { bytes: [bits, bits >>> 8, bits >>> 16, bits >>> 24], value: float(bits) };
  if (dtype === "BF16") return { bytes: [bits >>> 16, bits >>> 24], value: float((bits & 0xffff0000) >>> 0) };
  const byte = bits >>> 24;
  return { bytes: [byte], value: valueOfCode(dtype === "F8_E4M3" ? "e4m3" : "e8m0", byte) };
}

const toBits = (value: number): number => new Uint32Array(Float32Array.of(value).buffer)[0] as number;

/** The parameters from which a weight of a kind is drawn. */
interface WeightChoices {
  readonly rows: number;
  readonly columns: number;
  /** The number of matrices. */
  readonly lead: number;
  /** The scales that occur, as f32 bits. A smaller type has the upper bits of these. */
  readonly palette: readonly number[];
  readonly seed: number;
  /** The global scale, if the convention has one. */
  readonly global: number | undefined;
  /** The number of codes that occur. */
  readonly numCodes: number;
}

/** The bits of a one-byte scale, in the form of `WeightChoices.palette`. */
export const bitsOfByte = (byte: number): number => byte * 2 ** 24;

/** Draws a weight of a kind, of up to two matrices. Few scales are drawn, and each is used often. */
export function weights(kind: Kind): fc.Arbitrary<Drawn> {
  const [, width] = kind.block;
  const { global, type } = conventionOf(kind.convention);
  const count = 2 ** CODE_TYPES[type].bits;
  const isByte = fileBytes(kind.scale, [1]) === 1;
  const sizes =
    kind.kind === "group"
      ? fc.record({
          rows: fc.integer({ min: 1, max: 5 }),
          columns: fc.integer({ min: 1, max: 9 }).map((groups) => groups * width),
        })
      : fc.record({ rows: fc.integer({ min: 1, max: 150 }), columns: fc.integer({ min: 1, max: 200 }) });
  const byte = fc.oneof(
    { weight: 3, arbitrary: fc.integer({ min: 0, max: 255 }) },
    { weight: 1, arbitrary: fc.constantFrom(0, 1, 0x7e, 0x7f, 0x80, 0xfe, 0xff) },
  );
  const palette = fc.array(isByte ? byte.map(bitsOfByte) : floats.map(toBits), {
    minLength: 1,
    maxLength: 6,
  });
  return fc
    .record({
      sizes,
      lead: kind.kind === "whole" ? fc.constant(1) : fc.integer({ min: 1, max: 2 }),
      palette,
      seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
      global: global ? floats : fc.constant(undefined),
      numCodes: fc.integer({ min: 1, max: count }),
    })
    .map(({ sizes, ...choices }) => weightOf(kind, { ...sizes, ...choices }));
}

/** The weight of a kind from these parameters. */
export function weightOf(
  kind: Kind,
  { rows, columns, lead, palette, seed, global: globalScale, numCodes }: WeightChoices,
): Drawn {
  const row = conventionOf(kind.convention);
  const { type } = row;
  const [height, width] = kind.block;
  const count = 2 ** CODE_TYPES[type].bits;
  let state = seed;
  const draw = (limit: number): number => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
  const grid = [
    height === 0 ? 1 : Math.ceil(rows / height),
    width === 0 ? 1 : Math.ceil(columns / width),
  ] as const;
  const gridScales = Array.from({ length: lead * grid[0] * grid[1] }, () =>
    encodeScale(kind.scale, palette[draw(palette.length)] ?? 0),
  );
  const codes = Array.from({ length: lead * rows * columns }, () => (draw(numCodes) * 37) % count);
  const offset = row.scale.values;
  const divides = row.global?.role === "divisor";
  const scaleAt = codes.map((_, i) => {
    const [matrix, rowIndex, columnIndex] = [
      Math.floor(i / (rows * columns)),
      Math.floor(i / columns) % rows,
      i % columns,
    ];
    const line = matrix * grid[0] + (height === 0 ? 0 : Math.floor(rowIndex / height));
    const gridScale = gridScales[line * grid[1] + (width === 0 ? 0 : Math.floor(columnIndex / width))];
    const scale = offset && gridScale ? (offset[gridScale.bytes[0] ?? 0] ?? 0) : (gridScale?.value ?? 0);
    if (globalScale === undefined) return scale;
    return Math.fround(divides ? scale / globalScale : scale * globalScale);
  });
  const bytes = packCodes(type, codes);
  const tensors = [
    { name: "codes", dtype: "U8" as const, shape: [bytes.length], bytes },
    {
      name: "scale",
      dtype: kind.scale,
      shape: [gridScales.length],
      bytes: Uint8Array.from(gridScales.flatMap((scale) => scale.bytes)),
    },
    {
      name: "global",
      dtype: "F32" as const,
      shape: [1],
      bytes: new Uint8Array(Float32Array.of(globalScale ?? 1).buffer),
    },
  ];
  const shard = new MemorySource("drawn", tensors);
  const tensor = (name: string) => ({ shard, entry: shard.entry(name) });
  const weight: QuantizedWeight = {
    name: "layer.weight",
    convention: kind.convention,
    type,
    shape: lead > 1 ? [lead, rows, columns] : [rows, columns],
    codes: tensor("codes"),
    scale: tensor("scale"),
    ...(globalScale === undefined ? {} : { global: tensor("global") }),
    geometry: {
      kind: kind.kind,
      block: [height === 0 ? rows : height, width === 0 ? columns : width],
      grid,
      swizzled: false,
    },
  };
  return { weight, codes, scales: scaleAt };
}
