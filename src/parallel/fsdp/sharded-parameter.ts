/** A parameter whose rows are distributed over ranks. The whole parameter is gathered while an operation uses it. */
import type { GatherRequest, ProcessGroup } from "../../collectives/group.js";
import { quantizedGather, rowsOfQuantized } from "../../collectives/quantized.js";
import { blockFormat, isLineWide, isTensorWide, tileSize } from "../../formats/block.js";
import { type Parameter, persistent } from "../../modules/parameter.js";
import type { Bringing, Need, Sharding, WeightQuantizer } from "../../modules/sharding.js";
import { add } from "../../ops/elementwise/operators.gen.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { Operation } from "../../tape/uses.js";
import { membersOf, type Value } from "../../tape/value.js";
import { rowsOfPart, type TensorPart, wholePart } from "../../tensor/part.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { adopt, Scope } from "../../tensor/scope.js";
import { asMatrix, elementCount, type Shape, type WideDType } from "../../tensor/shape.js";
import { REVIVE, type Tensor } from "../../tensor/tensor.js";
import type { Prefetch } from "./prefetch.js";

/**
 * Returns the number of rows of each rank. All ranks get the same number, except the last ones, which get fewer or none, as with
 * `torch.chunk`. Every number except that of the last rows is a multiple of `multiple`.
 */
function rowsOfRanks(rows: number, size: number, multiple: number): readonly number[] {
  const each = Math.max(1, Math.ceil(Math.ceil(rows / size) / multiple)) * multiple;
  return Array.from({ length: size }, (_, rank) => Math.min(each, Math.max(0, rows - each * rank)));
}

/** Returns the number of rows that must stay on one rank: those of a block of a quantized weight. */
export function blockRows(value: Value): number {
  if (!(value instanceof QuantizedTensor)) return 1;
  const { quantizer, tile } = value.spec;
  const { multiple } = blockFormat(quantizer);
  if (isLineWide(tile)) return Math.max(1, asMatrix(value.shape)[0]);
  return isTensorWide(tile) ? multiple : Math.max(multiple, tileSize(tile)[1]);
}

/** Returns the least common multiple. */
function common(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y > 0) [x, y] = [y, x % y];
  return (a / x) * b;
}

/** How a parameter is to be divided. */
export interface Division {
  /** The name of the parameter in the module. */
  readonly name: string;
  readonly group: ProcessGroup;
  readonly rowMultiple: number;
  /** That of the module. */
  readonly prefetch: Prefetch;
}

/** The whole of a parameter, brought before the operation that reads it. */
class WholeParameter implements Bringing {
  #whole: Value | undefined;
  #made: ReturnType<ShardedParameter["gathering"]>["whole"] | undefined;

  constructor(readonly of: ShardedParameter) {}

  requests(): readonly GatherRequest[] {
    const { requests, whole } = this.of.gathering();
    this.#made = whole;
    return requests;
  }

  arrive(gathered: readonly Tensor[]): void {
    this.#whole = this.#made && persistent(this.#made(gathered));
  }

  whole(): Value {
    const whole = this.#whole as Value;
    for (const member of membersOf(whole)) adopt(member);
    return whole;
  }

  dispose(): void {
    this.#whole?.dispose();
  }
}

export class ShardedParameter implements Sharding {
  readonly name: string;
  readonly group: ProcessGroup;
  /** Where this rank's rows are in the whole parameter, which may itself be divided among ranks of another group. */
  readonly part: TensorPart;
  readonly shape: Shape;
  readonly rows: readonly number[];
  readonly own: Value;
  /** One entry for each running use: whether an operation read the handle during that use. */
  readonly #lent: boolean[] = [];
  readonly #ops: Quantizer | undefined;
  readonly #parameter: Parameter;
  readonly #prefetch: Prefetch;
  readonly #need: Need = () => new WholeParameter(this);
  /** The handle of the whole parameter. It has memory only while the parameter is used. */
  #whole: Tensor | undefined;
  #wholeQuantized: QuantizedTensor | undefined;
  /** The gradient of this rank's rows from earlier passes, while a gradient of the whole parameter is accumulated. */
  #earlier: Tensor<WideDType> | undefined;
  /** Whether the parameter's `grad` is already reduced to this rank's rows. */
  #isReduced = false;

