/** Models of operators that select elements or fill tensors with constants. Their results do not depend on the chip. */
import { ShapeError } from "../errors.js";
import type { FileDType } from "../io/dtypes.js";
import { elementCount } from "../tensor/shape.js";
import { type Call, isValue, type Model } from "./call.js";
import { NotModelled } from "./not-modelled.js";
import { broadcast, commonShape, copyElement, itemSize, type Value, zeroValue } from "./value.js";

/** Reads integers as numbers. Throws `NotModelled` for other types. */
export function toIntegers({ dtype, bytes }: Value): readonly number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (dtype === "BOOL" || dtype === "U8") return Array.from(bytes);
  if (dtype === "I32") return Array.from({ length: bytes.length / 4 }, (_, i) => view.getInt32(4 * i, true));
  if (dtype === "I64")
    return Array.from({ length: bytes.length / 8 }, (_, i) => Number(view.getBigInt64(8 * i, true)));
  throw new NotModelled(`integers of ${dtype}`);
}

/**
 * Copies the slices of `table` with these indices along a dimension. In the result, the shape of `indices` replaces the
 * dimension.
 */
export function selectSlices(table: Value, indices: Value, dim: number): Value {
  const { shape } = table;
  const size = shape[dim];
  if (size === undefined) throw new ShapeError(`dimension ${dim} of [${shape}]`);
  const out = zeroValue(table.dtype, [...shape.slice(0, dim), ...indices.shape, ...shape.slice(dim + 1)]);
  const inner = elementCount(shape.slice(dim + 1)) * itemSize(table.dtype);
  const outer = elementCount(shape.slice(0, dim));
  if (indices.dtype !== "I32" && indices.dtype !== "I64")
    throw new NotModelled(`indices of ${indices.dtype}`);
  const list = toIntegers(indices);
  for (let row = 0; row < outer; row++)
    for (const [i, index] of list.entries()) {
      const position = index < 0 ? index + size : index;
      if (!(position >= 0 && position < size))
        throw new ShapeError(`index ${index} of dimension ${dim} of [${shape}]`);
      const start = (row * size + position) * inner;
      out.bytes.set(table.bytes.subarray(start, start + inner), (row * list.length + i) * inner);
    }
  return out;
}

export const embedding: Model = (call) => [selectSlices(call.tensor("weight"), call.tensor("indices"), 0)];

export const indexSelect: Model = (call) => {
  const x = call.tensor("self");
  return [selectSlices(x, call.tensor("index"), call.dimension("dim", x.shape))];
};

/** Selects elements of `x` where the condition holds, else of `y`. All three are broadcast to one shape. */
export function selectWhere(condition: Value, x: Value, y: Value): Value {
  if (condition.dtype !== "BOOL" || x.dtype !== y.dtype)
    throw new NotModelled(`a condition of ${condition.dtype}, and values of ${x.dtype} and ${y.dtype}`);
  const shape = commonShape(condition.shape, x.shape, y.shape);
  const [mask, xValue, yValue] = [condition, x, y].map((each) => broadcast(each, shape)) as [
    Value,
    Value,
    Value,
  ];
  const out = zeroValue(x.dtype, shape);
  const size = itemSize(x.dtype);
  for (let i = 0; i < mask.bytes.length; i++)
    copyElement((mask.bytes[i] === 0 ? yValue : xValue).bytes, i, out.bytes, i, size);
  return out;
}

export const where: Model = (call) => [
  selectWhere(call.tensor("condition"), call.tensor("self"), call.tensor("other")),
];

/** The model of tril or triu: elements for which `keeps` is false become 0. */
export function triangle(keeps: (column: number, row: number, diagonal: number) => boolean): Model {
  return (call) => {
    const x = call.tensor("self");
    const diagonal = call.integer("diagonal", 0);
    const [rows, columns] = x.shape.slice(-2);
    if (rows === undefined || columns === undefined) throw new ShapeError(`a triangle of [${x.shape}]`);
    const out = zeroValue(x.dtype, x.shape);
    const size = itemSize(x.dtype);
    for (let i = 0; i < elementCount(x.shape); i++)
      if (keeps(i % columns, Math.floor(i / columns) % rows, diagonal))
        copyElement(x.bytes, i, out.bytes, i, size);
    return [out];
  };
}

/** Zeros in the shape of `self`. The dtype is the argument `dtype`, by default the dtype of `self`. */
export const zerosLike: Model = (call) => [
  zeroValue(call.dtype("dtype") ?? call.tensor("self").dtype, call.tensor("self").shape),
];

/** The shape and dtype of the result: the arguments `size` and `dtype`; by default the dtype of `self`, or f32 without it. */
export const shapeFromSize = (call: Call): readonly [readonly number[], FileDType] => {
  const self = call.get("self");
  return [call.integers("size"), call.dtype("dtype") ?? (isValue(self) ? self.dtype : "F32")];
};

/** Zeros in the shape `size`. */
export const zeros: Model = (call) => {
  const [shape, dtype] = shapeFromSize(call);
  return [zeroValue(dtype, shape)];
};
