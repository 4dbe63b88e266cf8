/** A corpus of matrix products with operands of every kind that a datapath multiplies. */
import * as fc from "fast-check";
import { ArgumentError } from "../../src/errors.js";
import {
  BLOCK_FORMATS,
  type BlockFormat,
  type BlockFormatName,
  isLineWide,
  isTensorWide,
  scaleGrid,
  type Tile,
  tileSize,
} from "../../src/formats/block.js";
import {
  DATAPATH_FAMILIES,
  type DatapathFamily,
  datapathFor,
  type OperandTraits,
} from "../../src/formats/datapath.js";
import { factsOf } from "../../src/formats/derive.js";
import { hasPowersByRule, tensorScaleRole } from "../../src/formats/scale-rules.js";
import { SCALED_TILES } from "../../src/ops/gemm/operand.js";
import {
  anything,
  boolean,
  type Domain,
  integer,
  needed,
  oneOf,
  optionsOf,
  outside,
  ownList,
} from "../../src/options.js";
import { copyGeometry } from "../../src/tensor/geometry.js";
import type { QuantizeSpec } from "../../src/tensor/quantized.js";
import { elementCount, roundUp, type Shape } from "../../src/tensor/shape.js";
import { makeSpec, requireSpec } from "../../src/tensor/spec.js";
import { words } from "../arbitraries/random.js";
import { codesOf } from "../operations/gemm/arbitrary-codes.js";
import { fromCodes, type PlainTensor, pack } from "../values/plain.js";
import { type CorpusCase, type CorpusDraw, checkDraw } from "./cases.js";

/** An operand of a corpus: elements of a dtype, FP8 optionally with f32 scales per tile; or a quantized tensor of this spec. */
export type CorpusOperand =
  | {
      readonly dtype: "e4m3" | "e5m2" | "bf16" | "f16" | "f32";
      readonly tile?: "tensor" | "1xK" | "1x128" | "128x128" | undefined;
    }
  | { readonly spec: QuantizeSpec };

/** An operand without a spec. */
type Elements = Extract<CorpusOperand, { readonly dtype: string }>;
type ElementType = Elements["dtype"];

const ofQuantizer = (name: BlockFormatName): CorpusOperand => ({ spec: makeSpec(name, {}) });

const PAIRS: readonly (readonly [a: CorpusOperand, b: CorpusOperand])[] = [
  [{ dtype: "e4m3" }, { dtype: "e4m3" }],
  [
    { dtype: "e5m2", tile: "tensor" },
    { dtype: "e4m3", tile: "tensor" },
  ],
  [
    { dtype: "e4m3", tile: "1x128" },
    { dtype: "e5m2", tile: "1x128" },
  ],
  [
    { dtype: "e4m3", tile: "1x128" },
    { dtype: "e4m3", tile: "128x128" },
  ],
  [{ dtype: "bf16" }, { dtype: "bf16" }],
  [{ dtype: "f16" }, { dtype: "f16" }],
  [{ dtype: "f32" }, { dtype: "f32" }],
  [ofQuantizer("mxfp8"), ofQuantizer("mxfp8")],
  [ofQuantizer("mxfp6"), ofQuantizer("mxfp4")],
  [ofQuantizer("mxfp4"), ofQuantizer("mxfp4")],
  [ofQuantizer("nvfp4"), ofQuantizer("nvfp4")],
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
  /** The operands a and b. Default: every pair of a table that the datapath multiplies. */
  readonly operands?: readonly [a: CorpusOperand, b: CorpusOperand] | undefined;
}

const checkAim = optionsOf<CorpusAim>(
  {
    datapath: needed(oneOf(DATAPATH_FAMILIES)),
    splitAccumulator: needed(boolean),
    splitK: needed(integer(1, 2 ** 31 - 1)),
    c: needed(boolean),
    bias: needed(boolean),
    operands: pairOf(checkOperand),
  },
  "aim",
);

