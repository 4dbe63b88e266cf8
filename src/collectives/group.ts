/** Groups of ranks, and the collective operations that every rank calls in the same order. */

import type { Backend, Support } from "../backends/backend.js";
import { guardReceivers, inherits, isObject } from "../brand.js";
import { ArgumentError, ShapeError, UnsupportedError } from "../errors.js";
import { oneOf, ownList, text } from "../options.js";
import { requireF32, requireTensor, requireWide } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import {
  elementsOf,
  offsetsOf,
  requireCounts,
  requireOn,
  requireRank,
  resultOf,
  rowsOf,
  rowsPerRank,
  sum,
} from "./arguments.js";
import type {
  CollectiveArgs,
  CollectiveName,
  Communicator,
  GatherPart,
  Reduction,
  Transport,
} from "./communicator.js";
import {
  type AxisNumbers,
  checkMesh,
  coordinatesOf,
  type MeshAxis,
  type MeshCoordinates,
  type MeshSizes,
  membersAlong,
  requireMesh,
} from "./mesh.js";
import {
  type AllGatherOptions,
  type AllReduceOptions,
  type AllToAllOptions,
  type BroadcastOptions,
  checkAllGather,
  checkAllReduce,
  checkAllToAll,
  checkBroadcast,
  checkPlannedSum,
  checkReduceScatter,
  type PlannedSum,
  type ReduceScatterOptions,
} from "./options.js";
import { checkSumPlan, completePlan, evenSplits, type SumPlan, type SumPlanOptions } from "./plan.js";

/**
 * The groups of a mesh that this rank belongs to. The group of an axis consists of the ranks that have the same position along
 * all other axes.
 */
export type Mesh = { readonly [A in MeshAxis]: ProcessGroup } & {
  readonly sizes: MeshCoordinates;
  /** The position of this rank along each axis. */
  readonly coordinates: MeshCoordinates;
};

/** A tensor whose rows are divided among the ranks: evenly, or by the counts in `rows`. */
export interface GatherRequest {
  readonly x: Tensor;
  readonly rows?: readonly number[] | undefined;
  /** A description of x that must be equal on all ranks. It distinguishes tensors of the same type and shape. */
  readonly subject?: string | undefined;
  /**
   * Tensors of this rank that must have the same bytes on all ranks, such as the scale of the tensor that x is a part of. Ranks
   * that exchange through their hosts compare them; ranks that exchange from device to device do not.
   */
  readonly shared?: readonly Tensor[] | undefined;
}

const reducing = oneOf(["reduceScatter", "allReduce"]);

/**
 * A group of ranks that exchange tensors, like `torch.distributed.ProcessGroup`. Every rank must make the same calls in the same
 * order. A call is ordered with other work on the backend: it sees the results of earlier operations, and later operations see
 * its results. Reading a result waits for it. Tensors are on `backend`. Sums need f32, bf16 or f16 and follow a plan; all other
 * operations move bytes of any dtype.
 *
 * A call on a group that has failed throws `DistributedError`, and so does reading the result of a failed call. A call after
 * `dispose()` throws `DisposedError`. An operation that the backend does not support throws `UnsupportedError`.
 */
export class ProcessGroup {
  readonly #communicator: Communicator;
  readonly #groups: ProcessGroup[] = [];
  #subject: string | undefined;

  /** @internal Whether `x` is a group, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #communicator in x && inherits(this, x);
  }

  /** @internal Groups come from `loopbackGroup`, `openProcessGroup` and `split`. */
  constructor(communicator: Communicator) {
    if (typeof (communicator as Partial<Communicator> | undefined)?.run !== "function")
      throw new ArgumentError(
        "ProcessGroup: groups come from loopbackGroup(), openProcessGroup() and split()",
      );
    this.#communicator = communicator;
  }

  /** The number of this rank in the group, from 0. */
  get rank(): number {
    return this.#communicator.rank;
  }

  /** The number of ranks in the group. */
  get size(): number {
    return this.#communicator.ranks.length;
  }

  /** The number of each member in the job, in order of the members' ranks in the group. Error messages use these numbers. */
  get ranks(): readonly number[] {
    return this.#communicator.ranks;
  }

