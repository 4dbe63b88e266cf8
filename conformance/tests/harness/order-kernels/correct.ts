/** Correct kernels. Each sums in the order of kernels that exist elsewhere. */
import { BLOCK_SCALED_FIELDS, type Element, fma, fround, type OrderKernel, plainFields } from "./kernel.js";
import {
  blockSums,
  cascadeSum,
  FP8,
  fmaChain,
  fullRange,
  HALF,
  horizontalAdd,
  kahan,
  laneSums,
  mulAddChain,
  numpySum,
  ranges,
  roundedProducts,
  shuffleDown,
  sumInOrder,
  tensorCore,
} from "./sums.js";

const F32 = plainFields("f32", "f32");
const BF16 = plainFields("bf16", "bf16");
const BF16_F32 = plainFields("bf16", "f32");
const FP8_F32 = plainFields("e4m3", "f32");

const splitK = (element: Element, count: number, tile: number): number[] =>
  ranges(element.depth, count, tile).map((range) => fmaChain(element, range));

/**
 * A stream-K kernel. Two workers share a tile; the second adds the partial sum of the first. The boundary depends on the tile.
 */
function streamK(element: Element): number {
  const { row, column, columns, depth } = element;
  const tile = Math.floor(row / 16) * Math.ceil(columns / 16) + Math.floor(column / 16);
  const boundary = Math.min(depth, 32 * ((tile * 5) % (Math.ceil(depth / 32) + 1)));
  return fround(fmaChain(element, [boundary, depth]) + fmaChain(element, [0, boundary]));
}

/** Splits in a scrambled order, as atomic additions give. The order differs from element to element. */
function atomicSplits(element: Element): number {
  const sums = splitK(element, 6, 16);
  const start = (element.row * 7 + element.column * 3) % Math.max(1, sums.length);
  return sumInOrder([...sums.slice(start), ...sums.slice(0, start)]);
}

/** A dot product of four unrolled lanes, with a separate accumulator for the tail. */
function unrolledWithTail(element: Element): number {
  const vectorDepth = element.depth - (element.depth % 8);
  const lanes = laneSums(element, 8, 1, [0, vectorDepth]);
  return fround(horizontalAdd(lanes) + mulAddChain(element, [vectorDepth, element.depth]));
}

/** Each 128 elements along K share scales. The sum of their products is scaled and added to the total. */
function deepGemm(element: Element): number {
  let total = 0;
  for (let k = 0; k < element.depth; k += 128) {
    const scale = fround(element.sx(k) * element.sw(k));
    total = fma(fmaChain(element, [k, Math.min(element.depth, k + 128)]), scale, total);
  }
  return total;
}

function dequantizeFirst(element: Element): number {
  const x = element.x.map((value, k) => fround(value * element.sx(k)));
  const w = element.w.map((value, k) => fround(value * element.sw(k)));
  return fmaChain({ ...element, x, w }, fullRange(element));
}

const sumInF64 = ({ x, w }: Element): number => {
  let sum = 0;
  for (let k = 0; k < x.length; k++) sum += (x[k] as number) * (w[k] as number);
  return fround(sum);
};

/** Fields of a kernel of f32 numbers with alpha, beta, C and bias. */
const { c: _c, bias: _bias, alpha: _alpha, ...PLAIN_F32 } = plainFields("f32", "f32");
export const WITH_EPILOGUE = {
  ...PLAIN_F32,
  alpha: [1, 0.3, -2],
  "c.dtype": ["f32"],
  "bias.dtype": ["f32"],
  accumulate: [false],
};
const WITH_BIAS = { ...PLAIN_F32, alpha: [1], c: [null], "bias.dtype": ["f32"] };

