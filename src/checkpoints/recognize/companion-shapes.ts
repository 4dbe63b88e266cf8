/** Checks the shapes of zero points and column factors against the weight. */
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

/** Returns the reason why the zero points or column factors do not fit the weight; undefined if they fit. */
export function companionShapes(
  { row, type, scale, shape, geometry }: Fitting,
  {
    zeros,
    factors,
  }: { readonly zeros?: StoredTensor | undefined; readonly factors?: StoredTensor | undefined },
): string | undefined {
  const describe = ({ entry }: StoredTensor, expected: string): string =>
    `${entry.name} is ${entry.dtype} [${entry.shape}]; ${expected} is needed`;
  if (zeros && type.startsWith("int")) {
    const { bits } = CODE_TYPES[type];
    const [rows, columns] = geometry.grid;
    const packed = [...shape.slice(0, -2), Math.ceil((rows * bits) / WORD_BITS), columns];
    const expected = row.zeros?.packed ? packed : scale.entry.shape;
    const { dtype, shape: actual } = zeros.entry;
    if (!row.zeros?.dtypes.includes(dtype) || !sameShape(actual, expected))
      return describe(zeros, `${row.zeros?.dtypes.join(" or ")} [${expected}], a zero point for each scale`);
  }
  const columns = shape.at(-1) ?? 0;
  if (factors) {
    const { dtype, shape: actual } = factors.entry;
    if (!["F32", "BF16", "F16"].includes(dtype) || elementCount(actual) !== columns)
      return describe(factors, `F32, BF16 or F16 [${columns}], a factor for each column`);
  }
  return undefined;
}
