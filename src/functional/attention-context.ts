/** Context parallelism: attention to keys and values whose positions are distributed over ranks. */
import type { ProcessGroup } from "../collectives/group.js";
import { empty, zeros } from "../ops/create.js";
import { swapAxes } from "../ops/layout/layout.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { Heads, Sizes } from "./attention-heads.js";

/** Keys and values, each [batch * heads, positions, depth]. */
export type Keys = Pick<Heads, "k" | "v">;

/**
 * Gathers the keys and values that a rank's queries attend to. Under the causal mask these are the positions of this rank and of
 * all lower ranks; otherwise those of all ranks.
 */
export class ContextKeys {
  /** The number of ranks whose positions are attended to. */
  readonly #ranks: number;
  /** The number of matrices of keys and of values, and the number of elements of one rank's part of a matrix. */
  readonly #matrices: number;
  readonly #elements: number;

  constructor(
    private readonly group: ProcessGroup,
    private readonly sizes: Sizes,
    private readonly causal: boolean,
  ) {
    this.#ranks = causal ? group.rank + 1 : group.size;
    this.#matrices = 2 * sizes.batch * sizes.heads;
    this.#elements = sizes.length * sizes.depth;
  }

  /** Gathers keys and values. In the result each matrix has all positions. */
  gathered({ k, v }: Keys): Keys {
    const { group } = this;
    const own = empty(k.backend, k.dtype, [1, this.#matrices, this.#elements]);
    own.paste(k, 0);
    own.paste(v, k.size);
    const all = group.saying(this.#subject, () => group.allGather(own));
    const attended = all.view(0, [this.#ranks, this.#matrices, this.#elements]);
    return this.#parts(swapAxes(attended, 0, 1));
  }

  /** Allocates the gradients of the gathered keys and values. */
  emptyLike({ k, v }: Keys): Keys {
    const [dk, dv] = [k, v].map(({ backend, dtype, shape }) => empty(backend, dtype, shape));
    return { k: dk, v: dv } as Keys;
  }

  /** Adds up the gradients of all ranks and writes those of this rank's positions to `out`. */
  reduce({ k, v }: Keys, out: Keys): void {
    const { group } = this;
    const { backend, dtype } = k;
    const both = empty(backend, dtype, [this.#matrices, this.#ranks, this.#elements]);
    both.paste(k, 0);
    both.paste(v, k.size);
    const all = zeros(backend, dtype, [group.size, this.#matrices, this.#elements]);
    all.paste(swapAxes(both, 0, 1), 0);
    const own = group.saying(this.#subject, () => group.reduceScatter(all));
    for (const [i, part] of [out.k, out.v].entries()) part.paste(own.slice(i * part.size, part.shape), 0);
  }

  /** Ranks with other masks would attend to other positions. */
  get #subject(): string {
    return this.causal ? "keys and values under the causal mask" : "keys and values";
  }

  #parts(x: Tensor<WideDType>): Keys {
    const { batch, heads, length, depth } = this.sizes;
    const shape = [batch * heads, this.#ranks * length, depth];
    const [k, v] = [0, x.size / 2].map((first) => x.slice(first, shape));
    return { k, v } as Keys;
  }
}