/** Accepts an array of two values that satisfy `each`. */
function pairOf(each: Domain): Domain {
  const what = "an array of two operands";
  return (caller, name, value) => {
    const pair = ownList(caller, name, value, (one, i) => each(caller, `${name}[${i}]`, one), what);
    if (pair.length !== 2) throw outside(caller, name, value, what);
    return pair;
  };
}

const elements = optionsOf<Elements>({
  dtype: needed(oneOf(["e4m3", "e5m2", "bf16", "f16", "f32"])),
  tile: oneOf(SCALED_TILES),
});
const ofSpec = optionsOf<Extract<CorpusOperand, { spec: QuantizeSpec }>>({ spec: needed(anything) });

/** Returns a copy of an operand of a corpus. Throws `ArgumentError` for anything else. */
function checkOperand(caller: string, name: string, value: unknown): CorpusOperand {
  if (hasSpec(value)) {
    const spec = requireSpec(ofSpec(caller, value, name).spec);
    if (tensorScaleRole(spec.scaleRule) === "divisor")
      throw new ArgumentError(
        `${caller}: ${name}.spec has scaleRule ${spec.scaleRule}, whose scale of the tensor divides; products take others`,
      );
    return { spec };
  }
  const ownElements = elements(caller, value as Elements, name);
  const { dtype, tile } = ownElements;
  if (tile !== undefined && dtype !== "e4m3" && dtype !== "e5m2")
    throw new ArgumentError(
      `${caller}: ${name} is ${dtype} with tile ${tile}; only e4m3 and e5m2 have scales`,
    );
  return ownElements;
}

/** Whether the operand has a spec. A proxy that throws counts as having one, and is refused when it is read. */
function hasSpec(value: unknown): value is { readonly spec: QuantizeSpec } {
  try {
    return typeof value === "object" && value !== null && "spec" in value;
  } catch {
    return true;
  }
}

function traits(kind: CorpusOperand): OperandTraits {
  const [format, tile] = "spec" in kind ? [kind.spec.format, kind.spec.tile] : [kind.dtype, kind.tile];
  if (tile === undefined || isTensorWide(tile) || isLineWide(tile)) return { format };
  const [lines, length] = tileSize(tile);
  if (!("spec" in kind)) return { format, scales: { format: "f32", lines, length, pow2: true } };
  const { quantizer, scaleRule, pow2Scales } = kind.spec;
  const { scale, replicates }: BlockFormat = BLOCK_FORMATS[quantizer];
  const pow2 = hasPowersByRule(scaleRule, pow2Scales);
  return { format, scales: { format: scale, lines: replicates ? 1 : lines, length, pow2 } };
}

/**
 * Products of every pair of operand kinds that the datapath multiplies, or of one pair, with cancellation, wide exponents, zeros,
 * specials and ragged K. Throws `ArgumentError` for an invalid aim or draw, and for a pair that the datapath does not multiply.
 */
export function gemmCases(aim: CorpusAim, draw: CorpusDraw): readonly CorpusCase[] {
  const ownAim = checkAim("gemmCases", aim);
  const ownDraw = checkDraw("gemmCases", draw);
  const { cases, seed } = ownDraw;
  const { datapath, splitAccumulator, splitK } = ownAim;
  const choiceOf = ([a, b]: (typeof PAIRS)[number]) =>
    datapathFor(datapath, traits(a), traits(b), splitAccumulator);
  const pairs = ownAim.operands ? [ownAim.operands] : PAIRS.filter((pair) => choiceOf(pair).ok);
  for (const pair of pairs) {
    const choice = choiceOf(pair);
    if (!choice.ok) throw new ArgumentError(`gemmCases: ${choice.reason}`);
  }
  const size = fc.oneof(fc.integer({ min: 1, max: 20 }), fc.constantFrom(0, 1, 129));
  const depth = fc.oneof(
    fc.integer({ min: 0, max: 300 }),
    fc.constantFrom(0, 1, 31, 32, 33, 127, 128, 129, 256, 257),
  );
  /** K is long enough that no split is empty, and that line scales and 128-blocks differ in number. */
  const lengthened = (k: number, pair: (typeof PAIRS)[number]): number => {
    const choice = choiceOf(pair);
    const least = pair.some((kind) => "dtype" in kind && kind.tile === "1xK") ? Math.max(k, 129) : k;
    return splitK > 1 && choice.ok ? Math.max(least, 1) + (splitK - 1) * choice.splitTile : least;
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
    const sizeList = [sizes.rows, sizes.columns, lengthened(sizes.depth, pair)];
    const [rows, columns, k] = sizeList.map((n) => roundUp(n, step)) as [number, number, number];
    const a = operand(".a", pair[0], [rows, k], seeds[0], flavour);
    const b = operand(".b", pair[1], [columns, k], seeds[1], flavour);
    const tensors = {
      ...a.tensors,
      ...b.tensors,
      ...(ownAim.c ? { ".c": values("f32", [rows, columns], seeds[2], "narrow") } : {}),
      ...(ownAim.bias ? { ".bias": values("bf16", [columns], seeds[2], "narrow") } : {}),
    };
    return { tensors, recipes: { ...a.recipes, ...b.recipes } };
  });
}

