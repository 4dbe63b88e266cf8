/** Models of matrix products: cuBLASLt's datapath on Hopper, without split-K. */
import { ShapeError } from "../errors.js";
import { isLineWide, isTensorWide } from "../formats/block.js";
import { type FileDType, tensorDType } from "../io/dtypes.js";
import { gemm } from "../ops/gemm/gemm.js";
import type { ScaledTensor } from "../ops/gemm/operand.js";
import { Scope } from "../tensor/scope.js";
import { elementCount, isWide, type Shape, sameShape, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { Call, Model } from "./call.js";
import { requireWideDType } from "./conversions.js";
import { f32Batch, isComparedF32Batch } from "./f32-batch.js";
import { defaultLanes, fusedResult, runsOnCudaCores } from "./fused-products.js";
import { NotModelled } from "./not-modelled.js";
import {
  broadcast,
  concatenateBytes,
  itemSize,
  sliceRows,
  toTensor,
  toValue,
  transposeLastDims,
  type Value,
} from "./value.js";

/** The options of `gemm` for a product of two matrices. The current `Scope` owns its tensors. */
export type ProductOptions = Parameters<typeof gemm>[0];

type Operand = ProductOptions["x"];

/** The settings of products on Hopper. */
export const HOPPER = { datapath: "hopper", splitK: 1 } as const;

/** Requires that a and b have `rank` dimensions and one dtype, bf16 or f16. Returns the dtype. */
function requireMatrices(a: Value, b: Value, rank: number): "bf16" | "f16" {
  if (a.shape.length !== rank || b.shape.length !== rank)
    throw new ShapeError(`operands [${a.shape}] and [${b.shape}]; both must have ${rank} dimensions`);
  const dtype = requireWideDType(a);
  if (dtype === "f32" || a.dtype !== b.dtype) throw new NotModelled(`products of ${a.dtype} and ${b.dtype}`);
  return dtype;
}

/** The alignment of rows in bytes that Hopper's own kernels need. */
const ALIGNMENT = 16;
/** The alignment of rows in bytes that the kernels of `moveRemainderFirst` need. */
const HALF_ALIGNMENT = 8;

/** Whether rows of K and of N elements are multiples of `bytes` bytes. */
function isAligned({ shape, dtype }: Value, bytes: number): boolean {
  return shape.slice(-2).every((extent) => (extent * itemSize(dtype)) % bytes === 0);
}

/** The elements of K that a block of the kernels for half the alignment takes at a time. */
const TILE = 128;
/** The products of one step of the tensor core. */
const STEP = 16;

/**
 * Inserts zeros along the last dimension, after the first K modulo 128 elements, so that the rest begins a step. cuBLASLt's
 * kernels for rows of 8 bytes take the remainder of K first.
 */
function moveRemainderFirst(x: Value): Value {
  const [rows = 0, depth = 0] = x.shape;
  const remainder = depth % TILE;
  const size = itemSize(x.dtype);
  const paddedDepth = Math.ceil(remainder / STEP) * STEP - remainder + depth;
  const bytes = new Uint8Array(rows * paddedDepth * size);
  for (let row = 0; row < rows; row++) {
    const start = row * depth * size;
    bytes.set(x.bytes.subarray(start, start + remainder * size), row * paddedDepth * size);
    const remainingBytes = x.bytes.subarray(start + remainder * size, start + depth * size);
    bytes.set(remainingBytes, ((row + 1) * paddedDepth - (depth - remainder)) * size);
  }
  return { dtype: x.dtype, shape: [rows, paddedDepth], bytes };
}

export function wideProduct(call: Call, a: Value, b: Value): ProductOptions {
  const outDtype = requireMatrices(a, b, 2);
  if (!isAligned(b, HALF_ALIGNMENT))
    throw new NotModelled(`rows of [${b.shape}], which are no multiples of ${HALF_ALIGNMENT} bytes`);
  const orderDepth = isAligned(b, ALIGNMENT) ? (x: Value) => x : moveRemainderFirst;
  const [x, w] = [a, transposeLastDims(b)].map((each) => toTensor(call.backend, orderDepth(each))) as [
    Tensor,
    Tensor,
  ];
  return { x, w, outDtype, ...HOPPER };
}

export const mmOptions = (call: Call): ProductOptions => {
  const options = wideProduct(call, call.tensor("self"), call.tensor("mat2"));
  const dtype = call.dtype("out_dtype");
  return dtype === undefined ? options : { ...options, outDtype: wideDType(dtype) };
};

function wideDType(dtype: FileDType): WideDType {
  const type = tensorDType(dtype);
  if (type !== undefined && isWide(type)) return type;
  throw new NotModelled(`a result of ${dtype}`);
}

/**
 * With beta 1, a vector is the bias of cuBLASLt's epilogue. Otherwise the addend is broadcast to a matrix, which beta multiplies.
 */
export const addmmOptions = (call: Call): ProductOptions => {
  const addend = call.tensor("self");
  const options = wideProduct(call, call.tensor("mat1"), call.tensor("mat2"));
  const [beta, alpha] = [call.number("beta", 1), call.number("alpha", 1)];
  requireWideDType(addend);
  if (addend.shape.length === 1 && beta === 1)
    return { ...options, alpha, bias: toTensor(call.backend, addend) };
  const shape = [call.tensor("mat1").shape[0] as number, call.tensor("mat2").shape[1] as number];
  return { ...options, alpha, beta, c: toTensor(call.backend, broadcast(addend, shape)) };
};

/** An FP8 operand [rows, K] with its scales: per tensor, per row, per 1x128 block or per 128x128 block. */
export function scaledOperand(call: Call, name: string, data: Value, scale: Value): Operand & ScaledTensor {
  const [rows = 0, depth = 0] = data.shape;
  if (scale.dtype !== "F32") throw new NotModelled(`${name} of ${scale.dtype}`);
  const codes = toTensor(call.backend, data);
  const scaleInv = (shape: Shape): Tensor<"f32"> =>
    toTensor(call.backend, { ...scale, shape }) as Tensor<"f32">;
  const blocks = Math.ceil(depth / 128);
  if (elementCount(scale.shape) === 1) return { data: codes, scaleInv: scaleInv([1]) };
  if (sameShape(scale.shape, [rows, 1])) return { data: codes, scaleInv: scaleInv([rows, 1]), tile: "1xK" };
  if (sameShape(scale.shape, [rows, blocks]))
    return { data: codes, scaleInv: scaleInv(scale.shape), tile: "1x128" };
  if (sameShape(scale.shape, [Math.ceil(rows / 128), blocks]))
    return { data: codes, scaleInv: scaleInv(scale.shape), tile: "128x128" };
  throw new NotModelled(`${name} [${scale.shape}] of an operand [${data.shape}]`);
}

export const scaledOptions = (call: Call): ProductOptions => {
  const [a, b] = [call.tensor("self"), call.tensor("mat2")];
  for (const { dtype, shape } of [a, b]) {
    if (dtype !== "F8_E4M3" && dtype !== "F8_E5M2") throw new NotModelled(`${dtype} operands`);
    if (shape.length !== 2) throw new ShapeError(`an operand [${shape}]; it must be a matrix`);
  }
  call.requireDefault("scale_result", null);
  const outDtype = wideDType(call.dtype("out_dtype") ?? a.dtype);
  const [scaleA, scaleB] = [call.tensor("scale_a"), call.tensor("scale_b")];
  const x = scaledOperand(call, "scale_a", a, scaleA);
  const w = scaledOperand(
    call,
    "scale_b",
    transposeLastDims(b),
    scaleB.shape.length === 2 ? transposeLastDims(scaleB) : scaleB,
  );
  const bias = call.get("bias") === undefined ? {} : { bias: toTensor(call.backend, call.tensor("bias")) };
  const [tileA, tileB] = [x.tile ?? "tensor", w.tile ?? "tensor"];
  const isBlock = !isTensorWide(tileA) && !isLineWide(tileA);
  // both operands must have scales per tensor, per row, or per block
  if (isTensorWide(tileA) !== isTensorWide(tileB) || isLineWide(tileA) !== isLineWide(tileB))
    throw new NotModelled(`scales [${scaleA.shape}] with [${scaleB.shape}]`);
  return {
    x,
    w,
    outDtype,
    ...HOPPER,
    ...bias,
    useSplitAccumulator: isBlock || !call.boolean("use_fast_accum", false),
  };
};

/** Whether the order of the sums of a product was seen to depend on more than its shape: f32, and rows that are not aligned. */
export const variesInOrder = (call: Call): boolean => {
  const b = call.tensor("mat2");
  return b.dtype === "F32" || !isAligned(b, ALIGNMENT);
};

/** Whether a product is of a size for which cuBLASLt did not split K in any recorded call. */
export const hasComparedSize = (call: Call): boolean => {
  if (variesInOrder(call)) return false;
  const [rows = 0, depth = 0] = (call.get("mat1") === undefined ? call.tensor("self") : call.tensor("mat1"))
    .shape;
  const [, columns = 0] = call.tensor("mat2").shape;
  return rows * columns <= 128 * 64 && depth <= 2048;
};

/** Whether the matrices of a batch are of sizes that were compared. */
export const isComparedBatch = (call: Call): boolean => {
  const [a, b] = [call.tensor("self"), call.tensor("mat2")];
  const isSmall = [a, b].every(({ shape }) => shape.slice(1).every((extent) => extent <= 512));
  return isSmall && (a.dtype === "F32" ? isComparedF32Batch(a, b) : isAligned(b, ALIGNMENT));
};

/** The model of a product of two matrices. */
export function productModel(createOptions: (call: Call) => ProductOptions): Model {
  return (call) => {
    if (runsOnCudaCores(call)) return [fusedResult(call, defaultLanes(call))];
    using _ = new Scope();
    return [toValue(gemm(createOptions(call)).out)];
  };
}

/** aten::bmm: each product of bf16 and f16 as `mm` computes it, each f32 product as `f32Batch` computes it. */
export const batchedProduct: Model = (call) => {
  const [a, b] = [call.tensor("self"), call.tensor("mat2")];
  if (a.dtype === "F32") return [f32Batch(call, a, b)];
  requireMatrices(a, b, 3);
  const [batch = 0, rows = 0] = a.shape;
  const columns = b.shape[2] as number;
  if (b.shape[0] !== batch) throw new ShapeError(`batches of ${batch} and ${b.shape[0]} matrices`);
  const matrix = (x: Value, i: number): Value => ({ ...sliceRows(x, i, i + 1), shape: x.shape.slice(1) });
  const products = Array.from({ length: batch }, (_, i) => {
    using _scope = new Scope();
    return toValue(gemm(wideProduct(call, matrix(a, i), matrix(b, i))).out);
  });
  return [concatenateBytes(products, { dtype: a.dtype, shape: [batch, rows, columns] })];
};
