/** Kernels with one planted bug each. */
import { BF16, F16, ofNumber, roundToNearest } from "../../../oracle/core/rational.js";
import { WITH_EPILOGUE } from "./correct.js";
import {
  BLOCK_SCALED_FIELDS,
  type Element,
  fma,
  fround,
  type OrderKernel,
  plainFields,
  usualEpilogue,
} from "./kernel.js";
import {
  blockSums,
  FP8,
  fmaChain,
  fullRange,
  HALF,
  laneSums,
  mulAddChain,
  type Range,
  ranges,
  shuffleDown,
  sumInOrder,
  tensorCore,
} from "./sums.js";

const F32 = plainFields("f32", "f32");
const BF16_OUT = plainFields("bf16", "bf16");
const BF16_F32 = plainFields("bf16", "f32");
const F16_OUT = plainFields("f16", "f16");
const FP8_F32 = plainFields("e4m3", "f32");
const LINE_SCALED_FIELDS = { ...BLOCK_SCALED_FIELDS, "a.source.tile": ["1xK"], "b.source.tile": ["1xK"] };

/** Rounds to a narrow type; NaN and infinities stay. */
const roundToFloat = (value: number, float: typeof BF16): number =>
  Number.isFinite(value) && value !== 0 ? roundToNearest(ofNumber(value), float) : value;
const toBf16 = (value: number): number => roundToFloat(value, BF16);
const toF16 = (value: number): number => roundToFloat(value, F16);

/** A kernel with one bug, in its sum or in one of its other fields. */
const bug = (
  name: string,
  supported: OrderKernel["supported"],
  sum: (element: Element) => number,
  fields: Partial<OrderKernel> = {},
): OrderKernel => ({ name, supported, sum, ...fields });

const fullChain = (element: Element): number => fmaChain(element, fullRange(element));
const roundDown = (depth: number, block: number): number => depth - (depth % block);

/** A sum whose operand lines belong to another element. */
const wrongElement =
  (wrongIndex: (element: Element) => readonly [row: number, column: number]) =>
  (element: Element): number =>
    fullChain(element.at(...wrongIndex(element)));

/** Block scales in the DeepGEMM order, with the wrong scale for one block. */
const wrongBlockScale =
  (scaleOf: (element: Element, k: number) => number) =>
  (element: Element): number => {
    let total = 0;
    for (let k = 0; k < element.depth; k += 128) {
      const sum = fmaChain(element, [k, Math.min(element.depth, k + 128)]);
      total = fma(sum, fround(scaleOf(element, k)), total);
    }
    return total;
  };
const blockScale = (element: Element, k: number): number => fround(element.sx(k) * element.sw(k));

const withEpilogue = (
  name: string,
  epilogue: NonNullable<OrderKernel["epilogue"]>,
  sum: (element: Element) => number = fullChain,
): OrderKernel => bug(name, WITH_EPILOGUE, sum, { epilogue });

/** Flips a bit of the last element of the result. Bit 0 is the lowest bit of f32. */
const flipBit =
  (bit: number): NonNullable<OrderKernel["changeStored"]> =>
  (values) => {
    const words = new Uint32Array(values.buffer);
    const lastIndex = words.length - 1;
    words[lastIndex] = ((words[lastIndex] as number) ^ (1 << bit)) >>> 0;
  };

const flushToZero = (value: number): number => (Math.abs(value) < 2 ** -126 ? 0 : value);
const truncateToBf16 = (value: number): number => {
  const nearest = toBf16(value);
  if (Math.abs(nearest) <= Math.abs(value) || !Number.isFinite(nearest)) return nearest;
  const words = new Uint32Array(Float32Array.of(nearest).buffer);
  words[0] = (words[0] as number) - 0x10000;
  return new Float32Array(words.buffer)[0] as number;
};
const roundToTf32 = (value: number): number => {
  const words = new Uint32Array(Float32Array.of(value).buffer);
  words[0] = ((words[0] as number) + 0x1000) & 0xffffe000;
  return new Float32Array(words.buffer)[0] as number;
};

