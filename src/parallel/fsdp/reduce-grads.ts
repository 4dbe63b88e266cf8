/** Reduces and scatters gradients of full parameters, module by module, while the backward pass continues. */
import type { ProcessGroup } from "../../collectives/group.js";
import type { SumOrder } from "../../collectives/plan.js";
import type { Parameter } from "../../modules/parameter.js";
import { onSideStream } from "../../ops/side-stream.js";
import type { HookedPass } from "../../tape/hooks.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { BUCKET_BYTES, bucketsOf, packBucket } from "../data/buckets.js";
import type { ShardedParameter } from "./sharded-parameter.js";

/** How gradients are reduced. */
export interface ReductionOptions {
  /** The ranks over which gradients are summed first. Each rank gets the sums of its rows. */
  readonly shard: ProcessGroup;
  /** The ranks over which the sums of the rows are summed afterwards. Undefined if there is only one. */
  readonly replicate: ProcessGroup | undefined;
  /** The order of the sums over `shard`. */
  readonly plan: SumOrder | undefined;
  /** The order of the sums over `replicate`. */
  readonly replicatePlan: SumOrder | undefined;
  readonly reduction: "mean" | "sum";
}

/**
 * The parameters of one module whose gradients are reduced together. One group has the parameters whose gradients backward passes
 * complete; another has the parameters whose gradients `backwardDw` completes.
 */
class GradientGroup {
  /** The parameters whose gradient the pass has completed. */
  readonly ready = new Set<Parameter>();

  constructor(
    private readonly shards: ReadonlyMap<Parameter, ShardedParameter>,
    private readonly options: ReductionOptions,
  ) {}

  /** Whether `backwardDw` will compute more of the gradients. */
  get isWaiting(): boolean {
    return [...this.shards.keys()].some(({ delayedGradients }) => delayedGradients?.isWaiting);
  }

  /** Whether the pass has completed all gradients. */
  get isReady(): boolean {
    return [...this.shards.keys()].every((each) => !each.requiresGrad || this.ready.has(each));
  }

  /** Reduces the gradients that are not reduced yet. */
  reduce(): void {
    const shardOf = (parameter: Parameter): ShardedParameter =>
      this.shards.get(parameter) as ShardedParameter;
    const unreducedParameters = [...this.shards.keys()].filter((each) => shardOf(each).hasFullGrad);
    const { backend, rank } = this.options.shard;
    for (const bucket of bucketsOf(
      unreducedParameters,
      BUCKET_BYTES,
      (each) => shardOf(each).elementsPerRank,
    ))
      onSideStream(backend, () => {
        using _ = new Scope();
        const names = bucket.members.map(({ parameter }) => shardOf(parameter).name).join(", ");
        const { flat } = packBucket("fullyShard", bucket, (parameter) => shardOf(parameter).takeFullGrad());
        const reducedGrad = this.#reduce(flat, bucket.sizes, `gradients of ${names}`);
        for (const { parameter, parts } of bucket.members) {
          const shard = shardOf(parameter);
          const { shape } = shard.localValue;
          // an empty part may begin after the end of its section
          const start = shape.includes(0) ? 0 : (parts[rank]?.first ?? 0);
          shard.setReducedGrad(reducedGrad.view(start, shape));
        }
      });
  }

  /** Returns this rank's section of gradients, reduced over all ranks. */
  #reduce(flat: Tensor<WideDType>, sizes: readonly number[], subject: string): Tensor<WideDType> {
    const { shard, replicate, plan, replicatePlan, reduction } = this.options;
    const rows = shard.withSubject(subject, () =>
      shard.reduceScatter(flat, { reduction, rows: sizes, plan }),
    );
    if (!replicate) return rows;
    return replicate.withSubject(subject, () =>
      replicate.allReduce(rows, { reduction, plan: replicatePlan, out: rows }),
    );
  }
}

/** The gradients of a module and its submodules. */
export class ReduceGrads {
  readonly #groups: readonly GradientGroup[];
  readonly #groupOf: ReadonlyMap<Parameter, GradientGroup>;
  #pass: HookedPass | undefined;

  /** `parameterGroups` has the parameters of each module. */
  constructor(
    parameterGroups: readonly (readonly Parameter[])[],
    shardOf: (parameter: Parameter) => ShardedParameter,
    options: ReductionOptions,
  ) {
    const groupEntries = parameterGroups.flatMap((parameters) => [
      parameters.filter(({ delayedGradients }) => !delayedGradients),
      parameters.filter(({ delayedGradients }) => delayedGradients),
    ]);
    const entries = groupEntries.map((parameters) => {
      const shards = new Map(parameters.map((parameter) => [parameter, shardOf(parameter)] as const));
      return { parameters, group: new GradientGroup(shards, options) };
    });
    this.#groups = entries.map(({ group }) => group);
    this.#groupOf = new Map(
      entries.flatMap(({ parameters, group }) => parameters.map((each) => [each, group] as const)),
    );
  }

  /**
   * Records that the pass has completed the gradient of a parameter. The gradients of a module are reduced when the pass has
   * completed all of them, or else at the end of the pass. A call of `backwardDw` is also a pass. At its end, gradients to which
   * another call will add are not reduced.
   */
  complete(parameter: Parameter, pass: HookedPass): void {
    if (this.#pass !== pass) this.#begin(pass);
    const group = this.#groupOf.get(parameter);
    group?.ready.add(parameter);
    if (group?.isReady) group.reduce();
  }

  #begin(pass: HookedPass): void {
    this.#pass = pass;
    for (const { ready } of this.#groups) ready.clear();
    pass.atEnd(() => {
      this.#pass = undefined;
      for (const group of this.#groups) if (!group.isWaiting) group.reduce();
    });
  }
}
