/** A corpus of matrix products with operands of every kind that a datapath multiplies. */
import * as fc from "fast-check";
import { BLOCK_FORMATS, type BlockFormatName, type Tile, tileSize } from "../../src/formats/block.js";
import {
  DATAPATH_FAMILIES,
  type DatapathFamily,
  datapathFor,
  type OperandTraits,
} from "../../src/formats/datapath.js";
import { factsOf } from "../../src/formats/derive.js";
import { boolean, integer, needed, oneOf, optionsOf } from "../../src/options.js";
import { makeSpec } from "../../src/quantizers/quantizer.js";
import { copyGeometry } from "../../src/tensor/geometry.js";
import { elementCount, roundUp, type Shape } from "../../src/tensor/shape.js";
import { words } from "../arbitraries/random.js";
import { codesOf } from "../operations/gemm/arbitrary-codes.js";
import { fromCodes, type PlainTensor, pack } from "../values/plain.js";
import { type CorpusCase, type CorpusDraw, checkDraw } from "./cases.js";

type ElementType = "e4m3" | "e5m2" | "bf16" | "f16" | "f32";

/** The kind of an operand: elements with or without scales for each tile, or a quantized tensor. */
type Kind =
  | { readonly type: ElementType; readonly tile?: Tile }
  | { readonly quantizer: Exclude<BlockFormatName, "fp8-current" | "fp8-delayed" | "fp8-block"> };

const PAIRS: readonly (readonly [a: Kind, b: Kind])[] = [
  [{ type: "e4m3" }, { type: "e4m3" }],
  [
    { type: "e5m2", tile: "tensor" },
    { type: "e4m3", tile: "tensor" },
  ],
  [
    { type: "e4m3", tile: "1x128" },
    { type: "e5m2", tile: "1x128" },
  ],
  [
    { type: "e4m3", tile: "1x128" },
    { type: "e4m3", tile: "128x128" },
  ],
  [{ type: "bf16" }, { type: "bf16" }],
  [{ type: "f16" }, { type: "f16" }],
  [{ type: "f32" }, { type: "f32" }],
  [{ quantizer: "mxfp8" }, { quantizer: "mxfp8" }],
  [{ quantizer: "mxfp6" }, { quantizer: "mxfp4" }],
  [{ quantizer: "mxfp4" }, { quantizer: "mxfp4" }],
  [{ quantizer: "nvfp4" }, { quantizer: "nvfp4" }],
];

/** The options of a product. */
export interface CorpusAim {
  /** The datapath, which defines how products are summed. */
  readonly datapath: DatapathFamily;
  /** Whether FP8 partial sums leave the tensor core after every 128 elements along K. */
  readonly splitAccumulator: boolean;
  /** The number of splits of K, from 1. */
  readonly splitK: number;
  /** Whether a matrix is added to the product. */
  readonly c: boolean;
  /** Whether a bias vector is added to each row. */
  readonly bias: boolean;
}

const checkAim = optionsOf<CorpusAim>(
  {
    datapath: needed(oneOf(DATAPATH_FAMILIES)),
    splitAccumulator: needed(boolean),
    splitK: needed(integer(1, 2 ** 31 - 1)),
    c: needed(boolean),
    bias: needed(boolean),
  },
  "aim",
);

function traits(kind: Kind): OperandTraits {
  if ("type" in kind) {
    const [lines, length] = tileSize(kind.tile ?? "tensor");
    const format = kind.type;
    return length === 0 ? { format } : { format, scales: { format: "f32", lines, length, pow2: true } };
  }
  const { format, tile } = makeSpec(kind.quantizer, {});
  const { scale } = BLOCK_FORMATS[kind.quantizer];
  return { format, scales: { format: scale, lines: 1, length: tileSize(tile)[1], pow2: scale === "e8m0" } };
}

/**
 * Products of every pair of operand kinds that the datapath multiplies, with cancellation, wide exponents, zeros,
 * specials and ragged K. Throws `ArgumentError` for an invalid aim or draw.
 */
