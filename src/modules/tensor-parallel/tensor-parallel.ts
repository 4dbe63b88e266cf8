/** A linear layer that is divided among ranks: each rank's part, and the collectives around its products. */
import type { ProcessGroup } from "../../collectives/group.js";
import { ShapeError } from "../../errors.js";
import { allReduceSum } from "../../functional/ranks.js";
import { castTo } from "../../ops/cast/cast.js";
import { zeros } from "../../ops/create.js";
import { add } from "../../ops/elementwise/operators.gen.js";
import { embedding } from "../../ops/rows/embedding.js";
import type { AmaxReductionGroup, Shard } from "../../quantizers/shard.js";
import type { Role } from "../../recipes/table.js";
import { asMatrix, elementCount, type Shape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { ParallelMode } from "./options.js";
import {
  chunksFor,
  computeProduct,
  hasBlocks,
  isChunked,
  type Operand,
  type Product,
  type ResultSpec,
  type Rows,
  reducedProduct,
  rowsOfBlock,
} from "./rows.js";

type WideTensor = Tensor<WideDType>;

/** How each tensor of the layer is divided among ranks: by rows, by columns, or not at all. */
const DIVISIONS: Readonly<
  Record<ParallelMode, Readonly<Record<Role, Shard["dimension"] | "sequence" | undefined>>>
> = {
  column: {
    input: "sequence",
    weight: "rows",
    output: "columns",
    gradOutput: "columns",
    gradInput: "sequence",
  },
  row: {
    input: "columns",
    weight: "columns",
    output: "sequence",
    gradOutput: "sequence",
    gradInput: "columns",
  },
};

/** How one weight [N, K] is divided among the ranks of a group, and the collectives around its products. */
export class TensorParallel {
  constructor(
    readonly group: ProcessGroup,
    readonly mode: ParallelMode,
    /** Whether activations that are not divided by columns are divided by rows. */
    readonly sequence: boolean,
    /**
     * The number of tensors that are concatenated along the columns of the result. Each of them is divided separately. It is 2
     * before a gated activation.
     */
    readonly pieces = 1,
    /** The option `overlap` of `ParallelOptions`. */
    private readonly overlap?: boolean,
  ) {}

  /** Returns the part of a role's tensor that this rank quantizes, or undefined if it has the full tensor. */
  shard(role: Role): Shard | undefined {
    const { group, pieces } = this;
    const division = DIVISIONS[this.mode][role];
    if (division === "sequence") return this.sequence ? { group, dimension: "rows" } : undefined;
    return (
      division && {
        group,
        dimension: division,
        pieces: division === "columns" && this.mode === "column" ? pieces : 1,
      }
    );
  }

  /** Returns the group from whose ranks the rows of a role's tensor are gathered for a product. Undefined if they are not. */
  gathers(role: "input" | "gradOutput"): ProcessGroup | undefined {
    return this.sequence && DIVISIONS[this.mode][role] === "sequence" ? this.group : undefined;
  }

  /** Throws `ShapeError` for an input whose number of rows is not divisible by the number of ranks. */
  requireRows(caller: string, shape: Shape): void {
    if (!this.sequence) return;
    const { size } = this.group;
    if (shape.length < 2)
      throw new ShapeError(
        `${caller}: the input is [${shape}]; sequenceParallel divides rows, so give [rows, K]`,
      );
    if (this.mode === "column" || (shape[0] as number) % size === 0) return;
    throw new ShapeError(
      `${caller}: the input is [${shape}]; under sequenceParallel the result's first dimension ${shape[0]} is divided among ${size} ranks; pad it`,
    );
  }

  /** Returns the shape of the input of all ranks. `shape` is the shape of this rank's input. */
  fullInputShape(shape: Shape): Shape {
    return this.#shapeOfAll("input", shape);
  }

  /** Returns the shape of the result's gradient of all ranks. `shape` is the shape of this rank's gradient. */
  fullGradOutputShape(shape: Shape): Shape {
    return this.#shapeOfAll("gradOutput", shape);
  }

  #shapeOfAll(role: "input" | "gradOutput", shape: Shape): Shape {
    const group = this.gathers(role);
    return group ? [(shape[0] as number) * group.size, ...shape.slice(1)] : shape;
  }

  /**
   * Returns the number of chunks in which the rows of a role's tensor are gathered for a product. `local` is this rank's part.
   */
  chunksOf(role: "input" | "gradOutput", local: Operand, result: ResultSpec): number {
    const { overlap } = this;
    const limits = { multiple: rowsOfBlock(local), result, overlap, isMeasured: !hasBlocks(local) };
    return this.gathers(role) ? chunksFor(asMatrix(local.shape)[0], limits) : 1;
  }

  /** Computes the result of the layer. The bias of a row-parallel layer is added after the sum over ranks. */
  output(x: Rows, product: Product, result: ResultSpec, bias: WideTensor | undefined): WideTensor {
    if (this.mode === "column") return computeProduct(x, product, result);
    const sum = this.#sumOfProducts(x, product, result);
    return bias ? addRow(sum, bias) : sum;
  }

  /** Computes the gradient of the input. */
  gradInput(dy: Rows, product: Product, result: ResultSpec): WideTensor {
    return this.mode === "column"
      ? this.#sumOfProducts(dy, product, result)
      : computeProduct(dy, product, result);
  }

  /** Computes the gradient of the bias from this rank's column sums. */
  gradBias(sums: WideTensor, dtype: WideDType): WideTensor {
    return castTo(this.gathers("gradOutput") ? sumOverRanks(this.group, sums) : sums, dtype);
  }

  /** Returns the dtype in which `gradBias` expects the column sums. */
  biasSumType(dtype: WideDType): WideDType {
    return this.gathers("gradOutput") ? "f32" : dtype;
  }

  /** Sums the products of all ranks. Under `sequence` each rank gets its rows of the sum, else all rows. */
  #sumOfProducts(x: Rows, product: Product, result: ResultSpec): WideTensor {
    const { group, sequence, overlap } = this;
    if (!isChunked(x)) {
      const [rows] = asMatrix(result.shape);
      const resultRows = sequence ? rows / group.size : rows;
      const isMeasured = sequence && !hasBlocks(x);
      const chunks = chunksFor(resultRows, { multiple: rowsOfBlock(x), result, overlap, isMeasured });
      if (chunks > 1) return reducedProduct(group, x, product, { ...result, chunks, scatters: sequence });
    }
    return allReduceSum(group, computeProduct(x, product, result), sequence);
  }
}