  /** Copies this rank's rows. The parameter is not changed. If it is quantized, its quantizer must be known. */
  constructor(parameter: Parameter, { name, group, rowMultiple, prefetch }: Division) {
    const { value, shape } = parameter;
    this.name = name;
    this.group = group;
    this.#prefetch = prefetch;
    prefetch.add(this);
    this.#parameter = parameter;
    this.shape = shape;
    this.rows = rowsOfRanks(shape[0] ?? 1, group.size, common(rowMultiple, blockRows(value)));
    const [first, count] = [this.firstRow, this.rows[group.rank] as number];
    this.part = rowsOfPart(parameter.part ?? wholePart(shape.length === 0 ? [1] : shape), [
      first,
      first + count,
    ]);
    using scope = new Scope();
    if (value instanceof QuantizedTensor) {
      const ops = (parameter.quantizer as WeightQuantizer)({ group, dimension: "rows" });
      this.#ops = ops;
      this.own = persistent(scope.keep(rowsOfQuantized(value, { first, count }, ops)));
    } else {
      this.own = persistent(scope.keep(value.slice(first * this.unit, this.#shapeOf(count))));
    }
  }

  /** The number of elements of a row. */
  get unit(): number {
    return elementCount(this.shape.slice(1));
  }

  /** The index of this rank's first row. */
  get firstRow(): number {
    return this.rows.slice(0, this.group.rank).reduce((total, count) => total + count, 0);
  }

  get inUse(): boolean {
    return this.#lent.length > 0;
  }

  #shapeOf(rows: number): Shape {
    return [rows, ...this.shape.slice(1)];
  }

  enter(lent: boolean, operation: Operation): void {
    this.#lent.push(false);
    this.#prefetch.enter(operation);
    if (lent) this.borrow();
  }

  leave(operation: Operation): boolean {
    const lent = this.#lent.pop() === true;
    if (!this.inUse) this.#free();
    this.#prefetch.leave(operation);
    return lent;
  }

  needs(need: Need, where: "here" | "backward"): void {
    this.#prefetch.needs(need, where);
  }

  take<B extends Bringing>(isIt: (brought: Bringing) => brought is B): B | undefined {
    return this.#prefetch.take(isIt);
  }

  changed(): void {
    this.#prefetch.drop();
  }

  lend(): Value {
    this.#lent[this.#lent.length - 1] = true;
    return this.borrow();
  }

  borrow(): Value {
    if (!this.inUse) return this.own;
    this.needs(this.#need, "here");
    return this.own instanceof QuantizedTensor ? this.#quantizedWhole() : this.#wideWhole();
  }

  /** What this rank sends, and what the ranks' rows are together. */
  gathering(): {
    readonly requests: readonly GatherRequest[];
    readonly whole: (gathered: readonly Tensor[]) => Value;
  } {
    const { own, rows } = this;
    if (own instanceof QuantizedTensor) {
      const usage = { rowwise: own.rowwise !== undefined, columnwise: own.rowwise === undefined };
      return quantizedGather(own, usage, this.#ops as Quantizer, rows);
    }
    return { requests: [{ x: own, rows }], whole: ([all]) => (all as Tensor).reshape(this.shape) };
  }

  /** The whole that was brought for the running operation, which the open scope then owns, or that is gathered now. */
  #gathered(): Value {
    const isIt = (each: Bringing): each is WholeParameter =>
      each instanceof WholeParameter && each.of === this;
    const brought = this.take(isIt)?.whole();
    if (brought) return brought;
    const { requests, whole } = this.gathering();
    return whole(this.group.saying(this.name, () => this.group.allGatherCoalesced(requests)));
  }

  #quantizedWhole(): QuantizedTensor {
    if (this.#wholeQuantized) return this.#wholeQuantized;
    using scope = new Scope();
    this.#wholeQuantized = persistent(scope.keep(this.#gathered() as QuantizedTensor));
    return this.#wholeQuantized;
  }

  #wideWhole(): Tensor {
    if (this.#whole && !this.#whole.disposed) return this.#whole;
    using scope = new Scope();
    const gathered = this.#gathered() as Tensor;
    if (this.#whole) this.#whole[REVIVE](gathered);
    else this.#whole = persistent(scope.keep(gathered));
    return this.#whole;
  }

  /** Gathers a tensor in the parameter's whole shape from the rows `own` of every rank. */
  whole<T extends Tensor>(own: T): T {
    using scope = new Scope();
    const all = this.group.saying(this.name, () => this.group.allGather(own, { rows: this.rows }));
    return scope.keep(all.reshape(this.shape)) as T;
  }

  #free(): void {
    this.#whole?.dispose();
    this.#wholeQuantized?.dispose();
    this.#wholeQuantized = undefined;
  }

  beforeAccumulate(): void {
    const { grad } = this.#parameter;
    const isReduced = this.#isReduced;
    this.#isReduced = false;
    if (!grad || !isReduced) return;
    this.#earlier = grad;
    this.#parameter.grad = undefined;
  }

  /** Whether the parameter's `grad` is that of the whole parameter and still has to be reduced. */
  get isComplete(): boolean {
    return this.#parameter.grad !== undefined && !this.#isReduced;
  }

  /** The number of elements of the gradient on each rank. */
  get counts(): readonly number[] {
    return this.rows.map((count) => count * this.unit);
  }

  /** Replaces the gradient of the whole parameter by `sum`, its reduction for this rank's rows, plus those of earlier passes. */
  reduced(sum: Tensor<WideDType>): void {
    using scope = new Scope();
    const total = this.#earlier ? add(this.#earlier, sum) : sum.reshape(sum.shape);
    this.#earlier?.dispose();
    this.#earlier = undefined;
    this.#parameter.grad?.dispose();
    this.#parameter.grad = persistent(scope.keep(total));
    this.#isReduced = true;
  }

  zeroGrad(): void {
    // a step ends, or other values were loaded
    this.changed();
    this.#earlier?.dispose();
    this.#earlier = undefined;
    this.#isReduced = false;
  }

  dispose(): void {
    this.#free();
    this.zeroGrad();
    for (const member of membersOf(this.own)) member.dispose();
  }
}
