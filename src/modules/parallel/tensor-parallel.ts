/** A linear layer that is divided among ranks: which part each has, and what they exchange. */
import type { ProcessGroup } from "../../distributed/group.js";
import { ShapeError } from "../../errors.js";
import { castTo } from "../../ops/cast/cast.js";
import { zeros } from "../../ops/create.js";
import { add } from "../../ops/elementwise/add.js";
import { embedding } from "../../ops/rows/embedding.js";
import type { AmaxReductionGroup, Shard } from "../../quantizers/shard.js";
import type { Role } from "../../recipes/table.js";
import { elementCount, type Shape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { ParallelMode } from "./options.js";

type Wide = Tensor<WideDType>;

/** What of each tensor a rank has: all of it, or the part along rows or columns. */
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
    /** Whether what is not divided by columns is divided by rows. */
    readonly sequence: boolean,
    /** Tensors that lie side by side in the columns of the result, each of which is divided: 2 before a gated activation. */
    readonly pieces = 1,
  ) {}

  /** Which part of the whole tensor of that role this rank quantizes; undefined where it has all of it. */
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

  /** The group among which the rows of the tensor of that role are gathered before a product, if they are. */
  gathers(role: "input" | "gradOutput"): ProcessGroup | undefined {
    return this.sequence && DIVIDED[this.mode][role] === "sequence" ? this.group : undefined;
  }

  /** Throws `ShapeError` for an input whose rows cannot be divided. */
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

  /** The shape of the input whose rows all ranks have together. */
  wholeInput(shape: Shape): Shape {
    const group = this.gathers("input");
    return group ? [(shape[0] as number) * group.size, ...shape.slice(1)] : shape;
  }

  /** The input or the gradient of the result for a product in high precision. */
  gathered(role: "input" | "gradOutput", x: Wide): Wide {
    return this.gathers(role)?.allGather(x) ?? x;
  }

  /** The result, from this rank's product; bias is added behind the sum over ranks. */
  output(product: Wide, bias: Wide | undefined): Wide {
    if (this.mode === "column") return product;
    const sum = this.#summed(product);
    return bias ? addRow(sum, bias) : sum;
  }

  /** The gradient of the input, from this rank's product. */
  gradInput(product: Wide): Wide {
    return this.mode === "column" ? this.#summed(product) : product;
  }

  /** The gradient of the bias, from the sums of the columns that this rank has. */
  gradBias(own: Wide, dtype: WideDType): Wide {
    return castTo(this.gathers("gradOutput") ? sumOverRows(this.group, own) : own, dtype);
  }

  /** The type of what `gradBias` takes. */
  biasSumType(dtype: WideDType): WideDType {
    return this.gathers("gradOutput") ? "f32" : dtype;
  }

  #summed(product: Wide): Wide {
    if (this.sequence) return this.group.reduceScatter(product);
    return this.group.allReduce(product, { out: product });
  }
}

/** The gradient of a parameter that all ranks have alike and use for rows of their own: the sum of theirs, which it replaces. */
export function sumOverRows(group: ProcessGroup, own: Wide): Wide {
  return group.allReduce(own, { out: own });
}

/** x [..., N] with row [N] added to each of its rows: one f32 addition, rounded to the type of x. */
function addRow(x: Wide, row: Wide): Wide {
  const columns = row.size;
  const rows = columns === 0 ? 0 : elementCount(x.shape) / columns;
  const everywhere = embedding(row.reshape([1, columns]), zeros(x.backend, "i32", [rows]));
  return add(x, everywhere.reshape(x.shape), { outDtype: x.dtype, out: x });
}

const composed = new WeakMap<ProcessGroup, WeakMap<AmaxReductionGroup, AmaxReductionGroup>>();

/**
 * The ranks over which the amaxes of a divided layer are reduced: those that it is divided among, and those of the region. One
 * object for each pair, so that updates reduce together.
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
