/** Gradients of whole parameters become those of each rank's rows, module by module, while the backward pass goes on. */
import type { ProcessGroup } from "../../collectives/group.js";
import type { SumOrder } from "../../collectives/plan.js";
import type { Parameter } from "../../modules/parameter.js";
import { onSideStream } from "../../ops/side-stream.js";
import type { HookedPass } from "../../tape/hooks.js";
import { Scope } from "../../tensor/scope.js";
import type { Shape } from "../../tensor/shape.js";
import { BUCKET_BYTES, bucketsOf, packed } from "../data/buckets.js";
import type { ShardedParameter } from "./sharded-parameter.js";

/** How gradients are reduced. */
export interface Reduction {
  readonly group: ProcessGroup;
  readonly plan: SumOrder | undefined;
  readonly reduction: "mean" | "sum";
}

/** The parameters of one module. */
class GradientGroup {
  /** Those whose gradient the pass has completed. */
  readonly ready = new Set<Parameter>();

  constructor(
    private readonly shards: ReadonlyMap<Parameter, ShardedParameter>,
    private readonly reduction: Reduction,
  ) {}

  /** Whether the pass has completed all gradients. */
  get isReady(): boolean {
    return [...this.shards.keys()].every((each) => !each.requiresGrad || this.ready.has(each));
  }

  /** Reduces the gradients that are those of whole parameters. */
  reduce(): void {
    const shardOf = (parameter: Parameter): ShardedParameter =>
      this.shards.get(parameter) as ShardedParameter;
    const complete = [...this.shards.keys()].filter((each) => shardOf(each).isComplete);
    const { group, plan, reduction } = this.reduction;
    for (const bucket of bucketsOf(complete, BUCKET_BYTES, (each) => shardOf(each).counts))
      onSideStream(group.backend, () => {
        using _ = new Scope();
        const { flat } = packed("fullyShard", bucket);
        const names = bucket.members.map(({ parameter }) => shardOf(parameter).name).join(", ");
        const reduced = group.saying(`gradients of ${names}`, () =>
          group.reduceScatter(flat, { reduction, rows: bucket.sizes, plan }),
        );
        for (const { parameter, parts } of bucket.members) {
          const { own } = shardOf(parameter);
          const first = parts[group.rank]?.first ?? 0;
          shardOf(parameter).reduced(reduced.view(own.shape.includes(0) ? 0 : first, own.shape as Shape));
        }
      });
  }
}

/** The gradients of a module and its submodules. */
export class ReduceGrads {
  readonly #groups: readonly GradientGroup[];
  readonly #groupOf: ReadonlyMap<Parameter, GradientGroup>;
  #pass: HookedPass | undefined;

  /** `grouped` are the parameters of each module. */
  constructor(
    grouped: readonly (readonly Parameter[])[],
    shardOf: (parameter: Parameter) => ShardedParameter,
    reduction: Reduction,
  ) {
    const made = grouped.map((parameters) => {
      const shards = new Map(parameters.map((each) => [each, shardOf(each)] as const));
      return { parameters, group: new GradientGroup(shards, reduction) };
    });
    this.#groups = made.map(({ group }) => group);
    this.#groupOf = new Map(
      made.flatMap(({ parameters, group }) => parameters.map((each) => [each, group] as const)),
    );
  }

  /**
   * The pass has completed the gradient of a parameter. Those of a module are reduced when it has completed all of them, and at
   * its end those of modules of which it has not reached everything.
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
      for (const group of this.#groups) group.reduce();
    });
  }
}
