/** Models of products that CUDA cores compute with fused multiply-adds: f32 ones, and vectors by matrices in bf16 and f16. */
import { ShapeError } from "../errors.js";
import type { Lanes } from "../orders/order.js";
import type { Call } from "./call.js";
import { roundedValue, toFloat32 } from "./conversions.js";
import { fma } from "./float32.js";
import { NotModelled } from "./not-modelled.js";
import { broadcast, copyCorner, type Value } from "./value.js";

const { fround } = Math;

/** The operands of a product: x, [rows, depth], and w, [depth, columns]. */
interface FusedProduct {
  readonly x: Float32Array;
  readonly w: Float32Array;
  readonly rows: number;
  readonly depth: number;
  readonly columns: number;
}

/** Requires two matrices of one dtype that can be multiplied. Returns the sizes of their product. */
function requireFactors(a: Value, b: Value): Corner & { readonly depth: number } {
  const [rows = 0, depth = 0] = a.shape;
  const [height, columns = 0] = b.shape;
  if (a.shape.length !== 2 || b.shape.length !== 2 || height !== depth)
    throw new ShapeError(`operands [${a.shape}] and [${b.shape}]`);
  if (a.dtype !== b.dtype) throw new NotModelled(`products of ${a.dtype} and ${b.dtype}`);
  return { rows, depth, columns };
}

/** One chain in the order of ascending k. */
export const ONE_LANE: Lanes = { count: 1, run: 1, join: "ascending" };

/** Adds lane i + n / 2 to lane i of n lanes, until one lane is left. */
function joinHalves(lanes: Float32Array[]): Float32Array {
  for (let half = lanes.length / 2; half >= 1; half /= 2)
    for (let i = 0; i < half; i++) addInPlace(lanes[i] as Float32Array, lanes[i + half] as Float32Array);
  return lanes[0] as Float32Array;
}

function addInPlace(sums: Float32Array, addends: Float32Array): void {
  for (let i = 0; i < sums.length; i++) sums[i] = (sums[i] as number) + (addends[i] as number);
}

/** The sums of one row: lane `l` of `count` has the terms for which floor(k / run) modulo count is l. */
function rowSums(
  { x, w, depth, columns }: FusedProduct,
  row: number,
  { count, run, join }: Lanes,
): Float32Array {
  const lanes = Array.from({ length: count }, () => new Float32Array(columns));
  for (let k = 0; k < depth; k++) {
    const lane = lanes[Math.floor(k / run) % count] as Float32Array;
    const factor = x[row * depth + k] as number;
    for (let i = 0; i < columns; i++) lane[i] = fma(factor, w[k * columns + i] as number, lane[i] as number);
  }
  if (join === "halves") return joinHalves(lanes);
  const [sums, ...otherLanes] = lanes as [Float32Array, ...Float32Array[]];
  for (const laneSums of otherLanes) addInPlace(sums, laneSums);
  return sums;
}

/** The f32 sums of a product, [rows, columns]. A lane is a chain of c = fma(x, w, c) from +0, in ascending k. */
export function fusedSums(product: FusedProduct, lanes: Lanes): Float32Array {
  const out = new Float32Array(product.rows * product.columns);
  for (let row = 0; row < product.rows; row++) out.set(rowSums(product, row, lanes), row * product.columns);
  return out;
}

/** The operands of aten::mm or aten::addmm. */
const productOperands = (call: Call): readonly [Value, Value] => [
  call.tensor(call.get("mat1") === undefined ? "self" : "mat1"),
  call.tensor("mat2"),
];

/** Whether CUDA cores compute aten::mm or aten::addmm: f32, or a vector times a matrix whose rows are not aligned. */
export function runsOnCudaCores(call: Call): boolean {
  const [a, b] = productOperands(call);
  return a.dtype === "F32" || (a.shape[0] === 1 && b.shape.some((extent) => extent % 8 !== 0));
}

/** A part of a result: its first rows and columns. */
interface Corner {
  readonly rows: number;
  readonly columns: number;
}

/**
 * The corner of the result of aten::mm or aten::addmm: fma(alpha, sum, beta * addend), rounded once. With beta 0 the addend is
 * ignored, even if it is NaN or infinite, as PyTorch documents.
 */
export function fusedResult(call: Call, lanes: Lanes, corner?: Corner): Value {
  const { backend } = call;
  const [a, b] = productOperands(call);
  const shape = requireFactors(a, b);
  const { rows, columns } = corner ?? shape;
  const { depth } = shape;
  const cornerValues = (x: Value, height: number, width: number): Float32Array =>
    toFloat32(backend, corner ? copyCorner(x, height, width) : x);
  const [x, w] = [cornerValues(a, rows, depth), cornerValues(b, depth, columns)];
  const sums = fusedSums({ x, w, rows, depth, columns }, lanes);
  const toResult = (values: Float32Array): Value =>
    roundedValue(backend, call.dtype("out_dtype") ?? a.dtype, [rows, columns], values);
  if (call.get("mat1") === undefined) return toResult(sums);
  const [alpha, beta] = [fround(call.number("alpha", 1)), fround(call.number("beta", 1))];
  if (beta === 0) return toResult(sums.map((sum) => fma(alpha, sum, 0)));
  const addend = cornerValues(broadcast(call.tensor("self"), [shape.rows, shape.columns]), rows, columns);
  return toResult(sums.map((sum, i) => fma(alpha, sum, fround(beta * (addend[i] as number)))));
}

/** The lanes of a vector times a matrix in row-major order, as an H200 was seen to compute it with K = 768. */
const VECTOR_LANES: Readonly<Record<string, Lanes>> = {
  BF16: { count: 4, run: 64, join: "halves" },
  F16: { count: 2, run: 1, join: "halves" },
  F32: { count: 2, run: 64, join: "halves" },
};

/** The lanes that the model takes: one chain, or the lanes of `VECTOR_LANES` for a vector. */
export function defaultLanes(call: Call): Lanes {
  const [a] = productOperands(call);
  return (a.shape[0] === 1 ? VECTOR_LANES[a.dtype] : undefined) ?? ONE_LANE;
}

const SPLITS = [...Array.from({ length: 63 }, (_, i) => i + 2), 128];
const SPLIT_TILES = [1, 8, 32];
/** Slices of K that warps of one block of threads take in turn. */
const SLICES: readonly Lanes[] = [2, 4, 8, 16].map((count) => ({ count, run: 8, join: "ascending" }));
const VECTORS: readonly Lanes[] = [2, 4, 8, 16, 32].flatMap((count) =>
  [1, 8, 32, 64].map((run) => ({ count, run, join: "halves" }) as const),
);

/** The lanes that a search tries: ranges of K, or slices of 8. For a vector: lanes whose halves are added. */
export function candidateLanes(call: Call): readonly Lanes[] {
  const [a] = productOperands(call);
  const [rows = 0, depth = 0] = a.shape;
  if (rows === 1) return VECTORS;
  const runs = SPLITS.flatMap((count) =>
    SPLIT_TILES.map((tile) => Math.ceil(Math.ceil(depth / count) / tile) * tile),
  );
  const ranges = [...new Set(runs)]
    .filter((run) => run < depth)
    .map((run) => ({ count: Math.ceil(depth / run), run, join: "ascending" }) as const);
  return [...SLICES, ...ranges];
}
