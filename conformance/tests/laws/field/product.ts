/** A small product of FP8 codes under f32 scales, summed in f32 in the order of K, and mistakes in such kernels. */
import * as fc from "fast-check";
import type { GemmCase } from "../../../operations/gemm/case.js";
import type { OperandCase } from "../../../operations/gemm/operand.js";
import type { Answer } from "../../../operations/operation.js";
import { fromCodes } from "../../../values/plain.js";
import { decode } from "./narrow.js";

/** The number of elements along K that share a scale. */
const BLOCK = 128;
const f = Math.fround;

/** A mistake, by the stage of the kernel that it changes. */
export interface ProductMistake {
  readonly value?: (code: number) => number;
  /** The number of summed elements along K. */
  readonly depth?: (depth: number) => number;
  /** The index of the scale of a line and a block, in a matrix of this size. */
  readonly scaleAt?: (line: number, block: number, lines: number, blocks: number) => number;
  readonly add?: (sum: number, term: number) => number;
  readonly alpha?: number;
  readonly bias?: false;
}

const fp8Value = (code: number): number => ((code & 0x7f) === 0x7f ? Number.NaN : decode(code, "e4m3"));

/** The kernel, with or without a mistake. */
export function product(mistake: ProductMistake = {}): (input: GemmCase) => Answer {
  const { value = fp8Value, depth: summedDepth = (k) => k, add = (sum, term) => f(sum + term) } = mistake;
  const { scaleAt = (line, block, _, blocks) => line * blocks + block } = mistake;
  const elements = ({ codes, scales }: OperandCase) => {
    const [lines, depth] = codes.matrix;
    const blocks = Math.ceil(depth / BLOCK);
    const factors = scales?.data as Float32Array | undefined;
    return Array.from({ length: lines }, (_, line) =>
      Array.from({ length: summedDepth(depth) }, (__, k) => {
        const element = value(codes.codes[line * depth + k] as number);
        if (!factors) return element;
        return f(element * (factors[scaleAt(line, Math.floor(k / BLOCK), lines, blocks)] as number));
      }),
    );
  };
  return ({ a, b, alpha, bias }) => {
    const [w, x] = [elements(a), elements(b)];
    const values = x.flatMap((line) =>
      w.map((wRow, j) => {
        const sum = line.reduce((total, element, k) => add(total, f(element * (wRow[k] as number))), 0);
        const scaledSum = f(f(mistake.alpha ?? alpha) * sum);
        return bias && mistake.bias !== false ? f(scaledSum + (bias.data[j] as number)) : scaledSum;
      }),
    );
    return { out: fromCodes("f32", [x.length, w.length], new Uint32Array(Float32Array.from(values).buffer)) };
  };
}

/** Products that the kernel supports. */
export function products({ isScaled }: { readonly isScaled: boolean }): fc.Arbitrary<GemmCase> {
  const lines = fc.integer({ min: 1, max: 5 });
  const depth = fc.constantFrom(1, 2, 31, 33, 64, 100, 130, 256, 257, 300, 384, 512);
  const operand = (count: number, k: number): fc.Arbitrary<OperandCase> => {
    const blocks = Math.ceil(k / BLOCK);
    const codes = fc.array(
      fc.oneof({ weight: 40, arbitrary: fc.integer({ min: 0x20, max: 0x48 }) }, fc.nat({ max: 255 })),
      {
        minLength: count * k,
        maxLength: count * k,
      },
    );
    const scales = fc.array(fc.float({ min: 0.25, max: 4, noNaN: true }), {
      minLength: count * blocks,
      maxLength: count * blocks,
    });
    return fc.tuple(codes, scales).map(([elements, factors]) => ({
      source: isScaled
        ? { kind: "scaled", format: "e4m3", tile: "1x128" }
        : { kind: "plain", format: "e4m3" },
      codes: fromCodes("e4m3", [count, k], elements),
      ...(isScaled
        ? { scales: fromCodes("f32", [count, blocks], new Uint32Array(Float32Array.from(factors).buffer)) }
        : {}),
      lead: 1,
    }));
  };
  return fc.tuple(lines, lines, depth).chain(([rows, columns, k]) =>
    fc.record({
      a: operand(columns, k),
      b: operand(rows, k),
      layout: fc.constant("TN" as const),
      datapath: fc.constant("fp32" as const),
      useSplitAccumulator: fc.constant(false),
      splitK: fc.constant(1),
      alpha: fc.constantFrom(1, 0.5, 3),
      bias: fc.option(
        fc
          .array(fc.float({ min: -2, max: 2, noNaN: true }), { minLength: columns, maxLength: columns })
          .map((values) => fromCodes("f32", [columns], new Uint32Array(Float32Array.from(values).buffer))),
        { nil: undefined },
      ),
      accumulate: fc.constant(false),
      intoOut: fc.constant(false),
      gelu: fc.constant(false),
      biasGradient: fc.constant(false),
      outDtype: fc.constant("f32" as const),
      outScale: fc.constant(1),
    }),
  );
}

