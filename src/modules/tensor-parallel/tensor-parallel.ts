/** A linear layer that is divided among ranks: each rank's part, and the collective operations around its products. */
import type { ProcessGroup } from "../../collectives/group.js";
import { ShapeError } from "../../errors.js";
import { summed } from "../../functional/ranks.js";
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
  hasBlocks,
  isArriving,
  type Made,
  type Operand,
  type Product,
  productOf,
  type Rows,
  reducedProduct,
  rowsOfBlock,
} from "./rows.js";

type Wide = Tensor<WideDType>;

/** How each tensor of the layer is divided among ranks: by rows, by columns, or not at all. */
const DIVIDED: Readonly<
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
    /** The option of that name (`ParallelOptions`). */
    private readonly overlap?: boolean,
  ) {}

  /** Returns the part of a role's tensor that this rank quantizes, or undefined if it has the whole tensor. */
  shard(role: Role): Shard | undefined {
    const { group, pieces } = this;
    const divided = DIVIDED[this.mode][role];
    if (divided === "sequence") return this.sequence ? { group, dimension: "rows" } : undefined;
    return (
      divided && {
        group,
        dimension: divided,
        pieces: divided === "columns" && this.mode === "column" ? pieces : 1,
      }
    );
  }

  /** Returns the group among which the rows of a role's tensor are gathered before a product, or undefined if they are not. */
  gathers(role: "input" | "gradOutput"): ProcessGroup | undefined {
    return this.sequence && DIVIDED[this.mode][role] === "sequence" ? this.group : undefined;
  }

  /** Throws `ShapeError` for an input whose number of rows is not divisible by the number of ranks. */
  requireRows(user: string, shape: Shape): void {
    if (!this.sequence) return;
    const { size } = this.group;
    if (shape.length < 2)
      throw new ShapeError(
        `${user}: the input is [${shape}]; sequenceParallel divides rows, so give [rows, K]`,
      );
    if (this.mode === "column" || (shape[0] as number) % size === 0) return;
    throw new ShapeError(
      `${user}: the input is [${shape}]; under sequenceParallel the result's first dimension ${shape[0]} is divided among ${size} ranks; pad it`,
    );
  }

  /** Returns the shape of the input that the rows of all ranks form. */
  wholeInput(shape: Shape): Shape {
    return this.#whole("input", shape);
  }

  /** Returns the shape of the gradient of the result that the rows of all ranks form. */
  wholeGradOutput(shape: Shape): Shape {
    return this.#whole("gradOutput", shape);
  }

  #whole(role: "input" | "gradOutput", shape: Shape): Shape {
    const group = this.gathers(role);
    return group ? [(shape[0] as number) * group.size, ...shape.slice(1)] : shape;
  }

  /** The number of chunks in which the rows of this role's tensor, of which this rank has `own`, are gathered for a product. */
  chunksOf(role: "input" | "gradOutput", own: Operand, made: Made): number {
    const { overlap } = this;
    const cut = { multiple: rowsOfBlock(own), made, overlap, isMeasured: !hasBlocks(own) };
    return this.gathers(role) ? chunksFor(asMatrix(own.shape)[0], cut) : 1;
  }

  /** Computes the result of the layer. The bias of a row-parallel layer is added after the sum over ranks. */
  output(x: Rows, product: Product, made: Made, bias: Wide | undefined): Wide {
    if (this.mode === "column") return productOf(x, product, made);
    const sum = this.#summed(x, product, made);
    return bias ? addRow(sum, bias) : sum;
  }

  /** Computes the gradient of the input. */
  gradInput(dy: Rows, product: Product, made: Made): Wide {
    return this.mode === "column" ? this.#summed(dy, product, made) : productOf(dy, product, made);
  }

  /** Computes the gradient of the bias from this rank's column sums. */
  gradBias(own: Wide, dtype: WideDType): Wide {
    return castTo(this.gathers("gradOutput") ? sumOverRows(this.group, own) : own, dtype);
  }

  /** Returns the dtype in which `gradBias` expects the column sums. */
  biasSumType(dtype: WideDType): WideDType {
    return this.gathers("gradOutput") ? "f32" : dtype;
  }

  #summed(x: Rows, product: Product, made: Made): Wide {
    const { group, sequence, overlap } = this;
    if (!isArriving(x)) {
      const [rows] = asMatrix(made.shape);
      const own = sequence ? rows / group.size : rows;
      const isMeasured = sequence && !hasBlocks(x);
      const chunks = chunksFor(own, { multiple: rowsOfBlock(x), made, overlap, isMeasured });
      if (chunks > 1) return reducedProduct(group, x, product, { ...made, chunks, scatters: sequence });
    }
    return summed(group, productOf(x, product, made), sequence);
  }
}

/** Sums the gradients of a parameter that all ranks share, each for its own rows. The result replaces the gradient. */
export function sumOverRows(group: ProcessGroup, own: Wide): Wide {
  return summed(group, own);
}

/** Adds the row [N] to each row of x [..., N]: one f32 addition per element, rounded to the dtype of x. */
function addRow(x: Wide, row: Wide): Wide {
  const columns = row.size;
  const rows = columns === 0 ? 0 : elementCount(x.shape) / columns;
  const everywhere = embedding(row.reshape([1, columns]), zeros(x.backend, "i32", [rows]));
  return add(x, everywhere.reshape(x.shape), { outDtype: x.dtype, out: x });
}

const composed = new WeakMap<ProcessGroup, WeakMap<AmaxReductionGroup, AmaxReductionGroup>>();

/**
 * Returns the ranks over which the amaxes of a divided layer are reduced: the ranks of the layer's group and those of the
 * region's group. It returns the same object for the same pair of groups, so that their updates are reduced together.
 */
export function amaxGroup(
  own: ProcessGroup | undefined,
  region: AmaxReductionGroup | undefined,
): AmaxReductionGroup | undefined {
  if (!own || !region || own === region) return own ?? region;
  const known = composed.get(own) ?? new WeakMap<AmaxReductionGroup, AmaxReductionGroup>();
  composed.set(own, known);
  const both = known.get(region) ?? {
    size: own.size * region.size,
    reduceMax(tensors: readonly Tensor<"f32">[]) {
      own.reduceMax(tensors);
      if (region.size > 1) region.reduceMax(tensors);
    },
  };
  known.set(region, both);
  return both;
}
