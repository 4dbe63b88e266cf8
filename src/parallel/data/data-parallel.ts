/**
 * Data parallelism: each rank computes gradients from its own samples, and all ranks step with the sum or mean of these
 * gradients.
 */
import { guardReceivers, isObject } from "../../brand.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { checkSumOrder, type SumOrder } from "../../collectives/plan.js";
import { ArgumentError } from "../../errors.js";
import type { Module } from "../../modules/module.js";
import type { Parameter } from "../../modules/parameter.js";
import { onSideStream } from "../../ops/side-stream.js";
import { integer, nested, oneOf, optionsOf } from "../../options.js";
import type { HookedPass, HookHandle } from "../../tape/hooks.js";
import { membersOf } from "../../tape/value.js";
import { Scope } from "../../tensor/scope.js";
import { checkGroup, checkModule, requireSameBackend } from "../arguments.js";
import { Synchronization } from "../synchronization.js";
import { BUCKET_BYTES, type Bucket, bucketsOf, gradientOf, packBucket, unpack } from "./buckets.js";

/** Options of `DataParallel`. */
export interface DataParallelOptions {
  /** How the gradients of all ranks are combined. "mean" is the sum multiplied by f32(1 / ranks). Default "mean". */
  readonly reduction?: "mean" | "sum" | undefined;
  /**
   * The maximum number of bytes of gradients that are reduced together. A larger gradient has a bucket of its own. Default 25
   * MiB.
   */
  readonly bucketBytes?: number | undefined;
  /** The algorithm and order of the sums. Default ranked; its bits do not depend on the buckets. */
  readonly plan?: SumOrder | undefined;
}

const checkOptions = optionsOf<DataParallelOptions>({
  reduction: oneOf(["mean", "sum"]),
  bucketBytes: integer(1),
  plan: nested(checkSumOrder),
});

/** The state of the buckets during one backward pass. */
interface PassState {
  readonly pass: HookedPass;
  readonly buckets: readonly Bucket[];
  /** The parameters whose gradients the pass has completed. */
  readonly ready: Set<Parameter>;
  /** The names of the parameters whose gradients the pass completes. */
  readonly names: ReadonlyMap<Parameter, string>;
  /** The index of the first bucket that is not reduced yet. */
  next: number;
}

/** The groups over which the gradient of a parameter is reduced. */
const groupsByParameter = new WeakMap<Parameter, Set<ProcessGroup>>();

/** Whether a `DataParallel` reduces the gradient of a parameter. */
export function isReduced(parameter: Parameter): boolean {
  return (groupsByParameter.get(parameter)?.size ?? 0) > 0;
}

/** Returns why the gradient of a parameter cannot be reduced over a group, or undefined if it can. */
function reasonAgainst(parameter: Parameter, group: ProcessGroup): string | undefined {
  if (parameter.sharding) return "is divided by fullyShard, which reduces its gradient";
  if (groupsByParameter.get(parameter)?.has(group))
    return "has a gradient that another DataParallel already reduces over this group; dispose of the other one first";
  return undefined;
}

/**
 * Reduces the gradients of a module over a group, as PyTorch's DistributedDataParallel does. In a backward pass, a bucket is
 * reduced as soon as all of its gradients are complete and the buckets before it were reduced. After the pass, each parameter's
 * `grad` (or `mainGrad`) is combined over all ranks: the sum by `plan`, rounded to the dtype of the gradient, and under "mean"
 * multiplied by f32(1 / ranks). With f32 gradients, "sum" and the ranked plan, the result is bitwise equal to the result of one
 * process that adds the gradients of the ranks' samples in order of ranks. If a parameter has both, `grad` is first added to
 * `mainGrad`.
 *
 * Every rank must create the module with the same initial values, for example from the same seed or by `broadcastParameters`,
 * and must use the same parameters in each pass. A pass reduces the contents of `grad` at its end. Therefore run all
 * microbatches except the last inside `noSync`, and release gradients before the next step. With `delayWgradCompute`, the
 * gradients of weights are reduced in the same way by `backwardDw`: call it inside `noSync`, except for the last call that
 * computes a gradient.
 *
 * @throws `ArgumentError` for an argument that is not a module or a group, for an invalid option value, for a group on another
 * backend, and for a module with a parameter whose gradient `fullyShard`, or another `DataParallel` over the same group,
 * reduces.
 */
