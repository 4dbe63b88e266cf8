/** Drawn files of every convention: valid codes and scales, and the configuration that describes them. */
import { CODE_TYPES, type CodeTypeName } from "../../../../src/checkpoints/stored/code-types.js";
import {
  CONVENTION_NAMES,
  type ConventionName,
  conventionOf,
  type ScaleKind,
} from "../../../../src/checkpoints/stored/conventions.js";
import { FILE_DTYPES, type FileDType, fileBytes } from "../../../../src/io/dtypes.js";
import { roundUp } from "../../../../src/tensor/shape.js";
import type { Contents, StoredTensor } from "./checkpoints.js";

/** The conventions of safetensors files. */
export const STORED_NAMES = CONVENTION_NAMES.filter((name) => conventionOf(name).container === undefined);

/** A generator of numbers below 1. */
export type Draw = () => number;

/** Numbers from a seed (a linear congruential generator). */
export function drawsFrom(seed: number): Draw {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** A convention with the kind of scales that a file has. */
export interface Form {
  readonly name: ConventionName;
  readonly kind: ScaleKind;
}

/** Every convention with every kind of scales that it has. */
export const FORMS: readonly Form[] = STORED_NAMES.flatMap((name) =>
  conventionOf(name).kinds.map((kind) => ({ name, kind })),
);

/** The columns of a group where the convention does not fix them. */
export const GROUP = 32;

/** A code below the largest of its type, so that no block fills its range. If the type has few bits, any code. */
function codeOf(type: CodeTypeName, draw: Draw): number {
  const { values, max, bits } = CODE_TYPES[type];
  if (bits < 4) return Math.floor(draw() * values.length);
  for (;;) {
    const code = Math.floor(draw() * values.length);
    const magnitude = Math.abs(values[code] as number);
    if (magnitude < max) return code;
  }
}

/** Bytes of a stream of codes, from the low bits up. */
function bitsOf(codes: readonly number[], bits: number, bytes: number): Uint8Array {
  const out = new Uint8Array(bytes);
  codes.forEach((code, i) => {
    for (let bit = 0; bit < bits; bit++) {
      const position = i * bits + bit;
      if ((code >> bit) & 1) out[position >> 3] = (out[position >> 3] as number) | (1 << (position & 7));
    }
  });
  return out;
}

const storedTensor = (dtype: FileDType, shape: readonly number[], bytes: Uint8Array): StoredTensor => ({
  dtype,
  shape,
  bytes,
});

/** Scales of a type between 2^-7 and 2^-5, or bytes of that range. */
function scalesOf(dtype: FileDType, shape: readonly number[], draw: Draw, isE4m3: boolean): StoredTensor {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Array.from({ length: count }, () => 2 ** -7 * (1 + 3 * draw()));
  if (FILE_DTYPES[dtype].bits === 8) {
    const byte = (): number => (isE4m3 ? 0x30 : 118) + Math.floor(draw() * 8);
    return storedTensor(dtype, shape, Uint8Array.from(values, byte));
  }
  if (dtype === "F32") return storedTensor(dtype, shape, new Uint8Array(Float32Array.from(values).buffer));
  if (dtype === "F64") return storedTensor(dtype, shape, new Uint8Array(Float64Array.from(values).buffer));
  const f32Bits = new Uint32Array(Float32Array.from(values).buffer);
  if (dtype === "BF16")
    return storedTensor(dtype, shape, new Uint8Array(Uint16Array.from(f32Bits, (w) => w >>> 16).buffer));
  // f16 of normal numbers: the exponent has another bias, and the fraction loses bits
  const toHalf = (bits: number): number => ((((bits >>> 23) & 0xff) - 112) << 10) | ((bits >>> 13) & 0x3ff);
  return storedTensor(dtype, shape, new Uint8Array(Uint16Array.from(f32Bits, toHalf).buffer));
}

/** The drawn tensors of a weight in addition to codes and scales. */
export interface Options {
  readonly zeros?: boolean;
  readonly order?: boolean;
  readonly factors?: boolean;
  readonly inputs?: boolean;
  readonly scale?: FileDType;
}

/** The values from which a weight is computed: integers, floating-point codes and companions. */
export interface ExpectedWeight {
  readonly rows: number;
  readonly columns: number;
  readonly codes: readonly number[];
  /** The integer zero point of each scale. */
  readonly points?: readonly number[];
  /** The group of each column. */
  readonly groups?: readonly number[];
}

/** Draws the tensors of a weight under a module. Returns the values that they stand for. */
export function addWeight(
  tensors: Map<string, StoredTensor>,
  module: string,
  { name, kind }: Form,
  [rows, columns]: readonly [number, number],
  draw: Draw,
  options: Options = {},
): ExpectedWeight {
  const row = conventionOf(name);
  const { type } = row;
  const { bits } = CODE_TYPES[type];
  const codes = Array.from({ length: rows * columns }, () => codeOf(type, draw));
  const [dtype = "U8"] = row.codes.dtypes;
  const addTensor = (end: string | undefined, tensor: StoredTensor): void => {
    if (end !== undefined) tensors.set(module + end, tensor);
  };
  addTensor(row.codes.suffix, codesTensor(name, dtype, codes, rows, columns));
  const group = row.group ?? GROUP;
  const [height, width] = row.block ?? [128, 128];
  const grids: Readonly<Record<ScaleKind, readonly number[]>> = {
    whole: [1],
    row: [rows, 1],
    column: [1, columns],
    tile: [Math.ceil(rows / height), Math.ceil(columns / width)],
    group: [rows, columns / group],
  };
  const paddedShape = [roundUp(rows, 128), roundUp(columns / group, 4)];
  const shape = row.swizzles && kind === "group" ? paddedShape : grids[kind];
  const scaleType = options.scale ?? row.scale.dtypes[0] ?? "F32";
  const isE4m3 = row.scale.values !== undefined || scaleType === "F8_E4M3";
  addTensor(row.scale.suffix, scalesOf(scaleType, shape, draw, isE4m3));
  if (row.global) {
    const value = row.global.role === "divisor" ? 100 : 0.01;
    addTensor(row.global.suffix, storedTensor("F32", [1], new Uint8Array(Float32Array.of(value).buffer)));
  }
  addTensor(row.marker, storedTensor("U8", [2], Uint8Array.of(0x7b, 0x7d)));
  if (row.codes.packing === "words")
    addTensor(
      ".weight_shape",
      storedTensor("I64", [2], new Uint8Array(BigInt64Array.of(BigInt(rows), BigInt(columns)).buffer)),
    );
  const lines = kind === "whole" ? 1 : rows;
  const scalesPerRow = kind === "group" ? columns / group : 1;
  const points = options.zeros
    ? Array.from({ length: lines * scalesPerRow }, () => Math.floor(draw() * 2 ** bits) - 2 ** (bits - 1))
    : undefined;
  if (points && row.zeros) {
    if (row.zeros.packed) {
      // along the rows, so that each column of scales is a separate stream of words
      const wordsPerColumn = Math.ceil((lines * bits) / 32);
      const packedZeros = new Uint8Array(wordsPerColumn * scalesPerRow * 4);
      for (let column = 0; column < scalesPerRow; column++) {
        const columnPoints = Array.from(
          { length: lines },
          (_, i) => (points[i * scalesPerRow + column] as number) + 2 ** (bits - 1),
        );
        const stream = bitsOf(columnPoints, bits, 4 * wordsPerColumn);
        stream.forEach((byte, byteIndex) => {
          packedZeros[4 * ((byteIndex >> 2) * scalesPerRow + column) + (byteIndex & 3)] = byte;
        });
      }
      addTensor(row.zeros.suffix, storedTensor("I32", [wordsPerColumn, scalesPerRow], packedZeros));
    } else
      addTensor(row.zeros.suffix, storedTensor("I8", shape, new Uint8Array(Int8Array.from(points).buffer)));
  }
  const groups = options.order
    ? shuffle(
        Array.from({ length: columns }, (_, i) => Math.floor(i / group)),
        draw,
      )
    : undefined;
  if (groups)
    addTensor(row.order, storedTensor("I32", [columns], new Uint8Array(Int32Array.from(groups).buffer)));
  if (options.factors) addTensor(row.factors, scalesOf("F32", [columns], draw, false));
  if (options.inputs) {
    const end = row.others?.find((suffix) => /input_scale$|scale_input$|activation_scale$/.test(suffix));
    addTensor(end, storedTensor("F32", [], new Uint8Array(Float32Array.of(0.05).buffer)));
  }
  return { rows, columns, codes, ...(points ? { points } : {}), ...(groups ? { groups } : {}) };
}

function shuffle(values: readonly number[], draw: Draw): number[] {
  const out = [...values];
  for (let i = out.length - 1; i > 0; i--) {
    const j = Math.floor(draw() * (i + 1));
    [out[i], out[j]] = [out[j] as number, out[i] as number];
  }
  return out;
}

/** The codes as the convention packs them. */
function codesTensor(
  name: ConventionName,
  dtype: FileDType,
  codes: readonly number[],
  rows: number,
  columns: number,
): StoredTensor {
  const { codes: part, type } = conventionOf(name);
  const { bits } = CODE_TYPES[type];
  const line = (row: number): number[] => codes.slice(row * columns, (row + 1) * columns);
  if (part.packing === "words") {
    const wordsPerRow = Math.ceil((columns * bits) / 32);
    const bytes = new Uint8Array(rows * wordsPerRow * 4);
    for (let row = 0; row < rows; row++)
      bytes.set(
        bitsOf(
          line(row).map((code) => packedCode(type, code)),
          bits,
          4 * wordsPerRow,
        ),
        row * wordsPerRow * 4,
      );
    return storedTensor(dtype, [rows, wordsPerRow], bytes);
  }
  if (part.packing === "rows") {
    const bytes = new Uint8Array((rows / 2) * columns);
    // two's complement, if the type has an offset of 8
    const nibble = (row: number, column: number): number =>
      ((codes[row * columns + column] as number) - 8) & 15;
    for (let row = 0; row < rows; row += 2)
      for (let column = 0; column < columns; column++)
        bytes[(row / 2) * columns + column] = nibble(row, column) | (nibble(row + 1, column) << 4);
    return storedTensor(dtype, [rows / 2, columns], bytes);
  }
  const count = (rows * columns * bits) / 8;
  const bytes = bitsOf(codes, bits, count);
  const packedBytes =
    part.packing === "high-first" ? bytes.map((byte) => ((byte & 15) << 4) | (byte >> 4)) : bytes;
  const bytesPerRow = (columns * bits) / (8 * fileBytes(dtype, [1]));
  return storedTensor(
    dtype,
    part.suffix === "_blocks" ? [rows, bytesPerRow / 16, 16] : [rows, bytesPerRow],
    packedBytes,
  );
}

/** The code in words, where integers of 8 bits have an offset too. */
const packedCode = (type: CodeTypeName, code: number): number => (type === "int8" ? code ^ 0x80 : code);

const STRATEGIES: Readonly<Record<ScaleKind, string>> = {
  whole: "tensor",
  row: "channel",
  column: "channel",
  tile: "block",
  group: "group",
};
const FP8_ALGORITHMS: Readonly<Partial<Record<ScaleKind, string>>> = {
  whole: "FP8",
  row: "FP8_PER_CHANNEL_PER_TOKEN",
  tile: "FP8_PB_WO",
};

/** The config.json of a file of a convention; undefined if the library writes none. */
export function configFor({ name, kind }: Form, options: Options = {}): Record<string, unknown> | undefined {
  const row = conventionOf(name);
  const [method] = row.methods;
  if (method === undefined) return undefined;
  const { bits } = CODE_TYPES[row.type];
  const type = row.type.startsWith("int") ? "int" : "float";
  const group = row.group ?? GROUP;
  const configWith = (quantization: Record<string, unknown>) => ({
    quantization_config: { quant_method: method, ...quantization },
  });
  switch (method) {
    case "compressed-tensors": {
      const [format] = row.formats ?? [];
      const weights = {
        num_bits: bits,
        type,
        symmetric: options.zeros !== true,
        strategy: kind === "group" && row.global ? "tensor_group" : STRATEGIES[kind],
        group_size: kind === "group" ? group : null,
        ...(kind === "tile" ? { block_structure: [128, 128] } : {}),
        ...(FILE_DTYPES[row.scale.dtypes[0] ?? "F32"].bits === 8
          ? { scale_dtype: row.global ? "torch.float8_e4m3fn" : "torch.uint8" }
          : {}),
        dynamic: false,
      };
      const activations = options.inputs ? { ...weights, dynamic: false } : null;
      const scheme = { format, targets: ["Linear"], weights, input_activations: activations };
      return configWith({ format, config_groups: { group_0: scheme }, ignore: ["lm_head"] });
    }
    case "modelopt": {
      const algorithm = name === "modelopt-fp8" ? FP8_ALGORITHMS[kind] : row.formats?.[0];
      return configWith({
        quant_algo: algorithm,
        ignore: ["lm_head"],
        ...(kind === "group" ? { group_size: group } : {}),
      });
    }
    case "quark":
      return configWith({
        exclude: ["lm_head"],
        global_quant_config: {
          weight: {
            dtype: bits === 4 ? "fp4" : "fp8_e4m3",
            qscheme: { whole: "per_tensor", row: "per_channel", group: "per_group" }[kind as "whole"],
            group_size: kind === "group" ? group : null,
          },
        },
      });
    case "mlx":
      return { quantization: { bits, group_size: group, mode: row.formats?.[0] } };
    case "fp8":
      return configWith({ ...(kind === "tile" ? { weight_block_size: [128, 128] } : {}) });
    default:
      return configWith({});
  }
}

/** The contents of a file. */
export function contentsOf(
  tensors: Map<string, StoredTensor>,
  config: Record<string, unknown> | undefined,
): Contents {
  return { tensors, metadata: {}, json: new Map(config ? [["config.json", config]] : []) };
}
