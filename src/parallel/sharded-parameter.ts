/** A parameter whose rows are distributed over ranks. The whole parameter is gathered while an operation uses it. */
import type { ProcessGroup } from "../distributed/group.js";
import type { SumOrder } from "../distributed/plan.js";
import { gatherQuantized, rowsOfQuantized } from "../distributed/quantized.js";
import { blockFormat, isTensorWide, tileSize } from "../formats/block.js";
import { type Parameter, persistent } from "../modules/parameter.js";
import type { Sharding, WeightQuantizer } from "../modules/sharding.js";
import { add } from "../ops/elementwise/add.js";
import { scaled } from "../ops/elementwise/scaled.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { membersOf, type Value } from "../tape/value.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { elementCount, type Shape, type WideDType } from "../tensor/shape.js";
import { REVIVE, type Tensor } from "../tensor/tensor.js";

/**
 * Returns the number of rows of each rank. All ranks get the same number, except the last ones, which get fewer or none, as with
 * `torch.chunk`. Every number except that of the last rows is a multiple of `multiple`.
 */
export function rowsOfRanks(rows: number, size: number, multiple: number): readonly number[] {
  const each = Math.max(1, Math.ceil(Math.ceil(rows / size) / multiple)) * multiple;
  return Array.from({ length: size }, (_, rank) => Math.min(each, Math.max(0, rows - each * rank)));
}

/** Returns the number of rows that must stay on one rank: those of a block of a quantized weight. */
function blockRows(value: Value): number {
  if (!(value instanceof QuantizedTensor)) return 1;
  const { quantizer, tile } = value.spec;
  const { multiple } = blockFormat(quantizer);
  return isTensorWide(tile) ? multiple : Math.max(multiple, tileSize(tile)[1]);
}

/** Returns the least common multiple. */
function common(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y > 0) [x, y] = [y, x % y];
  return (a / x) * b;
}

export class ShardedParameter implements Sharding {
  readonly group: ProcessGroup;
  readonly shape: Shape;
  readonly rows: readonly number[];
  readonly own: Value;
  /** One entry for each running use: whether an operation read the handle during that use. */
  readonly #lent: boolean[] = [];
  readonly #ops: Quantizer | undefined;
  readonly #parameter: Parameter;
  /** The handle of the whole parameter. It has memory only while the parameter is used. */
  #whole: Tensor | undefined;
  #wholeQuantized: QuantizedTensor | undefined;
  /** The gradient of this rank's rows from earlier passes, while a gradient of the whole parameter is accumulated. */
  #earlier: Tensor<WideDType> | undefined;
  /** Whether the parameter's `grad` is already reduced to this rank's rows. */
  #isReduced = false;

  /** Copies this rank's rows. The parameter is not changed. If it is quantized, its quantizer must be known. */
  constructor(
    parameter: Parameter,
    { group, rowMultiple }: { readonly group: ProcessGroup; readonly rowMultiple: number },
  ) {
    const { value, shape } = parameter;
    this.group = group;
    this.#parameter = parameter;
    this.shape = shape;
    this.rows = rowsOfRanks(shape[0] ?? 1, group.size, common(rowMultiple, blockRows(value)));
    const [first, count] = [this.firstRow, this.rows[group.rank] as number];
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

  enter(lent: boolean): void {
    this.#lent.push(false);
    if (lent) this.borrow();
  }

  leave(): boolean {
    const lent = this.#lent.pop() === true;
    if (!this.inUse) this.#free();
    return lent;
  }

  lend(): Value {
    this.#lent[this.#lent.length - 1] = true;
    return this.borrow();
  }

  borrow(): Value {
    if (!this.inUse) return this.own;
    return this.own instanceof QuantizedTensor ? this.#quantizedWhole(this.own) : this.#wideWhole(this.own);
  }

  #quantizedWhole(own: QuantizedTensor): QuantizedTensor {
    const usage = { rowwise: own.rowwise !== undefined, columnwise: own.rowwise === undefined };
    this.#wholeQuantized ??= persistent(
      gatherQuantized(this.group, own, usage, this.#ops as Quantizer, this.rows),
    );
    return this.#wholeQuantized;
  }

  #wideWhole(own: Tensor): Tensor {
    if (this.#whole && !this.#whole.disposed) return this.#whole;
    using scope = new Scope();
    const gathered = this.whole(own);
    if (this.#whole) this.#whole[REVIVE](gathered);
    else this.#whole = persistent(scope.keep(gathered));
    return this.#whole;
  }

  /** Gathers a tensor in the parameter's whole shape from the rows `own` of every rank. */
  whole<T extends Tensor>(own: T): T {
    using scope = new Scope();
    const all = this.group.allGather(own, { rows: this.rows });
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

  /**
   * Replaces the gradient of the whole parameter, which the pass has completed, by this rank's rows of its reduction over all
   * ranks.
   */
  reduceGrad({ plan, isMean }: { readonly plan: SumOrder | undefined; readonly isMean: boolean }): void {
    const { grad } = this.#parameter;
    if (!grad || this.#isReduced) return;
    using scope = new Scope();
    const { size, rank } = this.group;
    const all = this.rows.reduce((total, count) => total + count, 0);
    const { rows } = this;
    const sum = this.group.reduceScatter(grad.reshape(this.#shapeOf(all)), { rows, plan });
    if (isMean && rows[rank] !== 0) scaled(sum, 1 / size, { out: sum });
    const total = this.#earlier ? add(this.#earlier, sum) : sum;
    this.#earlier?.dispose();
    this.#earlier = undefined;
    grad.dispose();
    this.#parameter.grad = persistent(scope.keep(total));
    this.#isReduced = true;
  }

  zeroGrad(): void {
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
