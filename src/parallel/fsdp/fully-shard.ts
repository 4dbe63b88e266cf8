/** Fully sharded data parallelism: each rank stores a part of every parameter, gradient and optimizer state. */
import { guardReceivers, isObject } from "../../brand.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { checkSumOrder, type SumOrder } from "../../collectives/plan.js";
import { ArgumentError } from "../../errors.js";
import type { Module } from "../../modules/module.js";
import { Parameter } from "../../modules/parameter.js";
import { requireShape } from "../../ops/execute.js";
import { instance, integer, nested, oneOf, optionsOf } from "../../options.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { requireTensor } from "../../tensor/require.js";
import { orDispose } from "../../tensor/scope.js";
import type { Tensor } from "../../tensor/tensor.js";
import { checkGroup, checkModule, requireSameBackend } from "../arguments.js";
import { isReduced } from "../data/data-parallel.js";
import { Synchronization } from "../synchronization.js";
import { checkShardingMesh, meshGroups, type ShardingMesh } from "./mesh.js";
import { Prefetch } from "./prefetch.js";
import { ReduceGrads } from "./reduce-grads.js";
import { ShardedParameter } from "./sharded-parameter.js";

/** Options of `fullyShard`. */
export interface FullyShardOptions {
  /**
   * How the gradients of all ranks are combined. "mean" is the sum multiplied by f32(1 / ranks). With a `mesh`, it is the mean
   * along `replicate` of the means along `shard`. Default "mean".
   */
  readonly reduction?: "mean" | "sum" | undefined;
  /** The algorithm and order of the sums over the ranks among which parameters are divided. Default ranked. */
  readonly plan?: SumOrder | undefined;
  /**
   * Divides parameters among some ranks and copies them to others, as PyTorch does for a mesh of two dimensions (hybrid
   * sharding). Default: all ranks are along `shard`.
   */
  readonly mesh?: ShardingMesh | undefined;
  /** The algorithm and order of the sums along `replicate` of the `mesh`. Default ranked. */
  readonly replicatePlan?: SumOrder | undefined;
  /**
   * The number of rows of each rank is a multiple of this, except on the last ranks. Quantized codes can be gathered only if no
   * block crosses the boundary between ranks: use 128 for block-scaled FP8, 32 for MXFP8 and 16 for NVFP4. Default 1, as in
   * PyTorch.
   */
  readonly rowMultiple?: number | undefined;
}

const checkParameter = instance(Parameter, "a parameter of the module");
const checkOptions = optionsOf<FullyShardOptions>({
  reduction: oneOf(["mean", "sum"]),
  plan: nested(checkSumOrder),
  mesh: nested(checkShardingMesh),
  replicatePlan: nested(checkSumOrder),
  rowMultiple: integer(1),
});

/** A module whose parameters are divided among ranks. `fullyShard` returns it. */
export class FullySharded {
  static {
    guardReceivers(this, (x) => isObject(x) && #shards in x);
  }

  readonly #shards: ReadonlyMap<Parameter, ShardedParameter>;
  readonly #synchronization = new Synchronization();

  /** @internal `fullyShard` creates it. */
  constructor(
    /** The module. Its parameters contain this rank's rows. It is called as before. */
    readonly module: Module,
    /** The ranks over which gradients are reduced. Parameters are divided among them, or among those along `shard` of a mesh. */
    readonly group: ProcessGroup,
    { reduction, plan, mesh, replicatePlan, rowMultiple = 1 }: FullyShardOptions,
  ) {
    const { shard, replicate } = meshGroups("fullyShard", group, mesh);
    const prefetch = new Prefetch(shard);
    this.#shards = orDispose(
      (created) =>
        new Map(
          Array.from(module.namedParameters(), ([name, parameter]) => {
            const shardedParameter = new ShardedParameter(parameter, {
              name,
              group: shard,
              rowMultiple,
              prefetch,
            });
            created.push(shardedParameter);
            return [parameter, shardedParameter];
          }),
        ),
    );
    const grads = new ReduceGrads(
      module.parameterGroups(),
      (each) => this.#shards.get(each) as ShardedParameter,
      { shard, replicate, plan, replicatePlan, reduction: reduction ?? "mean" },
    );
    for (const [parameter, shardedParameter] of this.#shards) {
      const { highPrecisionInitVal: values } = parameter;
      const { rowSize, localValue, firstRow } = shardedParameter;
      const [start, count] = [firstRow * rowSize, localValue.shape[0] as number];
      parameter.part = shardedParameter.part;
      parameter.setSharding(shardedParameter, values?.slice(start, start + count * rowSize));
      parameter.registerPostAccumulateGradHook((_, pass) => {
        if (this.#synchronization.isOn) grads.complete(parameter, pass);
      });
    }
  }

  /**
   * Runs `body` without reducing gradients. Its backward passes and calls of `backwardDw` accumulate this rank's gradients of
   * full parameters, and the next pass outside `body` adds to them before it reduces. Without `noSync`, each pass reduces its
   * gradients and adds them to the gradients of this rank's rows. That takes less memory and more communication, and the order of
   * additions differs.
   *
   * @throws `ArgumentError` for a body that is not a function or is async; rethrows what the body throws.
   */
  noSync<R>(body: () => R): R {
    return this.#synchronization.suspend(body);
  }

  /**
   * Returns the number of rows of a parameter that each rank has; with a `mesh`, that each rank along its axis `shard` has.
   * Throws `ArgumentError` for an argument that is not a parameter of the module.
   */
  rowsOf(parameter: Parameter): readonly number[] {
    return this.#shardOf("rowsOf", parameter).rowsPerRank;
  }

  /**
   * Gathers a full tensor from the rows of all ranks; with a `mesh`, from the rows of the ranks along its axis `shard`.
   * `localRows` is this rank's rows of a gradient, a master parameter or an optimizer state of the parameter. The result has the
   * shape of the full parameter; the caller disposes of it. All ranks must call it.
   *
   * @throws `ArgumentError` for an argument that is not a parameter of the module and for a tensor of another backend,
   * `DTypeError` for an argument that is not a tensor, `ShapeError` for a tensor that does not have the shape of this rank's
   * rows, `DisposedError` for a disposed tensor.
   * @throws `DistributedError` for a group that has failed.
   */
  gather<T extends Tensor>(parameter: Parameter, localRows: T): T {
    const shard = this.#shardOf("gather", parameter);
    const source = requireTensor("gather", "localRows", localRows);
    requireShape("gather", "localRows", source, shard.localValue.shape);
    if (source.backend !== this.group.backend)
      throw new ArgumentError(
        "gather: localRows is on another backend than the group; move it by data() and tensor()",
      );
    return shard.gatherRows(localRows);
  }

  #shardOf(caller: string, parameter: Parameter): ShardedParameter {
    checkParameter(caller, "parameter", parameter);
    const shard = this.#shards.get(parameter);
    if (shard) return shard;
    throw new ArgumentError(
      `${caller}: the parameter does not belong to the sharded module; give one of module.parameters()`,
    );
  }
}

