/** Context parallelism: attention to keys and values whose positions are divided among ranks. */
import type { ProcessGroup } from "../collectives/group.js";
import { empty, zeros } from "../ops/create.js";
import { swapAxes } from "../ops/layout/layout.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { Heads, Sizes } from "./attention-heads.js";

/** KeysAndValues and values, each [batch * heads, positions, depth]. */
export type KeysAndValues = Pick<Heads, "k" | "v">;

/**
 * Gathers the keys and values that a rank's queries attend to. Under the causal mask these are the positions of this rank and of
 * all lower ranks; otherwise the positions of all ranks.
 */
export class ContextKeys {
  /** The number of ranks to whose positions the queries attend. */
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

  /** Gathers keys and values. Each matrix of the result has the positions of all these ranks. */
  gather({ k, v }: KeysAndValues): KeysAndValues {
    const { group } = this;
    const local = empty(k.backend, k.dtype, [1, this.#matrices, this.#elements]);
    local.paste(k, 0);
    local.paste(v, k.size);
    const all = group.withSubject(this.#subject, () => group.allGather(local));
    const attended = all.view(0, [this.#ranks, this.#matrices, this.#elements]);
    return this.#split(swapAxes(attended, 0, 1));
  }

  /** Allocates the gradients of the gathered keys and values. */
  emptyLike({ k, v }: KeysAndValues): KeysAndValues {
    const [dk, dv] = [k, v].map(({ backend, dtype, shape }) => empty(backend, dtype, shape));
    return { k: dk, v: dv } as KeysAndValues;
  }

  /** Adds the gradients of all ranks and writes the sums for this rank's positions to `out`. */
  reduce({ k, v }: KeysAndValues, out: KeysAndValues): void {
    const { group } = this;
    const { backend, dtype } = k;
    const grads = empty(backend, dtype, [this.#matrices, this.#ranks, this.#elements]);
    grads.paste(k, 0);
    grads.paste(v, k.size);
    const all = zeros(backend, dtype, [group.size, this.#matrices, this.#elements]);
    all.paste(swapAxes(grads, 0, 1), 0);
    const local = group.withSubject(this.#subject, () => group.reduceScatter(all));
    for (const [i, part] of [out.k, out.v].entries()) part.paste(local.slice(i * part.size, part.shape), 0);
  }

  /**
   * The description that the group compares between ranks. Ranks with different masks give different ones, so the group throws.
   */
  get #subject(): string {
    return this.causal ? "keys and values under the causal mask" : "keys and values";
  }

  /** Splits gathered keys and values, which are one tensor. */
  #split(x: Tensor<WideDType>): KeysAndValues {
    const { batch, heads, length, depth } = this.sizes;
    const shape = [batch * heads, this.#ranks * length, depth];
    const [k, v] = [0, x.size / 2].map((first) => x.slice(first, shape));
    return { k, v } as KeysAndValues;
  }
}