type Flavour = NonNullable<Parameters<typeof codesOf>[4]>;

function multipleOf(kind: CorpusOperand): number {
  return "spec" in kind ? BLOCK_FORMATS[kind.spec.quantizer].multiple : 1;
}

function values(type: ElementType, shape: Shape, seed: number, how: Flavour): PlainTensor {
  const [lines = 1, length = 0] = shape.length === 2 ? shape : [1, shape[0]];
  return fromCodes(type, shape, codesOf(type, lines, length, seed, how).lines.flat());
}

function operand(
  name: string,
  kind: CorpusOperand,
  shape: readonly [lines: number, depth: number],
  seed: number,
  flavour: Flavour,
): CorpusCase {
  if ("spec" in kind) return quantized(name, kind.spec, shape, seed, flavour);
  const data = { [name]: values(kind.dtype, shape, seed, flavour) };
  if (!kind.tile) return { tensors: data };
  return { tensors: { ...data, [`${name}.scale_inv`]: scales(scaleShapeOf(kind.tile, shape), seed) } };
}

function scaleShapeOf(tile: Tile, [lines, depth]: readonly [number, number]): Shape {
  return isTensorWide(tile) ? [1] : scaleGrid(tile, lines, depth);
}

/** Scales that are powers of two near one. */
function scales(shape: Shape, seed: number): PlainTensor<"f32"> {
  const codes = words(seed, elementCount(shape)).map((word) => 0x3f800000 + ((word % 17) - 8) * 0x00800000);
  return fromCodes("f32", shape, codes);
}

/** The rowwise copy of a quantized tensor with arbitrary codes and scales. */
function quantized(
  name: string,
  spec: QuantizeSpec,
  shape: readonly [lines: number, depth: number],
  seed: number,
  flavour: Flavour,
): CorpusCase {
  const { dataShape, scaleType, scaleShape, tensorAmax } = copyGeometry(spec, shape, "rowwise", "logical");
  const codes = codesOf(spec.format, ...shape, seed, flavour).lines.flat();
  const packed = factsOf(spec.format).storageBits === 4;
  const fileShape = packed ? [shape[0], shape[1] / 2] : dataShape;
  const near = (word: number): number => (scaleType === "e8m0" ? 119 + (word % 17) : word % 127);
  const tensors = {
    [`${name}.rowwise.data`]: fromCodes("u8", fileShape, packed ? pack(codes) : codes),
    [`${name}.rowwise.scale_inv`]:
      scaleType === "f32"
        ? scales(scaleShape, seed)
        : fromCodes("u8", scaleShape, words(seed, elementCount(scaleShape)).map(near)),
    ...(tensorAmax ? { [`${name}.rowwise.amax`]: scales([1], seed + 1) } : {}),
  };
  const recipe = { spec, shape, dtype: "f32", scales: "logical", usage: ["rowwise"] } as const;
  return { tensors, recipes: { [name]: recipe } };
}
