/** Ranks that work together: what every one of them calls, in the same order. */
import type { Backend, Support } from "../backends/backend.js";
import { ArgumentError, ShapeError, UnsupportedError } from "../errors.js";
import { anyListOf, oneOf, text } from "../options.js";
import { requireF32, requireTensor, requireWide } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { divided, requireCounts, requireOn, requireRank, resultOf, rowsOf, sum } from "./arguments.js";
import type { CollectiveArgs, CollectiveName, Communicator, Reduction, Transport } from "./communicator.js";
import {
  checkMesh,
  completeMesh,
  coordinatesOf,
  MESH_AXES,
  type MeshAxis,
  type MeshCoordinates,
  type MeshSizes,
  membersAlong,
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

/** The groups of a mesh that this rank is in: along each axis the ranks that differ from it there alone. */
export type Mesh = { readonly [A in MeshAxis]: ProcessGroup } & {
  readonly sizes: MeshCoordinates;
  /** Where this rank lies. */
  readonly coordinates: MeshCoordinates;
};

const reducing = oneOf(["reduceScatter", "allReduce"]);

/**
 * Ranks that exchange tensors. Every rank of a group makes the same calls in the same order; what is enqueued before a call on
 * the group's backend is done before it, and results can be used at once, as those of any operation: reading one waits. Tensors
 * live on `backend`. Sums are f32, bf16 or f16 by a plan; all else moves bytes, of any element type.
 *
 * A call on a group that has failed, and reading what a failed call should have given, throws `DistributedError`; a call after
 * `dispose()` throws `DisposedError`, one whose backend does not do it `UnsupportedError`.
 */
export class ProcessGroup {
  readonly #communicator: Communicator;
  readonly #groups: ProcessGroup[] = [];

  /** @internal Groups come from `loopbackGroup`, `openProcessGroup` and `split`. */
  constructor(communicator: Communicator) {
    if (typeof (communicator as Partial<Communicator> | undefined)?.run !== "function")
      throw new ArgumentError(
        "ProcessGroup: groups come from loopbackGroup(), openProcessGroup() and split()",
      );
    this.#communicator = communicator;
  }

  /** This rank, from 0. */
  get rank(): number {
    return this.#communicator.rank;
  }

  /** How many ranks there are. */
  get size(): number {
    return this.#communicator.ranks.length;
  }

  /** The ranks of the members in the group that all others were split from; errors name these. */
  get ranks(): readonly number[] {
    return this.#communicator.ranks;
  }

  /** How bytes go between the ranks. */
  get transport(): Transport {
    return this.#communicator.transport;
  }

  /** Where the tensors of this rank live. */
  get backend(): Backend {
    return this.#communicator.backend;
  }

  /**
   * Whether the group adds by a plan, as `sumPlan` gives it. `unverified` says why nobody knows whether NCCL takes that ring.
   * @throws `ArgumentError` for a plan that is none, that is not whole, or that is of another group.
   */
  supports(plan: SumPlan): Support {
    const user = "supports";
    checkSumPlan(user, plan, "plan");
    const { sum: dtype, splits, order } = plan as SumPlanOptions;
    if (dtype === undefined || splits === undefined || order === undefined)
      throw new ArgumentError(`${user}: the plan is not whole; give what sumPlan() gives`);
    const whole = completePlan(user, plan, { size: this.size, dtype, splits, fixed: true });
    return this.#communicator.supportsPlan(whole);
  }

  /**
   * The x of all ranks one behind the other along the first dimension. Any element type; all dimensions but the first are the
   * same on every rank.
   * @throws `ArgumentError` for an unknown option and for a tensor of another backend, `DTypeError` for what is no tensor
   * and for an `out` of another type, `ShapeError` for a scalar, for rows that are not
   * those of x, and for an `out` of another shape.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  allGather<T extends Tensor>(x: T, options: AllGatherOptions = {}): T {
    const user = "allGather";
    const source = requireTensor(user, "x", x);
    const { rows: given, out: into } = checkAllGather(user, options);
    const [own, unit] = rowsOf(user, source);
    const rows = requireCounts(this.#communicator, user, "rows", given ?? this.ranks.map(() => own));
    if (rows[this.rank] !== own)
      throw new ShapeError(
        `${user}: x has ${own} rows; rows is [${rows}], which gives rank ${this.rank} others`,
      );
    using scope = new Scope();
    const out = resultOf(this.#communicator, user, source, [sum(rows), ...source.shape.slice(1)], into);
    this.#run("allGather", { x: source, counts: rows.map((each) => each * unit), out });
    return scope.keep(out) as T;
  }

  /**
   * This rank's rows of the sum, or maximum, of the x of all ranks: f32, bf16 or f16, of one shape. A sum is rounded as its plan
   * says; a maximum passes over NaN.
   * @throws `ArgumentError` for an unknown option and for a tensor of another backend,
   * and for a plan that is not of this sum, `DTypeError` for what is no tensor
   * and for an `out` of another type, `ShapeError` where the first dimension is
   * not divided among the ranks, and for an `out` of another shape.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  reduceScatter<D extends WideDType>(x: Tensor<D>, options: ReduceScatterOptions = {}): Tensor<D> {
    const user = "reduceScatter";
    const source = requireWide(user, "x", x);
    const { rows: given, out: into, ...how } = checkReduceScatter(user, options);
    const [all, unit] = rowsOf(user, source);
    const rows = divided(this.#communicator, user, "rows", given, all);
    const counts = rows.map((each) => each * unit);
    const reduction = this.#reduction("reduceScatter", source, { ...how, rows });
    using scope = new Scope();
    const shape = [rows[this.rank] as number, ...source.shape.slice(1)];
    const out = resultOf(this.#communicator, user, source, shape, into);
    this.#run("reduceScatter", { x: source, counts, reduction, out });
    return scope.keep(out) as Tensor<D>;
  }

  /**
   * The sum, or maximum, of the x of all ranks: f32, bf16 or f16, of one shape. `out` may be x.
   * @throws `ArgumentError` for an unknown option and for a tensor of another backend,
   * and for a plan that is not of this sum, `DTypeError` for what is no tensor
   * and for an `out` of another type, `ShapeError` for an `out` of another shape.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  allReduce<D extends WideDType>(x: Tensor<D>, options: AllReduceOptions = {}): Tensor<D> {
    const user = "allReduce";
    const source = requireWide(user, "x", x);
    const { out: into, ...how } = checkAllReduce(user, options);
    const reduction = this.#reduction("allReduce", source, how);
    using scope = new Scope();
    const out = resultOf(this.#communicator, user, source, source.shape, into, true);
    this.#run("allReduce", { x: source, reduction, out });
    return scope.keep(out) as Tensor<D>;
  }

  /**
   * The plan by which `reduceScatter` or `allReduce` of x adds: whole, to be printed, saved as JSON, or given again as `plan`.
   * @throws `ArgumentError` for an unknown option, a tensor of another backend, and a plan that is not of this sum, `DTypeError`
   * for what is no f32, bf16 or f16 tensor, `ShapeError` for rows that are not those of x, `DisposedError` for a tensor that was
   * disposed of.
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
   * The x of rank `root`, on every rank. Any element type; x has one type and shape on all ranks, and is read on `root` alone.
   * `out` may be x.
   * @throws `ArgumentError` for an unknown option and for a tensor of another backend,
   * and for a root that is no rank, `DTypeError` for what is no tensor
   * and for an `out` of another type, `ShapeError` for an `out` of another shape.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  broadcast<T extends Tensor>(x: T, options: BroadcastOptions = {}): T {
    const user = "broadcast";
    const source = requireTensor(user, "x", x);
    const { root = 0, out: into } = checkBroadcast(user, options);
    requireRank(this.#communicator, user, "root", root);
    using scope = new Scope();
    const out = resultOf(this.#communicator, user, source, source.shape, into, true);
    this.#run("broadcast", { x: source, root, out });
    return scope.keep(out) as T;
  }

  /**
   * From every rank the rows that it has for this one, one behind the other in the order of ranks. Any element type.
   * @throws `ArgumentError` for an unknown option and for a tensor of another backend,
   * and for `sent` without `received`, `DTypeError` for what is no tensor
   * and for an `out` of another type, `ShapeError` where the rows are not those of x
   * or of `out`.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  allToAll<T extends Tensor>(x: T, options: AllToAllOptions = {}): T {
    const user = "allToAll";
    const source = requireTensor(user, "x", x);
    const { sent: given, received: wanted, out: into } = checkAllToAll(user, options);
    if (given !== undefined && wanted === undefined)
      throw new ArgumentError(`${user}: sent is given and received is not; give both`);
    const [all, unit] = rowsOf(user, source);
    const sent = divided(this.#communicator, user, "sent", given, all);
    const received = requireCounts(this.#communicator, user, "received", wanted ?? sent);
    if (sent[this.rank] !== received[this.rank])
      throw new ArgumentError(
        `${user}: rank ${this.rank} sends ${sent[this.rank]} rows to itself and receives ${received[this.rank]}; give the same number`,
      );
    using scope = new Scope();
    const out = resultOf(this.#communicator, user, source, [sum(received), ...source.shape.slice(1)], into);
    const elements = (counts: readonly number[]): number[] => counts.map((count) => count * unit);
    this.#run("allToAll", { x: source, sent: elements(sent), received: elements(received), out });
    return scope.keep(out) as T;
  }

  /**
   * Sends x to a rank, which receives it by `recv`. Any element type. What is enqueued afterwards waits for the receiver: two
   * ranks that exchange use `allToAll`, or one sends first and the other receives first.
   * @throws `ArgumentError` for this rank itself, for what is no rank, and for a tensor of another backend, `DTypeError` for what
   * is no tensor.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  send(x: Tensor, to: number): void {
    const source = requireOn(this.#communicator, "send", "x", x);
    requireRank(this.#communicator, "send", "to", to, true);
    this.#run("send", { x: source, to });
  }

  /**
   * Overwrites `out` with what rank `from` sends, of its type and shape, and gives it back.
   * @throws `ArgumentError` for this rank itself, for what is no rank, and for a tensor of another backend, `DTypeError` for what
   * is no tensor.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  recv<T extends Tensor>(out: T, from: number): T {
    const target = requireOn(this.#communicator, "recv", "out", out);
    requireRank(this.#communicator, "recv", "from", from, true);
    this.#run("recv", { out: target, from });
    return out;
  }

  /**
   * Resolves once every rank has called it and all that was enqueued before is done, on all of them.
   * @throws `DisposedError` for a group that was disposed of, `DistributedError` for one that has failed.
   */
  async barrier(): Promise<void> {
    this.#run("agree", { what: "barrier", text: "" });
    await this.#communicator.settled();
  }

  /**
   * The groups of a mesh, in which neighbours in rank are neighbours along `tp`, then along `cp`, `dp` and `pp`. Every rank of
   * this group calls it with the same sizes. They end with this group.
   * @throws `ArgumentError` where the sizes do not multiply to the group's.
   * @throws `DisposedError` for a group that was disposed of, `DistributedError` for one that has failed.
   */
  split(mesh: MeshSizes): Mesh {
    const sizes = completeMesh(checkMesh("split", mesh), this.size);
    const { tp, cp, dp, pp } = sizes;
    this.#run("agree", { what: "split", text: `into tp ${tp} x cp ${cp} x dp ${dp} x pp ${pp}` });
    const along = Object.fromEntries(MESH_AXES.map((axis) => [axis, this.#along(sizes, axis)]));
    return {
      ...(along as Record<MeshAxis, ProcessGroup>),
      sizes,
      coordinates: coordinatesOf(sizes, this.rank),
    };
  }

  /**
   * In place: each f32 element becomes the largest of the group's. What `autocast` calls as its `amaxReductionGroup`.
   * @throws `ArgumentError` for what is no list and for a tensor of another backend, `DTypeError` for what is no f32 tensor.
   * @throws `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
   */
  reduceMax(tensors: readonly Tensor<"f32">[]): void {
    anyListOf(requireF32)("reduceMax", "tensors", tensors);
    for (const each of tensors) this.allReduce(each, { reduction: "max", out: each });
  }

  /**
   * Ends all groups of the job: every rank's next or pending call fails with a `DistributedError` that has the reason.
   * @throws `ArgumentError` for a reason that is no text.
   */
  abort(reason = "abort() was called"): void {
    text("abort", "reason", reason);
    this.#communicator.abort(reason);
  }

  /**
   * Leaves the group, once what was enqueued is done. Safe to call twice.
   * @throws `DistributedError` where the group has failed and no call of this rank has said so yet.
   */
  async dispose(): Promise<void> {
    for (const group of this.#groups) await group.dispose();
    await this.#communicator.dispose();
  }

  #along(sizes: MeshCoordinates, axis: MeshAxis): ProcessGroup {
    const members = membersAlong(sizes, this.rank, axis);
    const ranks = members.map((member) => this.ranks[member] as number);
    const { id } = this.#communicator;
    const made = this.#communicator.subgroup({
      id: `${id}.${this.#groups.length} ${axis} ${ranks}`,
      rank: members.indexOf(this.rank),
      ranks,
    });
    const group = new ProcessGroup(made);
    this.#groups.push(group);
    return group;
  }

  /** Elements of each rank's rows. */
  #splits(user: string, x: Tensor, rows: readonly number[] | undefined): readonly number[] {
    const [all, unit] = rowsOf(user, x);
    return divided(this.#communicator, user, "rows", rows, all).map((each) => each * unit);
  }

  #reduction(
    op: "reduceScatter" | "allReduce",
    x: Tensor<WideDType>,
    { reduction = "sum", plan, rows }: ReduceScatterOptions,
  ): Reduction {
    if (reduction === "sum") return { reduction, plan: this.sumPlan(op, x, { plan, rows }) };
    if (plan === undefined) return { reduction };
    throw new ArgumentError(`${op}: plan is of a sum; reduction is ${reduction}, which has no order`);
  }

  #run<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void {
    const support = this.#communicator.supports(op, args);
    if (!support.ok) throw new UnsupportedError(op, support.reason);
    this.#communicator.run(op, args);
  }
}