/** All these kernels are correct: no test may reject one. */
export const CORRECT_KERNELS: readonly OrderKernel[] = [
  { name: "sequential, fused", supported: F32, sum: (e) => fmaChain(e, fullRange(e)) },
  { name: "sequential, separate rounding", supported: F32, sum: (e) => mulAddChain(e, fullRange(e)) },
  { name: "numpy's pairwise sum of products", supported: F32, sum: (e) => numpySum(roundedProducts(e)) },
  { name: "cascade of halves", supported: F32, sum: (e) => cascadeSum(roundedProducts(e)) },
  { name: "split-K 2, bf16 into f32", supported: BF16_F32, sum: (e) => sumInOrder(splitK(e, 2, 32)) },
  { name: "split-K 4", supported: F32, sum: (e) => sumInOrder(splitK(e, 4, 16)) },
  {
    name: "split-K 8, joined by a tree, bf16",
    supported: BF16,
    sum: (e) => {
      const sums = splitK(e, 8, 16);
      return shuffleDown([...sums, ...new Array<number>(8 - sums.length).fill(0)]);
    },
  },
  {
    name: "Triton's interleaved split-K of blocks of 32",
    supported: F32,
    sum: (e) => sumInOrder(laneSums(e, 4, 32)),
  },
  { name: "stream-K", supported: F32, sum: streamK },
  { name: "atomic split-K, another order for each element", supported: F32, sum: atomicSplits },
  { name: "blocks of 16 with promotion", supported: F32, sum: (e) => blockSums(e, 16) },
  {
    name: "blocks of 32, products rounded, bf16",
    supported: BF16,
    sum: (e) => blockSums(e, 32, mulAddChain),
  },
  { name: "blocks of 64 with promotion, e4m3", supported: FP8_F32, sum: (e) => blockSums(e, 64) },
  {
    name: "blocks of 128 with promotion, f16",
    supported: plainFields("f16", "f16"),
    sum: (e) => blockSums(e, 128),
  },
  { name: "2 lanes", supported: F32, sum: (e) => sumInOrder(laneSums(e, 2)) },
  { name: "4 lanes, shuffle", supported: F32, sum: (e) => shuffleDown(laneSums(e, 4)) },
  { name: "8 lanes, horizontal add", supported: F32, sum: (e) => horizontalAdd(laneSums(e, 8)) },
  { name: "16 lanes of float4, in order", supported: BF16_F32, sum: (e) => sumInOrder(laneSums(e, 16, 4)) },
  { name: "a warp of 32 lanes, shuffle", supported: F32, sum: (e) => shuffleDown(laneSums(e, 32, 4)) },
  { name: "8 lanes and a scalar tail", supported: F32, sum: unrolledWithTail },
  {
    name: "Hopper's tensor core, bf16",
    supported: BF16,
    sum: (e) => tensorCore(e, fullRange(e), HALF(-126)),
  },
  {
    name: "Hopper's tensor core, bf16 into f32, split-K 2",
    supported: BF16_F32,
    sum: (e) => sumInOrder(ranges(e.depth, 2, 64).map((range) => tensorCore(e, range, HALF(-126)))),
  },
  {
    name: "tensor-core steps of 32, promoted every 64, f16 into f32",
    supported: plainFields("f16", "f32"),
    sum: (e) => blockSums(e, 64, (element, range) => tensorCore(element, range, { ...HALF(-14), step: 32 })),
  },
  {
    name: "Hopper's FP8, promoted every 128",
    supported: FP8_F32,
    accumulator: "hopper-fp8",
    sum: (e) => blockSums(e, 128, (element, range) => tensorCore(element, range, FP8)),
  },
  { name: "f64", supported: F32, accumulator: "f64", sum: sumInF64 },
  { name: "f64 under a declared f32", supported: plainFields("f16", "bf16"), sum: sumInF64 },
  { name: "Kahan's compensated sum", supported: F32, sum: (e) => kahan(roundedProducts(e)) },
  { name: "DeepGEMM's scales of blocks", supported: BLOCK_SCALED_FIELDS, sum: deepGemm },
  { name: "elements times their scales first", supported: BLOCK_SCALED_FIELDS, sum: dequantizeFirst },
  { name: "alpha, beta and bias", supported: WITH_EPILOGUE, sum: (e) => shuffleDown(laneSums(e, 8)) },
  {
    name: "an accumulator that begins at the bias",
    supported: WITH_BIAS,
    sum: (e) => fmaChain(e, fullRange(e), e.bias ?? 0),
    epilogue: (sum) => sum,
  },
];
