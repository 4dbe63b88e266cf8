/** A quantized weight of a checkpoint. */
import type { FileDType } from "../../io/dtypes.js";
import type { Shape } from "../../tensor/shape.js";
import type { CodeTypeName } from "./code-types.js";
import type { ConventionName, ScaleKind } from "./conventions.js";
import type { StoredTensor } from "./tensors.js";

/** The location of each element's scale. Leading dimensions of the codes are matrices, each with its own scales. */
export interface ScaleGeometry {
  readonly kind: ScaleKind;
  /** The rows and columns that share a scale. */
  readonly block: readonly [number, number];
  /** The rows and columns of scales of one matrix. */
  readonly grid: readonly [number, number];
  /** Whether scales lie in the swizzled layout of tensor cores, in tiles of 128 rows and 4 columns. */
  readonly swizzled: boolean;
}

/** A quantized weight whose codes and scales fit together. */
export interface QuantizedWeight {
  /** The name of the weight before quantization. */
  readonly name: string;
  readonly convention: ConventionName;
  readonly type: CodeTypeName;
  /** The shape before quantization. */
  readonly shape: Shape;
  readonly codes: StoredTensor;
  readonly scale: StoredTensor;
  readonly global?: StoredTensor;
  readonly geometry: ScaleGeometry;
  /** The zero points, one for each scale. */
  readonly zeros?: StoredTensor;
  /** The group index of each column (`g_idx`), if groups are not consecutive columns. */
  readonly order?: StoredTensor;
  /** The factor of each column. */
  readonly factors?: StoredTensor;
  /**
   * Set if `toElementwise` converted the codes, because they were packed differently or had zero points or group indices. In this
   * case `codes` and `scale` are not tensors of the file.
   */
  readonly unpacked?: {
    /** The bytes of a code in `codes`. */
    readonly width: 1 | 2;
    /** The tensors of the file. */
    readonly from: readonly StoredTensor[];
    /** The code type in the file. */
    readonly type: CodeTypeName;
    /** The dtype of the scales in the file. */
    readonly scaleDType: FileDType;
    /** Whether zero points were subtracted from the codes. */
    readonly differences: boolean;
  };
}

/** Whether each matrix of a weight has its own global scale. */
export function isStacked({ global, shape }: Pick<QuantizedWeight, "global" | "shape">): boolean {
  const count = global?.entry.shape.reduce((product, size) => product * size, 1) ?? 1;
  return count > 1 && count === matricesOf(shape)[0];
}

/** The number of matrices, rows and columns of a shape. */
export function matricesOf(shape: Shape): readonly [number, number, number] {
  const columns = shape.at(-1) ?? 1;
  const rows = shape.at(-2) ?? 1;
  return [shape.slice(0, -2).reduce((product, size) => product * size, 1), rows, columns];
}