  /** How this group moves bytes between ranks. */
  get transport(): Transport {
    return this.#communicator.transport;
  }

  /** The backend of this rank's tensors. */
  get backend(): Backend {
    return this.#communicator.backend;
  }

  /**
   * Returns whether the group supports a plan, as `sumPlan` returns it. `unverified` is set if it is unknown whether NCCL adds
   * along that ring.
   * @throws `ArgumentError` for an invalid or incomplete plan, or one of another group.
   */
  supports(plan: SumPlan): Support {
    const caller = "supports";
    const ownPlan = checkSumPlan(caller, plan, "plan");
    const { sum: dtype, splits, order } = ownPlan as SumPlanOptions;
    if (dtype === undefined || splits === undefined || order === undefined)
      throw new ArgumentError(`${caller}: the plan is incomplete; pass the plan that sumPlan() returns`);
    const complete = completePlan(caller, ownPlan, { size: this.size, dtype, splits, fixed: true });
    return this.#communicator.supportsPlan(complete);
  }

  /**
   * Concatenates the x of all ranks along the first dimension, in order of ranks. x has any dtype; all dimensions except the
   * first must be equal on every rank.
   * @throws `ArgumentError` for an unknown option and for a tensor of another backend, `DTypeError` for anything but a tensor and
   * for an `out` of another dtype, `ShapeError` for a scalar, for `rows` that do not match x or are not a whole number of bytes,
   * and for an `out` of another shape.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  allGather<T extends Tensor>(x: T, options: AllGatherOptions = {}): T {
    using scope = new Scope();
    const part = this.#gatherPart(x, options);
    this.#run("allGather", { parts: [part], subject: this.#subject });
    return scope.keep(part.out) as T;
  }

  /**
   * @internal Gathers several tensors in one operation. The result for each tensor is the same as by `allGather`, and the errors
   * are the same. The tensors are not copied to a common buffer.
   */
  allGatherCoalesced(requests: readonly GatherRequest[]): Tensor[] {
    if (requests.length === 0) return [];
    using scope = new Scope();
    const gatherParts = requests.map(({ x, rows, subject, shared }) => ({
      ...this.#gatherPart(x, { rows }),
      subject,
      shared,
    }));
    this.#run("allGather", { parts: gatherParts, subject: this.#subject });
    return gatherParts.map(({ out }) => scope.keep(out));
  }