export function gemmCases(aim: CorpusAim, draw: CorpusDraw): readonly CorpusCase[] {
  checkAim("gemmCases", aim);
  checkDraw("gemmCases", draw);
  const { cases, seed } = draw;
  const { datapath, splitAccumulator, splitK } = aim;
  const choiceOf = ([a, b]: (typeof PAIRS)[number]) =>
    datapathFor(datapath, traits(a), traits(b), splitAccumulator);
  const pairs = PAIRS.filter((pair) => choiceOf(pair).ok);
  const size = fc.oneof(fc.integer({ min: 1, max: 20 }), fc.constantFrom(0, 1, 129));
  const depth = fc.oneof(
    fc.integer({ min: 0, max: 300 }),
    fc.constantFrom(0, 1, 31, 32, 33, 127, 128, 129, 256, 257),
  );
  /** K is long enough that no split is empty. */
  const lengthened = (k: number, pair: (typeof PAIRS)[number]): number => {
    const choice = choiceOf(pair);
    return splitK > 1 && choice.ok ? Math.max(k, 1) + (splitK - 1) * choice.splitTile : k;
  };
  const drawn = fc.record({
    pair: fc.constantFrom(...pairs),
    rows: size,
    columns: size,
    depth,
    seeds: fc.tuple(fc.nat(), fc.nat(), fc.nat()),
    flavour: fc.constantFrom("uniform", "narrow", "small", "sparse", "cancelling", "wild"),
  } as const);
  return fc.sample(drawn, { numRuns: cases, seed }).map(({ pair, seeds, flavour, ...sizes }) => {
    const step = Math.max(...pair.map(multipleOf));
    const asked = [sizes.rows, sizes.columns, lengthened(sizes.depth, pair)];
    const [rows, columns, k] = asked.map((n) => roundUp(n, step)) as [number, number, number];
    const a = operand(".a", pair[0], [rows, k], seeds[0], flavour);
    const b = operand(".b", pair[1], [columns, k], seeds[1], flavour);
    const tensors = {
      ...a.tensors,
      ...b.tensors,
      ...(aim.c ? { ".c": values("f32", [rows, columns], seeds[2], "narrow") } : {}),
      ...(aim.bias ? { ".bias": values("bf16", [columns], seeds[2], "narrow") } : {}),
    };
    return { tensors, recipes: { ...a.recipes, ...b.recipes } };
  });
}

type Flavour = NonNullable<Parameters<typeof codesOf>[4]>;

function multipleOf(kind: Kind): number {
  return "type" in kind ? 1 : BLOCK_FORMATS[kind.quantizer].multiple;
}

function values(type: ElementType, shape: Shape, seed: number, how: Flavour): PlainTensor {
  const [lines = 1, length = 0] = shape.length === 2 ? shape : [1, shape[0]];
  return fromCodes(type, shape, codesOf(type, lines, length, seed, how).lines.flat());
}

function operand(
  name: string,
  kind: Kind,
  shape: readonly [lines: number, depth: number],
  seed: number,
  flavour: Flavour,
): CorpusCase {
  if ("quantizer" in kind) return quantized(name, kind.quantizer, shape, seed, flavour);
  const data = { [name]: values(kind.type, shape, seed, flavour) };
  return { tensors: kind.tile ? { ...data, [`${name}.scale_inv`]: scales(kind.tile, shape, seed) } : data };
}

/** Scales that are powers of two near one. */
function scales(tile: Tile, [lines, depth]: readonly [number, number], seed: number): PlainTensor {
  const [high, wide] = tileSize(tile);
  const shape = tile === "tensor" ? [1] : [Math.ceil(lines / high), Math.ceil(depth / wide)];
  const codes = Array.from(
    words(seed, elementCount(shape)),
    (word) => 0x3f800000 + ((word % 17) - 8) * 0x00800000,
  );
  return fromCodes("f32", shape, codes);
}

/** The rowwise copy of a quantized tensor with arbitrary codes and scales. */
function quantized(
  name: string,
  quantizer: BlockFormatName,
  shape: readonly [lines: number, depth: number],
  seed: number,
  flavour: Flavour,
): CorpusCase {
  const spec = makeSpec(quantizer, {});
  const { dataShape, scaleType, scaleShape } = copyGeometry(spec, shape, "rowwise", "logical");
  const codes = codesOf(spec.format, ...shape, seed, flavour).lines.flat();
  const packed = factsOf(spec.format).storageBits === 4;
  const fileShape = packed ? [shape[0], shape[1] / 2] : dataShape;
  const near = (word: number): number => (scaleType === "e8m0" ? 119 + (word % 17) : word % 127);
  const tensors = {
    [`${name}.rowwise.data`]: fromCodes("u8", fileShape, packed ? pack(codes) : codes),
    [`${name}.rowwise.scale_inv`]: fromCodes(
      "u8",
      scaleShape,
      words(seed, elementCount(scaleShape)).map(near),
    ),
    ...(quantizer === "nvfp4" ? { [`${name}.rowwise.amax`]: scales("tensor", shape, seed + 1) } : {}),
  };
  const recipe = { spec, shape, dtype: "f32", scales: "logical", usage: ["rowwise"] } as const;
  return { tensors, recipes: { [name]: recipe } };
}
