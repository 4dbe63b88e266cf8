/** Fully sharded data parallelism: each rank stores a part of every parameter, gradient and optimizer state. */
import type { ProcessGroup } from "../distributed/group.js";
import { checkSumOrder, type SumOrder } from "../distributed/plan.js";
import { ArgumentError } from "../errors.js";
import type { Module } from "../modules/module.js";
import { Parameter } from "../modules/parameter.js";
import { requireShape } from "../ops/execute.js";
import { instance, integer, nested, oneOf, optionsOf } from "../options.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { requireTensor } from "../tensor/require.js";
import { orDispose } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";
import { checkGroup, checkModule, requireSameBackend } from "./arguments.js";
import { ShardedParameter } from "./sharded-parameter.js";
import { Synchronization } from "./synchronization.js";

/** Options of `fullyShard`. */
export interface FullyShardOptions {
  /** What becomes of the gradients of all ranks. "mean" multiplies the sum by f32(1 / ranks). Default "mean". */
  readonly reduction?: "mean" | "sum" | undefined;
  /** The algorithm and order of the sums. Default ranked. */
  readonly plan?: SumOrder | undefined;
  /**
   * Ranks have multiples of so many rows, but for the last ones. Codes are gathered where blocks do not straddle ranks: 128 for
   * block-scaled FP8, 32 for MXFP8 and 16 for NVFP4. Default 1, as in PyTorch.
   */
  readonly rowMultiple?: number | undefined;
}

const checkParameter = instance(Parameter, "a parameter of the module");
const checkOptions = optionsOf<FullyShardOptions>({
  reduction: oneOf(["mean", "sum"]),
  plan: nested(checkSumOrder),
  rowMultiple: integer(1),
});

/** What `fullyShard` returns: how a module is divided among ranks. */
export class FullySharded {
  readonly #shards: ReadonlyMap<Parameter, ShardedParameter>;
  readonly #synchronization = new Synchronization();

  /** @internal It comes from `fullyShard`. */
  constructor(
    /** The module, whose parameters have this rank's rows. Call it as before. */
    readonly module: Module,
    /** The ranks that it is divided among. */
    readonly group: ProcessGroup,
    { reduction, plan, rowMultiple = 1 }: FullyShardOptions,
  ) {
    this.#shards = orDispose(
      (made) =>
        new Map(
          module.parameters().map((parameter) => {
            const shard = new ShardedParameter(parameter, { group, rowMultiple });
            made.push(shard);
            return [parameter, shard];
          }),
        ),
    );
    for (const [parameter, shard] of this.#shards) {
      const { highPrecisionInitVal: values } = parameter;
      const [first, count] = [shard.firstRow * shard.unit, shard.own.shape[0] as number];
      parameter.divide(shard, values?.slice(first, first + count * shard.unit));
      parameter.registerPostAccumulateGradHook(() => {
        if (parameter.mainGrad)
          throw new ArgumentError(
            "fullyShard: a parameter has a mainGrad, which would hold the gradient of all rows; leave fuseWgradAccumulation out",
          );
        if (this.#synchronization.isOn) shard.reduceGrad({ plan, isMean: reduction !== "sum" });
      });
    }
  }

  /**
   * Runs `body`, whose backward passes leave gradients of whole parameters as this rank computed them, to which the next pass
   * outside adds before it reduces. Without it, each pass reduces its gradients and adds them to those of this rank's rows, which
   * takes less memory and exchanges more; the order of additions differs.
   *
   * @throws `ArgumentError` for a body that is not a function or is async; rethrows what the body throws.
   */
  noSync<R>(body: () => R): R {
    return this.#synchronization.suspended(body);
  }

  /** How many rows of a parameter each rank has. Throws `ArgumentError` for what is no parameter of the module. */
  rowsOf(parameter: Parameter): readonly number[] {
    return this.#shardOf("rowsOf", parameter).rows;
  }

  /**
   * The whole of which each rank has the rows `own`: of a gradient, a master parameter or an optimizer state of that parameter,
   * in the shape of the whole parameter. All ranks call it. The caller disposes of the result.
   *
   * @throws `ArgumentError` for what is no parameter of the module and for a tensor of another backend, `DTypeError` for what is
   * no tensor, `ShapeError` for one that has not this rank's rows, `DisposedError` for a disposed tensor.
   * @throws `DistributedError` for a group that has failed.
   */
  gather<T extends Tensor>(parameter: Parameter, own: T): T {
    const shard = this.#shardOf("gather", parameter);
    const source = requireTensor("gather", "own", own);
    requireShape("gather", "own", source, shard.own.shape);
    if (source.backend !== this.group.backend)
      throw new ArgumentError(
        "gather: own is on another backend than the group; move it by data() and tensor()",
      );
    return shard.whole(own);
  }

  #shardOf(user: string, parameter: Parameter): ShardedParameter {
    checkParameter(user, "parameter", parameter);
    const shard = this.#shards.get(parameter);
    if (shard) return shard;
    throw new ArgumentError(`${user}: the parameter is none of the module that was sharded; give one of it`);
  }
}

/** Why a parameter cannot be divided, if so. */
function refusal({ sharding, grad, mainGrad, value, quantizer }: Parameter): string | undefined {
  if (sharding) return "is sharded already; shard each module once";
  if (grad || mainGrad)
    return "has a gradient of all rows; shard the module before the first pass, without mainGrad";
  if (value instanceof QuantizedTensor && !quantizer)
    return "was quantized outside of quantizedModelInit, so nobody knows how to quantize its rows; make the module inside";
  return undefined;
}

/**
 * Divides the parameters of a module among the ranks of a group, along their first dimension, as PyTorch's `fully_shard` does.
 * From then on `value` and `grad` of a parameter, its f32 master and the states of optimizers that are made afterwards are those
 * of this rank's rows. Each operation that uses a parameter gathers the whole and frees it when it has run, forward and backward.
 * The weight of a linear layer under a recipe is quantized before it is gathered, as a shard of the whole: codes and scales are
 * sent. Where blocks straddle ranks, and under custom quantizers, the parameter is gathered in its own type. A backward pass
 * replaces each gradient, once it is complete, by this rank's rows of the sum, or mean, over all ranks.
 *
 * Parameters, optimizer states and losses have the bits of `DataParallel` with as many ranks and a ranked plan. Every rank makes
 * the module with the same values and reaches the same parameters in each pass.
 *
 * @throws `ArgumentError` for what is no module or no group, for an option outside its domain, for a group on another backend,
 * and for a module of which a parameter is sharded already, has a gradient or a `mainGrad`, or was quantized outside of
 * `quantizedModelInit`. In each case nothing has changed.
 */
export function fullyShard(
  module: Module,
  group: ProcessGroup,
  options: FullyShardOptions = {},
): FullySharded {
  checkModule("fullyShard", "module", module);
  checkGroup("fullyShard", "group", group);
  const given = checkOptions("fullyShard", options);
  requireSameBackend("fullyShard", module, group);
  for (const [name, parameter] of module.namedParameters()) {
    const reason = refusal(parameter);
    if (reason) throw new ArgumentError(`fullyShard: ${name} ${reason}`);
  }
  return new FullySharded(module, group, given);
}