  #gatherPart(x: Tensor, options: AllGatherOptions): GatherPart {
    const caller = "allGather";
    const source = requireTensor(caller, "x", x);
    const { rows: rowsOption, out: outOption } = checkAllGather(caller, options);
    const [ownRows] = rowsOf(caller, source);
    const rows = requireCounts(
      this.#communicator,
      caller,
      "rows",
      rowsOption ?? this.ranks.map(() => ownRows),
    );
    if (rows[this.rank] !== ownRows)
      throw new ShapeError(
        `${caller}: x has ${ownRows} rows; rows is [${rows}], with ${rows[this.rank]} for rank ${this.rank}; give the number of rows of x`,
      );
    const counts = elementsOf(caller, "rows", source, rows);
    const out = resultOf(
      this.#communicator,
      caller,
      source,
      [sum(rows), ...source.shape.slice(1)],
      outOption,
    );
    return { x: source, counts, out };
  }

  /**
   * Reduces the x of all ranks and returns this rank's rows of the result. x is f32, bf16 or f16 and has the same shape on every
   * rank. A sum is rounded as its plan says; a mean is the sum multiplied by f32(1 / ranks) and rounded again; a maximum ignores
   * NaN.
   * @throws `ArgumentError` for an unknown option, for a tensor of another backend, and for a plan that does not fit this sum,
   * `DTypeError` for anything but a tensor and for an `out` of another dtype, `ShapeError` if the rows cannot be divided among
   * the ranks, and for an `out` of another shape.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  reduceScatter<D extends WideDType>(x: Tensor<D>, options: ReduceScatterOptions = {}): Tensor<D> {
    const caller = "reduceScatter";
    const source = requireWide(caller, "x", x);
    const { rows: rowsOption, out: outOption, ...sumOptions } = checkReduceScatter(caller, options);
    const [rowCount, unit] = rowsOf(caller, source);
    const rows = rowsPerRank(this.#communicator, caller, "rows", rowsOption, rowCount);
    const counts = rows.map((each) => each * unit);
    const reduction = this.#reduction("reduceScatter", source, { ...sumOptions, rows });
    using scope = new Scope();
    const shape = [rows[this.rank] as number, ...source.shape.slice(1)];
    const out = resultOf(this.#communicator, caller, source, shape, outOption);
    this.#run("reduceScatter", { x: source, counts, reduction, out, subject: this.#subject });
    return scope.keep(out) as Tensor<D>;
  }

  /**
   * Reduces the x of all ranks and returns the result on every rank. x is f32, bf16 or f16 and has the same shape on every rank.
   * `out` may be x.
   * @throws `ArgumentError` for an unknown option, for a tensor of another backend, and for a plan that does not fit this sum,
   * `DTypeError` for anything but a tensor and for an `out` of another dtype, `ShapeError` for an `out` of another shape.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  allReduce<D extends WideDType>(x: Tensor<D>, options: AllReduceOptions = {}): Tensor<D> {
    const caller = "allReduce";
    const source = requireWide(caller, "x", x);
    const { out: outOption, ...sumOptions } = checkAllReduce(caller, options);
    const reduction = this.#reduction("allReduce", source, sumOptions);
    using scope = new Scope();
    const out = resultOf(this.#communicator, caller, source, source.shape, outOption, true);
    this.#run("allReduce", { x: source, reduction, out, subject: this.#subject });
    return scope.keep(out) as Tensor<D>;
  }

  /**
   * Returns the complete plan by which `reduceScatter` or `allReduce` adds x. It can be printed, saved as JSON, and passed as the
   * option `plan`.
   * @throws `ArgumentError` for an unknown option, a tensor of another backend, and a plan that does not fit this sum,
   * `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for `rows` that do not match x, `DisposedError` for a
   * tensor that was disposed of.
   */
  sumPlan(op: "reduceScatter" | "allReduce", x: Tensor<WideDType>, options: PlannedSum = {}): SumPlan {
    reducing("sumPlan", "op", op);
    requireOn(this.#communicator, op, "x", x);
    const { dtype, size: elements } = requireWide(op, "x", x);
    const { size } = this;
    const { rows, plan } = checkPlannedSum(op, options);
    if (op === "allReduce")
      return completePlan(op, plan, { size, dtype, splits: evenSplits(elements, size), fixed: false });
    return completePlan(op, plan, { size, dtype, splits: this.#splits(op, x, rows), fixed: true });
  }

  /**
   * Returns the x of rank `root` on every rank. x has any dtype, and the same dtype and shape on every rank; its elements are
   * read on `root` only. `out` may be x.
   * @throws `ArgumentError` for an unknown option, for a tensor of another backend, and for a root that is not a rank of the
   * group, `DTypeError` for anything but a tensor and for an `out` of another dtype, `ShapeError` for an `out` of another shape.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  broadcast<T extends Tensor>(x: T, options: BroadcastOptions = {}): T {
    const caller = "broadcast";
    const source = requireTensor(caller, "x", x);
    const { root = 0, out: outOption } = checkBroadcast(caller, options);
    requireRank(this.#communicator, caller, "root", root);
    using scope = new Scope();
    const out = resultOf(this.#communicator, caller, source, source.shape, outOption, true);
    this.#run("broadcast", { x: source, root, out, subject: this.#subject });
    return scope.keep(out) as T;
  }

  /**
   * Sends some rows of x to each rank, and returns the rows received from all ranks, concatenated in order of ranks. x has any
   * dtype.
   * @throws `ArgumentError` for an unknown option, for a tensor of another backend, and for `sent` without `received`,
   * `DTypeError` for anything but a tensor and for an `out` of another dtype, `ShapeError` if the numbers of rows do not match x
   * or `out`, or if the rows of a rank are not a whole number of bytes.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  allToAll<T extends Tensor>(x: T, options: AllToAllOptions = {}): T {
    const caller = "allToAll";
    const source = requireTensor(caller, "x", x);
    const { sent: sentOption, received: receivedOption, out: outOption } = checkAllToAll(caller, options);
    if (sentOption !== undefined && receivedOption === undefined)
      throw new ArgumentError(`${caller}: sent is given and received is not; give both`);
    const [rowCount] = rowsOf(caller, source);
    const sent = rowsPerRank(this.#communicator, caller, "sent", sentOption, rowCount);
    const receivedRows = requireCounts(this.#communicator, caller, "received", receivedOption ?? sent);
    if (sent[this.rank] !== receivedRows[this.rank])
      throw new ArgumentError(
        `${caller}: rank ${this.rank} sends ${sent[this.rank]} rows to itself and receives ${receivedRows[this.rank]}; give the same number`,
      );
    const counts = {
      sent: elementsOf(caller, "sent", source, sent),
      received: elementsOf(caller, "received", source, receivedRows),
    };
    using scope = new Scope();
    const out = resultOf(
      this.#communicator,
      caller,
      source,
      [sum(receivedRows), ...source.shape.slice(1)],
      outOption,
    );
    this.#run("allToAll", { x: source, ...counts, out });
    return scope.keep(out) as T;
  }

  /**
   * Sends x to a rank, which receives it by `recv`. x has any dtype. Work that is enqueued afterwards waits for the receiver.
   * Therefore two ranks that exchange tensors must use `allToAll`, or one must send first and the other receive first.
   * @throws `ArgumentError` for this rank itself, for a number that is not a rank of the group, and for a tensor of another
   * backend, `DTypeError` for anything but a tensor.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  send(x: Tensor, to: number): void {
    const source = requireOn(this.#communicator, "send", "x", x);
    requireRank(this.#communicator, "send", "to", to, true);
    this.#run("send", { x: source, to, subject: this.#subject });
  }

  /**
   * Overwrites `out` with the tensor that rank `from` sends, and returns `out`. Both tensors must have the same dtype and shape.
   * @throws `ArgumentError` for this rank itself, for a number that is not a rank of the group, and for a tensor of another
   * backend, `DTypeError` for anything but a tensor.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  recv<T extends Tensor>(out: T, from: number): T {
    const target = requireOn(this.#communicator, "recv", "out", out);
    requireRank(this.#communicator, "recv", "from", from, true);
    this.#run("recv", { out: target, from, subject: this.#subject });
    return out;
  }

  /**
   * Resolves when every rank has called it and all work that the ranks enqueued before has completed.
   * @throws `DisposedError` for a group that was disposed of, `DistributedError` for one that has failed.
   */
  async barrier(): Promise<void> {
    this.#run("agree", { what: "barrier", text: "" });
    await this.#communicator.settled();
  }

  /**
   * @internal Runs `body`. Its gathers, reductions, broadcasts and messages fail with a disagreement unless `subject` is equal on
   * all ranks. `subject` distinguishes tensors of the same types and shapes.
   */
  withSubject<R>(subject: string, body: () => R): R {
    const before = this.#subject;
    this.#subject = subject;
    try {
      return body();
    } finally {
      this.#subject = before;
    }
  }

  /**
   * Divides the group into a mesh and returns this rank's group along each axis. Consecutive ranks are neighbours along `tp`,
   * then along `cp`, `dp` and `pp`. Every rank of this group calls it with the same sizes. Disposing of this group disposes of
   * the new groups.
   * @throws `ArgumentError` if the product of the sizes is not the size of the group.
   * @throws `DisposedError` for a group that was disposed of, `DistributedError` for one that has failed.
   */
  split(mesh: MeshSizes): Mesh {
    const { tp = 1, cp = 1, dp = 1, pp = 1 } = checkMesh("split", mesh);
    const sizes = { tp, cp, dp, pp };
    return { ...this.splitAlong("split", sizes), sizes, coordinates: coordinatesOf(sizes, this.rank) };
  }

  /** @internal Returns this rank's group along each axis of a mesh. `sizes` has the axes, fastest first. Errors name `caller`. */
  splitAlong<A extends string>(caller: string, sizes: AxisNumbers<A>): Readonly<Record<A, ProcessGroup>> {
    const text = requireMesh(caller, sizes, this.size);
    this.#run("agree", { what: caller, text: `into ${text}` });
    const axes = Object.keys(sizes) as A[];
    return Object.fromEntries(axes.map((axis) => [axis, this.#along(sizes, axis)])) as Record<
      A,
      ProcessGroup
    >;
  }

  /**
   * Replaces each f32 element by its maximum over the ranks, in place. This makes a group usable as the `amaxReductionGroup` of
   * `autocast`. All ranks pass tensors of the same sizes, or all pass none.
   * @throws `ArgumentError` for anything but a list and for a tensor of another backend, `DTypeError` for anything but an f32
   * tensor.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  reduceMax(tensors: readonly Tensor<"f32">[]): void {
    const ownTensors = ownList("reduceMax", "tensors", tensors, (x, i) =>
      requireF32("reduceMax", `tensors[${i}]`, x),
    );
    const [firstTensor, another] = ownTensors;
    if (!firstTensor) {
      this.#run("agree", { what: "reduceMax", text: "of no tensors" });
      return;
    }
    if (!another) {
      this.allReduce(firstTensor, { reduction: "max", out: firstTensor });
      return;
    }
    for (const tensor of ownTensors) requireOn(this.#communicator, "reduceMax", "tensors", tensor);
    using _ = new Scope();
    const concatenation = new Tensor(this.backend, "f32", [sum(ownTensors.map(({ size }) => size))]);
    const offsets = offsetsOf(ownTensors.map(({ size }) => size));
    for (const [i, tensor] of ownTensors.entries())
      concatenation.paste(tensor.reshape([tensor.size]), offsets[i] as number);
    this.allReduce(concatenation, { reduction: "max", out: concatenation });
    for (const [i, tensor] of ownTensors.entries()) {
      const offset = offsets[i] as number;
      tensor.paste(
        tensor.size === 1
          ? concatenation.view(offset, tensor.shape)
          : concatenation.slice(offset, tensor.shape),
        0,
      );
    }
  }

  /**
   * Ends all groups of the job: the pending or next call of every rank fails with a `DistributedError` that contains the reason.
   * @throws `ArgumentError` for a reason that is not a string.
   */
  abort(reason = "abort() was called"): void {
    text("abort", "reason", reason);
    this.#communicator.abort(reason);
  }

  /**
   * Leaves the group after all enqueued work has completed. A second call does nothing.
   * @throws `DistributedError` if the group has failed and no earlier call of this rank has thrown that error.
   */
  async dispose(): Promise<void> {
    for (const group of this.#groups) await group.dispose();
    await this.#communicator.dispose();
  }

  #along<A extends string>(sizes: AxisNumbers<A>, axis: A): ProcessGroup {
    const members = membersAlong(sizes, this.rank, axis);
    const ranks = members.map((member) => this.ranks[member] as number);
    const { id } = this.#communicator;
    const communicator = this.#communicator.subgroup({
      id: `${id}.${this.#groups.length} ${axis} ${ranks}`,
      rank: members.indexOf(this.rank),
      ranks,
    });
    const group = new ProcessGroup(communicator);
    this.#groups.push(group);
    return group;
  }

  /** Returns the number of elements in each rank's rows. */
  #splits(caller: string, x: Tensor, rows: readonly number[] | undefined): readonly number[] {
    const [rowCount, unit] = rowsOf(caller, x);
    return rowsPerRank(this.#communicator, caller, "rows", rows, rowCount).map((each) => each * unit);
  }

  #reduction(
    op: "reduceScatter" | "allReduce",
    x: Tensor<WideDType>,
    { reduction = "sum", plan, rows }: ReduceScatterOptions,
  ): Reduction {
    if (reduction !== "max") return { reduction, plan: this.sumPlan(op, x, { plan, rows }) };
    if (plan === undefined) return { reduction };
    throw new ArgumentError(
      `${op}: plan is for sums; reduction is ${reduction}, which has no order; leave plan out`,
    );
  }

  #run<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void {
    const support = this.#communicator.supports(op, args);
    if (!support.ok) throw new UnsupportedError(op, support.reason);
    this.#communicator.run(op, args);
  }
}

// not in a static block: when compiled, it would read the class before it is assigned, because methods have `using`
guardReceivers(ProcessGroup);
