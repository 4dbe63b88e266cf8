/** The shapes of zero points and of factors of columns, which must be those of the weight. */
import { elementCount, type Shape, sameShape } from "../../tensor/shape.js";
import { CODE_TYPES, type CodeTypeName } from "../stored/code-types.js";
import type { Convention } from "../stored/conventions.js";
import type { StoredTensor } from "../stored/tensors.js";
import type { ScaleGeometry } from "../stored/weight.js";

interface Fitting {
  readonly row: Convention;
  readonly type: CodeTypeName;
  readonly scale: StoredTensor;
  readonly shape: Shape;
  readonly geometry: ScaleGeometry;
}

const WORD_BITS = 32;

/** What is wrong with the zero points or the factors of a weight; undefined if nothing is. */
export function companionShapes(
  { row, type, scale, shape, geometry }: Fitting,
  {
    zeros,
    factors,
  }: { readonly zeros?: StoredTensor | undefined; readonly factors?: StoredTensor | undefined },
): string | undefined {
  const told = ({ entry }: StoredTensor, needed: string): string =>
    `${entry.name} is ${entry.dtype} [${entry.shape}]; ${needed} is needed`;
  if (zeros && type.startsWith("int")) {
    const { bits } = CODE_TYPES[type];
    const [rows, columns] = geometry.grid;
    const packed = [...shape.slice(0, -2), Math.ceil((rows * bits) / WORD_BITS), columns];
    const wanted = row.zeros?.packed ? packed : scale.entry.shape;
    const { dtype, shape: own } = zeros.entry;
    if (!row.zeros?.dtypes.includes(dtype) || !sameShape(own, wanted))
      return told(zeros, `${row.zeros?.dtypes.join(" or ")} [${wanted}], a zero point for each scale`);
  }
  const columns = shape.at(-1) ?? 0;
  if (factors) {
    const { dtype, shape: own } = factors.entry;
    if (!["F32", "BF16", "F16"].includes(dtype) || elementCount(own) !== columns)
      return told(factors, `F32, BF16 or F16 [${columns}], a factor for each column`);
  }
  return undefined;
}