/** Rounds to f16 by the spacing of its numbers, ties to even. */
function f16(x: number): number {
  if (!Number.isFinite(x) || x === 0) return x;
  const step = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(x))), -14) - 10);
  const units = x / step;
  const lower = Math.floor(units);
  const increment = units - lower > 0.5 || (units - lower === 0.5 && Math.abs(lower) % 2 === 1) ? 1 : 0;
  const roundedUnits = (lower + increment) * step;
  return Math.abs(roundedUnits) > 65504 ? Math.sign(roundedUnits) * Infinity : roundedUnits;
}

/** A mistake of a published product, and its name. */
export interface ProductBug {
  readonly name: string;
  readonly isScaled: boolean;
  readonly mistake: ProductMistake;
  readonly causePattern: RegExp;
}

export const PRODUCT_BUGS: readonly ProductBug[] = [
  {
    name: "the tail of K dropped",
    isScaled: true,
    mistake: { depth: (depth) => depth - (depth % 32) },
    causePattern: /tail of K is dropped: only whole steps of 32/,
  },
  {
    name: "split-K in two slices that reuse the scales of slice 0",
    isScaled: true,
    mistake: {
      scaleAt: (line, block, _, blocks) => line * blocks + (block % Math.max(1, Math.ceil(blocks / 2))),
    },
    causePattern: /split-K: every of 2 slices uses the scales of slice 0/,
  },
  {
    name: "scales read transposed",
    isScaled: true,
    mistake: {
      scaleAt: (line, block, lines, blocks) => {
        const index = line * blocks + block;
        return (index % lines) * blocks + Math.floor(index / lines);
      },
    },
    causePattern: /scales of both operands are transposed/,
  },
  {
    name: "one scale for a whole line",
    isScaled: true,
    mistake: { scaleAt: (line, _, __, blocks) => line * blocks },
    causePattern: /only the first scale along K/,
  },
  {
    name: "accumulator of fp16",
    isScaled: false,
    mistake: { add: (sum, term) => f16(f(sum + term)) },
    causePattern: /accumulator is fp16/,
  },
  {
    name: "e4m3 read as e4m3fnuz",
    isScaled: false,
    mistake: { value: (code) => (code === 0x80 ? 0 : fp8Value(code) / 2) },
    causePattern: /a and b are read as fnuz/,
  },
  {
    name: "NaN codes count as zero",
    isScaled: false,
    mistake: { value: (code) => ((code & 0x7f) === 0x7f ? 0 : fp8Value(code)) },
    causePattern: /NaN codes count as zero/,
  },
  {
    name: "subnormal codes count as zero",
    isScaled: false,
    mistake: { value: (code) => ((code & 0x7f) < 8 ? 0 : fp8Value(code)) },
    causePattern: /subnormal codes count as zero/,
  },
  { name: "alpha left out", isScaled: true, mistake: { alpha: 1 }, causePattern: /alpha is ignored/ },
  { name: "bias left out", isScaled: true, mistake: { bias: false }, causePattern: /bias is not added/ },
];
