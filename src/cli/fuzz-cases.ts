/** The inputs of `lockstep fuzz`: drawn from the conformance suite's arbitraries, the same for the same seed. */
import * as fc from "fast-check";
import { codesOf } from "../../conformance/arbitraries/gemm.js";
import {
  fromCodes,
  matrixShape,
  narrowed,
  type PlainTensor,
  patternFor,
  wideMatrix,
  words,
} from "../../conformance/index.js";
import { BLOCK_FORMATS, type BlockFormatName, type Tile, tileSize } from "../formats/block.js";
import { type DatapathFamily, datapathFor, type OperandTraits } from "../formats/datapath.js";
import { factsOf } from "../formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../formats/scalar.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import { elementCount, type WideDType } from "../tensor/shape.js";

/** How many to draw, and by which seed. */
export interface Draw {
  readonly cases: number;
  readonly seed: number;
}

/** Elements of a tensor, about. */
const MOST_ELEMENTS = 2048;

const anyWide: fc.Arbitrary<WideDType> = fc.constantFrom("f32", "f32", "bf16", "f16");

/** Tensors to encode to `format`: ties and their neighbours, subnormal and overflow edges, specials, shapes down to none. */
export function encodeCases(format: ScalarFormat, { cases, seed }: Draw): readonly PlainTensor<WideDType>[] {
  const pattern = patternFor(SCALAR_FORMATS[format]);
  const multiple = factsOf(format).storageBits === 4 ? 2 : 1;
  const drawn = fc.tuple(anyWide, matrixShape(multiple, 16, MOST_ELEMENTS)).chain(([dtype, shape]) => {
    const length = elementCount(shape);
    const patterns = fc.array(pattern, { minLength: length, maxLength: length });
    return patterns.map((bits) =>
      fromCodes(
        dtype,
        shape,
        bits.map((each) => narrowed(each, dtype)),
      ),
    );
  });
  return fc.sample(drawn, { numRuns: cases, seed });
}

/** Matrices to quantize by `spec`: scale boundaries, dead blocks, specials, shapes one past a tile where it takes them. */
export function quantizeCases(spec: QuantizeSpec, { cases, seed }: Draw): readonly PlainTensor<WideDType>[] {
  const block = tileSize(spec.tile)[1];
  const { multiple } = BLOCK_FORMATS[spec.quantizer];
  const { max } = factsOf(spec.format);
  const type = spec.rht ? fc.constant<WideDType>("bf16") : anyWide;
  const drawn = fc
    .tuple(type, matrixShape(multiple, block, MOST_ELEMENTS))
    .chain(([dtype, shape]) => wideMatrix({ dtype, shape, block, max }));
  return fc.sample(drawn, { numRuns: cases, seed });
}

/** The inputs of one case: tensors, and the recipes of quantized ones, by what follows the case's name. */
export interface FuzzCase {
  readonly tensors: Readonly<Record<string, PlainTensor>>;
  readonly recipes?: Readonly<Record<string, Recipe>>;
}

type ElementType = "e4m3" | "e5m2" | "bf16" | "f16" | "f32";

/** What two operands are: their types and the blocks that share scales, "" for none. */
interface Pair {
  readonly types: readonly [a: ElementType, b: ElementType];
  readonly tiles: readonly [a: Tile | "", b: Tile | ""];
}

/** Quantizers whose results are multiplied, with the default options. */
const QUANTIZED = ["mxfp8", "mxfp6", "mxfp4", "nvfp4"] as const satisfies readonly BlockFormatName[];
type Quantized = (typeof QUANTIZED)[number];

const PAIRS: readonly Pair[] = [
  { types: ["e4m3", "e4m3"], tiles: ["", ""] },
  { types: ["e5m2", "e4m3"], tiles: ["tensor", "tensor"] },
  { types: ["e4m3", "e5m2"], tiles: ["1x128", "1x128"] },
  { types: ["e4m3", "e4m3"], tiles: ["1x128", "128x128"] },
  { types: ["bf16", "bf16"], tiles: ["", ""] },
  { types: ["f16", "f16"], tiles: ["", ""] },
  { types: ["f32", "f32"], tiles: ["", ""] },
];