/** Returns why a parameter cannot be divided, or undefined if it can. */
function reasonAgainst(parameter: Parameter): string | undefined {
  const { sharding, grad, mainGrad, delayedGradients, value, quantizer, isSplitPart } = parameter;
  if (isReduced(parameter))
    return "has a gradient that a DataParallel reduces, and fullyShard reduces it too; dispose of the DataParallel first";
  if (sharding) return "is sharded already; shard each module once";
  if (isSplitPart)
    return "is a part of a weight or a bias (parametersSplit), whose memory it shares; create the layer without parametersSplit";
  if (grad || mainGrad || delayedGradients?.isWaiting)
    return "has a gradient of all rows; shard the module before the first pass, and set mainGrad afterwards, in the shape of this rank's rows";
  if (value instanceof QuantizedTensor && value.spec.rowScaled)
    return "is quantized with an amax for each row and column (rowScaled), which depends on the rows of all ranks; create the module without rowScaled";
  if (value instanceof QuantizedTensor && !quantizer)
    return "was quantized outside of quantizedModelInit, so its quantizer is unknown; create the module in quantizedModelInit";
  return undefined;
}

/**
 * Divides the parameters of a module among the ranks of a group, along their first dimension, as PyTorch's `fully_shard` does.
 * Afterwards `value` and `grad` of a parameter, its f32 master and the state of new optimizers contain this rank's rows.
 *
 * Each operation that uses a parameter, forward or backward, unshards it before it runs and reshards it afterwards. Parameters of
 * the next operation are prefetched, so that at most the parameters of two operations are resident. The weight of a linear layer
 * under a recipe is quantized before it is gathered, as a part of the full weight, so that codes and scales are sent. If a block
 * crosses the boundary between ranks, and with custom quantizers, the parameter is gathered in its own dtype. When a backward
 * pass has completed a gradient, the pass replaces the gradient by this rank's rows of the sum or mean over all ranks. With
 * `fuseWgradAccumulation`, a weight's gradients accumulate in an f32 tensor of the full shape; the pass adds this rank's rows of
 * the reduced tensor to `mainGrad` and frees the tensor. With `delayWgradCompute`, `backwardDw` does this in place of the pass.
 *
 * Parameters, optimizer states and losses have the same bits as under `DataParallel` with the same number of ranks and a ranked
 * plan. With a `mesh`, gradients are first reduced along `shard`, then along `replicate`, and rounded to their type after each.
 * Every rank must create the module with the same values and use the same parameters in each pass.
 *
 * @throws `ArgumentError` for an argument that is not a module or a group, for an invalid option value, for a `mesh` whose sizes
 * do not give the number of ranks, for a group on another backend, and for a module with a parameter that is already sharded,
 * has a gradient or a `mainGrad`, is the weight of a layer with `parametersSplit`, has a gradient that a `DataParallel` reduces,
 * is quantized with `rowScaled`, or was quantized outside of `quantizedModelInit`. In each case nothing has changed.
 */
export function fullyShard(
  module: Module,
  group: ProcessGroup,
  options: FullyShardOptions = {},
): FullySharded {
  checkModule("fullyShard", "module", module);
  checkGroup("fullyShard", "group", group);
  const ownOptions = checkOptions("fullyShard", options);
  requireSameBackend("fullyShard", module, group);
  for (const [name, parameter] of module.namedParameters()) {
    const reason = reasonAgainst(parameter);
    if (reason) throw new ArgumentError(`fullyShard: ${name} ${reason}`);
  }
  return new FullySharded(module, group, ownOptions);
}