const roundedChain =
  (round: (sum: number) => number) =>
  ({ x, w, depth }: Element): number => {
    let acc = 0;
    for (let k = 0; k < depth; k++) acc = round(fma(x[k] as number, w[k] as number, acc));
    return acc;
  };

/** The accumulator of the previous tile of 16 columns. */
const previousTileSum = (element: Element): number =>
  element.column >= 16 ? fullChain(element.at(element.row, element.column - 16)) : 0;

/** Each of these kernels is wrong on some of the drawn inputs. */
export const WRONG_KERNELS: readonly OrderKernel[] = [
  bug("the last element of K is dropped", F32, (e) => fmaChain(e, [0, e.depth - 1])),
  bug("the first element of K is dropped", F32, (e) => fmaChain(e, [1, e.depth])),
  bug("the tail of K beyond blocks of 32 is dropped", BF16_OUT, (e) =>
    fmaChain(e, [0, roundDown(e.depth, 32)]),
  ),
  bug("the tail of K beyond 8 lanes is dropped", F32, (e) =>
    shuffleDown(laneSums(e, 8, 1, [0, roundDown(e.depth, 8)])),
  ),
  bug("the last block is added twice", F32, (e) => {
    const start = roundDown(e.depth - 1, 32);
    return fround(fullChain(e) + fmaChain(e, [start, e.depth]));
  }),
  bug("the second split is lost in one element of 64", F32, (e) => {
    const splits = ranges(e.depth, 2, 16).map((range: Range) => fmaChain(e, range));
    return (e.row * e.columns + e.column) % 64 === 5 ? (splits[0] ?? 0) : sumInOrder(splits);
  }),
  bug("half of K twice, divided by nothing", BF16_F32, (e) => {
    const half = Math.floor(e.depth / 2);
    return 2 * fmaChain(e, [0, half]);
  }),
  bug(
    "rows are off by one",
    F32,
    wrongElement((e) => [Math.min(e.rows - 1, e.row + 1), e.column]),
  ),
  bug(
    "columns are off by one",
    BF16_OUT,
    wrongElement((e) => [e.row, Math.min(e.columns - 1, e.column + 1)]),
  ),
  bug(
    "tiles of 4 are transposed",
    F32,
    wrongElement((e) => {
      const [row, column] = [e.row - (e.row % 4), e.column - (e.column % 4)];
      const fits = row + 4 <= e.rows && column + 4 <= e.columns;
      return fits ? [row + (e.column % 4), column + (e.row % 4)] : [e.row, e.column];
    }),
  ),
  bug(
    "the last row repeats the one before",
    BF16_F32,
    wrongElement((e) => [e.row === e.rows - 1 ? Math.max(0, e.row - 1) : e.row, e.column]),
  ),
  bug(
    "the last block has the scale of the block before",
    BLOCK_SCALED_FIELDS,
    wrongBlockScale((e, k) => blockScale(e, k > 0 && k + 128 >= e.depth ? k - 128 : k)),
  ),
  bug(
    "the scale of x is that of the first block",
    BLOCK_SCALED_FIELDS,
    wrongBlockScale((e, k) => e.sx(0) * e.sw(k)),
  ),
  bug(
    "scales are rounded to bf16",
    BLOCK_SCALED_FIELDS,
    wrongBlockScale((e, k) => toBf16(blockScale(e, k))),
  ),
  bug(
    "scales are rounded up to powers of two",
    BLOCK_SCALED_FIELDS,
    wrongBlockScale((e, k) => 2 ** Math.ceil(Math.log2(blockScale(e, k)))),
  ),
  bug(
    "block scales are left out in the last block",
    BLOCK_SCALED_FIELDS,
    wrongBlockScale((e, k) => (k + 128 >= e.depth ? 1 : blockScale(e, k))),
  ),
  bug("every row has the scale of row 0", LINE_SCALED_FIELDS, fullChain, {
    epilogue: (sum, e) => usualEpilogue(sum, { ...e, scaleX: e.at(0, e.column).scaleX }),
  }),
  withEpilogue("the bias is added twice", (sum, e) => fround(usualEpilogue(sum, e) + (e.bias ?? 0))),
  withEpilogue("the bias is left out", (sum, e) => usualEpilogue(sum, { ...e, bias: undefined })),
  withEpilogue("the bias is that of the next column", (sum, e) =>
    usualEpilogue(sum, { ...e, bias: e.at(e.row, Math.min(e.columns - 1, e.column + 1)).bias }),
  ),
  withEpilogue("the bias is rounded to bf16", (sum, e) =>
    usualEpilogue(sum, { ...e, bias: e.bias === undefined ? undefined : toBf16(e.bias) }),
  ),
  withEpilogue("beta is 1", (sum, e) => usualEpilogue(sum, { ...e, beta: e.beta === 0 ? 0 : 1 })),
  withEpilogue("alpha multiplies the bias too", (sum, e) =>
    usualEpilogue(sum, { ...e, bias: e.bias === undefined ? undefined : fround(e.bias * e.alpha) }),
  ),
  withEpilogue("alpha is rounded to f16", (sum, e) => usualEpilogue(sum, { ...e, alpha: toF16(e.alpha) })),
  bug("promotion every 128 is declared and missing", FP8_F32, (e) => tensorCore(e, fullRange(e), FP8), {
    accumulator: "hopper-fp8",
  }),
  bug("f32 is declared, sums keep 13 bits", FP8_F32, (e) =>
    blockSums(e, 128, (element, range) => tensorCore(element, range, FP8)),
  ),
  bug("the accumulator is bf16", BF16_OUT, roundedChain(toBf16)),
  bug("the accumulator is f16", F16_OUT, roundedChain(toF16)),
  bug("blocks of 64 are rounded to bf16", BF16_OUT, (e) =>
    blockSums(e, 64, (element, range) => toBf16(fmaChain(element, range))),
  ),
  bug("splits are stored in bf16", BF16_F32, (e) =>
    sumInOrder(ranges(e.depth, 4, 16).map((range) => toBf16(fmaChain(e, range)))),
  ),
  bug("products are rounded to bf16", BF16_OUT, (e) => {
    const x = e.x.map((value, k) => toBf16(fround(value * (e.w[k] as number))));
    return mulAddChain({ ...e, x, w: x.map(() => 1) }, fullRange(e));
  }),
  bug("the accumulator keeps the previous tile's sum", BF16_F32, (e) =>
    fmaChain(e, fullRange(e), previousTileSum(e)),
  ),
  bug("the accumulator begins at 2^-10", F32, (e) => fmaChain(e, fullRange(e), 2 ** -10)),
  bug("the lowest bit of one element is flipped, f32", F32, fullChain, { changeStored: flipBit(0) }),
  bug(
    "the lowest bit of one element is flipped, bf16",
    BF16_OUT,
    (e) => tensorCore(e, fullRange(e), HALF(-126)),
    {
      changeStored: flipBit(16),
    },
  ),
  bug("f16 saturates instead of infinity", F16_OUT, fullChain, {
    epilogue: (sum) => Math.max(-65504, Math.min(65504, sum)),
  }),
  bug("subnormal results are flushed", BF16_F32, fullChain, { epilogue: flushToZero }),
  bug("subnormal operands are flushed, f16", F16_OUT, (e) => {
    const flushSubnormals = (values: readonly number[]) =>
      values.map((value) => (Math.abs(value) < 2 ** -14 ? 0 : value));
    return fullChain({ ...e, x: flushSubnormals(e.x), w: flushSubnormals(e.w) });
  }),
  bug("the result is truncated to bf16", BF16_OUT, fullChain, { epilogue: truncateToBf16 }),
  bug("f32 operands are rounded to tf32", F32, (e) =>
    fullChain({ ...e, x: e.x.map(roundToTf32), w: e.w.map(roundToTf32) }),
  ),
  bug("NaN becomes 0", F32, fullChain, { epilogue: (sum) => (Number.isNaN(sum) ? 0 : sum) }),
  bug("infinities become the largest number", BF16_F32, fullChain, {
    epilogue: (sum) => Math.max(-(2 ** 127), Math.min(2 ** 127, sum)),
  }),
];