export class DataParallel {
  static {
    guardReceivers(this, (x) => isObject(x) && #bucketBytes in x);
  }

  readonly #plan: SumOrder | undefined;
  readonly #reduction: "mean" | "sum";
  readonly #bucketBytes: number;
  readonly #handles = new Map<Parameter, HookHandle>();
  #passState: PassState | undefined;
  readonly #synchronization = new Synchronization();

  constructor(
    /** The module whose gradients are reduced. It is called as before. */
    readonly module: Module,
    /** The ranks over which gradients are reduced. */
    readonly group: ProcessGroup,
    options: DataParallelOptions = {},
  ) {
    checkModule("DataParallel", "module", module);
    checkGroup("DataParallel", "group", group);
    const ownOptions = checkOptions("DataParallel", options);
    requireSameBackend("DataParallel", module, group);
    this.#plan = ownOptions.plan;
    this.#reduction = ownOptions.reduction ?? "mean";
    this.#bucketBytes = ownOptions.bucketBytes ?? BUCKET_BYTES;
    for (const [name, parameter] of module.namedParameters()) {
      const reason = reasonAgainst(parameter, group);
      if (reason) throw new ArgumentError(`DataParallel: ${name} ${reason}`);
    }
    for (const parameter of module.parameters()) {
      const complete = (_: unknown, pass: HookedPass): void => this.#complete(parameter, pass);
      this.#handles.set(parameter, parameter.registerPostAccumulateGradHook(complete));
      groupsByParameter.set(parameter, (groupsByParameter.get(parameter) ?? new Set()).add(group));
    }
  }

  /**
   * Runs `body` without reducing gradients: its backward passes leave the gradients that this rank computed. Use it for all
   * microbatches of a step except the last.
   *
   * @throws `ArgumentError` for a body that is not a function or is async; rethrows what the body throws.
   */
  noSync<R>(body: () => R): R {
    return this.#synchronization.suspend(body);
  }

  /** Stops reducing gradients. It does not dispose of the module or the group. A second call does nothing. */
  dispose(): void {
    for (const [parameter, { remove }] of this.#handles) {
      remove();
      groupsByParameter.get(parameter)?.delete(this.group);
    }
    this.#handles.clear();
  }

  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  #complete(parameter: Parameter, pass: HookedPass): void {
    if (!this.#synchronization.isOn || !gradientOf(parameter)) return;
    const state = this.#passState?.pass === pass ? this.#passState : this.#beginPass(pass);
    state.ready.add(parameter);
    const isReady = ({ members }: Bucket): boolean =>
      members.every(({ parameter }) => state.ready.has(parameter));
    for (let next = this.#nextBucket(state); next && isReady(next); next = this.#nextBucket(state)) {
      state.next++;
      this.#reduce(next, state.names);
    }
  }

  #nextBucket({ buckets, next }: PassState): Bucket | undefined {
    return buckets[next];
  }

  #beginPass(pass: HookedPass): PassState {
    const entries = Array.from(
      this.module.namedParameters(),
      ([name, parameter]) => [parameter, name] as const,
    );
    const { delayedLeaves } = pass;
    const isCompleted = ({ requiresGrad, delayedGradients }: Parameter): boolean =>
      requiresGrad && !delayedGradients;
    const names = new Map(
      entries.filter(([parameter]) => delayedLeaves?.includes(parameter) ?? isCompleted(parameter)),
    );
    // backwardDw computes the gradients of the first parameters first
    const parameters = delayedLeaves ? [...names.keys()].reverse() : [...names.keys()];
    const buckets = bucketsOf(parameters, this.#bucketBytes);
    const state = { pass, buckets, ready: new Set<Parameter>(), names, next: 0 };
    pass.atEnd(() => this.#endPass(state));
    this.#passState = state;
    return state;
  }

  /** Reduces a bucket, concurrently with the rest of the backward pass. */
  #reduce(bucket: Bucket, names: ReadonlyMap<Parameter, string>): void {
    const { group } = this;
    const parameterNames = bucket.members.map(({ parameter }) => names.get(parameter)).join(", ");
    onSideStream(group.backend, () => {
      using _ = new Scope();
      const { flat, isWritable } = packBucket("DataParallel", bucket);
      const options = { reduction: this.#reduction, plan: this.#plan, out: isWritable ? flat : undefined };
      unpack(
        bucket,
        group.withSubject(`gradients of ${parameterNames}`, () => group.allReduce(flat, options)),
      );
    });
  }

  /** Aborts the group if the pass has not reached every parameter, because the other ranks would wait for the gradients. */
  #endPass({ ready, names }: PassState): void {
    this.#passState = undefined;
    for (const [parameter, name] of names) {
      if (ready.has(parameter)) continue;
      const reason = `the backward pass did not reach ${name}; set its requiresGrad to false on every rank, or use it in every pass`;
      this.group.abort(reason);
      throw new ArgumentError(`DataParallel: ${reason}`);
    }
  }
}

/**
 * Overwrites the parameters of a module by the parameters of rank `root`: values, codes and scales. The values before
 * quantization that `quantizedModelInit` may keep are not copied.
 *
 * @throws `ArgumentError` for an argument that is not a module or a group, for a group on another backend, for a root that is
 * not a rank of the group, and for parameters that `fullyShard` has divided; `DisposedError` for a group that was disposed of.
 * @throws `DistributedError` for ranks with different parts of a parameter (`Parameter.part`), as under tensor parallelism, and
 * for a group that has failed.
 */
export function broadcastParameters(module: Module, group: ProcessGroup, root = 0): void {
  checkModule("broadcastParameters", "module", module);
  checkGroup("broadcastParameters", "group", group);
  requireSameBackend("broadcastParameters", module, group);
  for (const [name, { sharding }] of module.namedParameters())
    if (sharding)
      throw new ArgumentError(
        `broadcastParameters: ${name} is divided by fullyShard, so each rank has other rows of it; call broadcastParameters before fullyShard`,
      );
  for (const [name, { value, part }] of module.namedParameters()) {
    // ranks with different parts of a parameter have different subjects, so that the group throws
    const subject = part ? `${name}, part ${JSON.stringify(part.ranges)}` : name;
    group.withSubject(subject, () => {
      for (const tensor of membersOf(value)) group.broadcast(tensor, { root, out: tensor });
    });
  }
}
