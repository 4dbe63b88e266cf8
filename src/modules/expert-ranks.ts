/** Experts that are divided among ranks: tokens are sent to the ranks of their experts, and back. */
import type { ProcessGroup } from "../collectives/group.js";
import { ShapeError } from "../errors.js";
import { allToAll } from "../functional/all-to-all.js";
import { moeSortChunksByIndex } from "../functional/moe-chunks.js";
import type { Variable } from "../tape/variable.js";
import type { Tensor } from "../tensor/tensor.js";
import { INITIAL_STD } from "./linear/parts.js";
import { type InitMethod, normalInit } from "./parameter.js";

/** The numbers of tokens that one call of a `MoELayer` sends to experts and receives. `MoELayer.exchangeCounts` returns it. */
export interface TokenCounts {
  /** For each expert of all ranks, in order: the number of this rank's tokens. */
  readonly sent: readonly number[];
  /** From rank 0 for each expert of this rank, then from rank 1, and so on. Equal to `sent` if this rank has all experts. */
  readonly received: readonly number[];
}

/** How experts are divided: each rank has the same number of consecutive ones. */
export class ExpertRanks {
  /** The number of experts of each rank. */
  readonly localExperts: number;

  constructor(
    private readonly group: ProcessGroup,
    private readonly experts: number,
  ) {
    if (experts % group.size !== 0)
      throw new ShapeError(
        `MoELayer: ${experts} experts are not divisible among ${group.size} ranks; give a multiple of ${group.size}`,
      );
    this.localExperts = experts / group.size;
  }

  /**
   * Returns an initializer to call once for each of this rank's experts. It also draws the values of the other ranks' experts,
   * and discards them. Initial weights and the random state are therefore the same as on one rank with all experts.
   */
  initMethod(init: InitMethod = normalInit(INITIAL_STD)): InitMethod {
    const { localExperts, experts } = this;
    const firstExpert = this.group.rank * localExperts;
    let calls = 0;
    return (random, shape) => {
      const skip = (count: number): void => {
        for (let i = 0; i < count; i++) init(random, shape);
      };
      if (calls++ === 0) skip(firstExpert);
      const values = init(random, shape);
      if (calls === localExperts) skip(experts - firstExpert - localExperts);
      return values;
    };
  }

  /** Exchanges the numbers of tokens for each expert, f32 [experts]. Returns the numbers that this rank receives. */
  exchange(tokensPerExpert: Tensor<"f32">): Tensor<"f32"> {
    return this.group.allToAll(tokensPerExpert);
  }

  /**
   * Sends rows, which are in order of experts, to the ranks of their experts, runs `compute` on the rows of this rank's experts
   * with the number of rows of each, and returns the results in the order of `rows`.
   */
  run(
    rows: Variable,
    { sent, received }: TokenCounts,
    compute: (rows: Variable, mSplits: readonly number[]) => Variable,
  ): Variable {
    const { group, localExperts } = this;
    const ranks = Array.from({ length: group.size }, (_, rank) => rank);
    const locals = Array.from({ length: localExperts }, (_, expert) => expert);
    const sumByRank = (counts: readonly number[]): readonly number[] =>
      ranks.map((rank) => sumCounts(counts.slice(rank * localExperts, (rank + 1) * localExperts)));
    const [toRanks, fromRanks] = [sumByRank(sent), sumByRank(received)];
    // chunks arrive by rank, then expert; experts take them by expert, then rank
    const byExpert = locals.flatMap((expert) => ranks.map((rank) => rank * localExperts + expert));
    const byRank = ranks.flatMap((rank) => locals.map((expert) => expert * group.size + rank));
    const dispatchedRows = allToAll(rows, group, { sent: toRanks, received: fromRanks });
    const sortedRows = moeSortChunksByIndex(dispatchedRows, received, byExpert);
    const mSplits = locals.map((expert) =>
      sumCounts(ranks.map((rank) => received[rank * localExperts + expert] ?? 0)),
    );
    const expertRows = compute(sortedRows, mSplits);
    const sortedSizes = byExpert.map((chunk) => received[chunk] ?? 0);
    const returnedRows = moeSortChunksByIndex(expertRows, sortedSizes, byRank);
    return allToAll(returnedRows, group, { sent: fromRanks, received: toRanks });
  }
}

const sumCounts = (counts: readonly number[]): number => counts.reduce((sum, count) => sum + count, 0);