/** What a product is asked for. */
export interface GemmAim {
  readonly datapath: DatapathFamily;
  readonly splitAccumulator: boolean;
  readonly splitK: number;
  readonly c: boolean;
  readonly bias: boolean;
}

function traits(format: ElementType, tile: Tile | ""): OperandTraits {
  const [lines, length] = tile === "" ? [0, 0] : tileSize(tile);
  return length === 0 ? { format } : { format, scales: { format: "f32", lines, length, pow2: true } };
}

/** Products of every pair that the datapath multiplies: cancellation, wide exponents, zeros, specials, ragged K. */
export function gemmCases(aim: GemmAim, { cases, seed }: Draw): readonly GemmCase[] {
  const { datapath, splitAccumulator, splitK } = aim;
  const pairs = PAIRS.filter(({ types: [a, b], tiles: [tileA, tileB] }) => {
    return datapathFor(datapath, traits(a, tileA), traits(b, tileB), splitAccumulator).ok;
  });
  const size = fc.oneof(fc.integer({ min: 1, max: 20 }), fc.constantFrom(0, 1, 129));
  const depth = fc.oneof(
    fc.integer({ min: 0, max: 300 }),
    fc.constantFrom(0, 1, 31, 32, 33, 127, 128, 129, 256, 257),
  );
  // Each part of a split K has to have something in it.
  const long = splitK === 1 ? depth : depth.map((k) => Math.max(k, 1) + (splitK - 1) * 128);
  const drawn = fc.record({
    pair: fc.constantFrom(...pairs),
    rows: size,
    columns: size,
    depth: long,
    seeds: fc.tuple(fc.nat(), fc.nat(), fc.nat()),
    flavour: fc.constantFrom("uniform", "narrow", "small", "sparse", "cancelling", "wild"),
  } as const);
  return fc
    .sample(drawn, { numRuns: cases, seed })
    .map(({ pair, rows, columns, depth: k, seeds, flavour }) => {
      const values = (
        type: ElementType,
        shape: readonly number[],
        from: number,
        how: Flavour = "uniform",
      ): PlainTensor => {
        const [lines = 1, length = 0] = shape.length === 2 ? shape : [1, shape[0]];
        return fromCodes(type, shape, codesOf(type, lines, length, from, how).lines.flat());
      };
      const operand = (name: string, side: 0 | 1, lines: number): GemmCase => ({
        [`.${name}`]: values(pair.types[side], [lines, k], seeds[side], flavour),
        ...scales(`.${name}.scale_inv`, pair.tiles[side], [lines, k], seeds[side]),
      });
      return {
        ...operand("a", 0, rows),
        ...operand("b", 1, columns),
        ...(aim.c ? { ".c": values("f32", [rows, columns], seeds[2], "narrow") } : {}),
        ...(aim.bias ? { ".bias": values("bf16", [columns], seeds[2], "narrow") } : {}),
      };
    });
}

type Flavour = NonNullable<Parameters<typeof codesOf>[4]>;

/** Powers of two near one, for an operand that has scales. */
function scales(
  name: string,
  tile: Tile | "",
  [lines, depth]: readonly [number, number],
  seed: number,
): GemmCase {
  if (tile === "") return {};
  const [high, wide] = tileSize(tile);
  const shape = tile === "tensor" ? [1] : [Math.ceil(lines / high), Math.ceil(depth / wide)];
  const codes = Array.from(
    words(seed, elementCount(shape)),
    (word) => 0x3f800000 + ((word % 17) - 8) * 0x00800000,
  );
  return { [name]: fromCodes("f32", shape, codes) };
}