/**
 * Sums the gradients of a parameter over ranks that have different rows of the activations. The sum is written to `grad`, which
 * is returned.
 */
export function sumOverRanks(group: ProcessGroup, grad: WideTensor): WideTensor {
  return allReduceSum(group, grad);
}

/** Adds the row [N] to each row of x [..., N]: one f32 addition per element, rounded to the dtype of x. */
function addRow(x: WideTensor, row: WideTensor): WideTensor {
  const columns = row.size;
  const rows = columns === 0 ? 0 : elementCount(x.shape) / columns;
  const broadcastRow = embedding(row.reshape([1, columns]), zeros(x.backend, "i32", [rows]));
  return add(x, broadcastRow.reshape(x.shape), { outDtype: x.dtype, out: x });
}

/** The groups that `amaxGroup` has combined from a layer's group and a region's group. */
const combinedGroups = new WeakMap<ProcessGroup, WeakMap<AmaxReductionGroup, AmaxReductionGroup>>();

/**
 * Returns the group over which the amaxes of a divided layer are reduced: the ranks of the layer's group and of the region's
 * group. It returns the same object for the same two groups, so that their updates are reduced together.
 */
export function amaxGroup(
  layerGroup: ProcessGroup | undefined,
  regionGroup: AmaxReductionGroup | undefined,
): AmaxReductionGroup | undefined {
  if (!layerGroup || !regionGroup || layerGroup === regionGroup) return layerGroup ?? regionGroup;
  const byRegion = combinedGroups.get(layerGroup) ?? new WeakMap<AmaxReductionGroup, AmaxReductionGroup>();
  combinedGroups.set(layerGroup, byRegion);
  const combinedState = byRegion.get(regionGroup) ?? {
    size: layerGroup.size * regionGroup.size,
    reduceMax(tensors: readonly Tensor<"f32">[]) {
      layerGroup.reduceMax(tensors);
      if (regionGroup.size > 1) regionGroup.reduceMax(tensors);
    },
  };
  byRegion.set(regionGroup, combinedState);
  return combinedState;
}
