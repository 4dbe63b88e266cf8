/** A parameter whose rows are divided among ranks. The full parameter is resident only while an operation uses it. */
import type { GatherRequest, ProcessGroup } from "../../collectives/group.js";
import { quantizedGather, rowsOfQuantized } from "../../collectives/quantized.js";
import { blockFormat, isLineWide, isTensorWide, tileSize } from "../../formats/block.js";
import { type Parameter, persistent, type WeightQuantizer } from "../../modules/parameter.js";
import { zeros } from "../../ops/create.js";
import { add } from "../../ops/elementwise/operators.gen.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { PendingGather, Sharding, StartGather } from "../../tape/sharding.js";
import type { Operation } from "../../tape/uses.js";
import { membersOf, type Value } from "../../tape/value.js";
import { rowsOfPart, type TensorPart, wholePart } from "../../tensor/part.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { adopt, Scope } from "../../tensor/scope.js";
import { asMatrix, elementCount, type Shape, type WideDType } from "../../tensor/shape.js";
import { REVIVE, type Tensor } from "../../tensor/tensor.js";
import type { Prefetch } from "./prefetch.js";

/**
 * Divides rows among `size` ranks. All ranks get the same number, except the last ranks, which get fewer or no rows, as with
 * `torch.chunk`. Each number is a multiple of `multiple`, except the last nonzero number.
 */
function divideRows(rows: number, size: number, multiple: number): readonly number[] {
  const perRank = Math.max(1, Math.ceil(Math.ceil(rows / size) / multiple)) * multiple;
  return Array.from({ length: size }, (_, rank) => Math.min(perRank, Math.max(0, rows - perRank * rank)));
}

/** Returns the number of rows in a block of a quantized weight, which must stay on one rank, or 1 for other values. */
export function blockRows(value: Value): number {
  if (!(value instanceof QuantizedTensor)) return 1;
  const { quantizer, tile } = value.spec;
  const { multiple } = blockFormat(quantizer);
  if (isLineWide(tile)) return Math.max(1, asMatrix(value.shape)[0]);
  return isTensorWide(tile) ? multiple : Math.max(multiple, tileSize(tile)[1]);
}

function leastCommonMultiple(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y > 0) [x, y] = [y, x % y];
  return (a / x) * b;
}

/** How `fullyShard` shards a parameter. */
export interface ShardOptions {
  /** The name of the parameter in the module. */
  readonly name: string;
  readonly group: ProcessGroup;
  /** The option `rowMultiple` of `fullyShard`. */
  readonly rowMultiple: number;
  /** The prefetcher, which all parameters of the module share. */
  readonly prefetch: Prefetch;
}

/** The tensors that an all-gather of a parameter exchanges, and how they form the full parameter. */
interface GatherPlan {
  readonly requests: readonly GatherRequest[];
  readonly assemble: (gathered: readonly Tensor[]) => Value;
}

/** A prefetched all-gather of a parameter in its own dtype, or of its codes and scales if it is quantized. */
class PendingParameter implements PendingGather {
  #assemble: GatherPlan["assemble"] | undefined;
  #fullValue: Value | undefined;

  constructor(readonly parameter: ShardedParameter) {}

  requests(): readonly GatherRequest[] {
    const { requests, assemble } = this.parameter.gatherPlan();
    this.#assemble = assemble;
    return requests;
  }

  complete(gathered: readonly Tensor[]): void {
    this.#fullValue = this.#assemble && persistent(this.#assemble(gathered));
  }

  /** Returns the full parameter. The open scope owns it. */
  take(): Value {
    const fullValue = this.#fullValue as Value;
    for (const member of membersOf(fullValue)) adopt(member);
    return fullValue;
  }

  dispose(): void {
    this.#fullValue?.dispose();
  }
}

/** This rank's rows of a parameter. It unshards the parameter when an operation begins to read it, and reshards it afterwards. */
export class ShardedParameter implements Sharding {
  readonly name: string;
  readonly group: ProcessGroup;
  /** The position of this rank's rows in the full parameter. Tensor parallelism may have divided that parameter before. */
  readonly part: TensorPart;
  readonly fullShape: Shape;
  readonly rowsPerRank: readonly number[];
  readonly localValue: Value;
  /**
   * For each running use of the parameter: whether the operation has called `unshard`, so that the operation may keep the handle.
   */
  readonly #handleReads: boolean[] = [];
  readonly #quantizer: Quantizer | undefined;
  readonly #parameter: Parameter;
  readonly #prefetch: Prefetch;
  readonly #startGather: StartGather = () => new PendingParameter(this);
  /** The handle of the full parameter. Operations may keep it; it has memory only while the parameter is used. */
  #fullTensor: Tensor | undefined;
  #fullQuantized: QuantizedTensor | undefined;
  /** The reduced gradient of earlier passes. Set while `grad` accumulates the full gradient of the current pass. */
  #earlierGrad: Tensor<WideDType> | undefined;
  /** Whether the parameter's `grad` is reduced to this rank's rows. */
  #isReduced = false;
  #fullMainGrad: Tensor<"f32"> | undefined;
  /** Whether the reduced gradient overwrites `mainGrad`, because a first microbatch has overwritten `#fullMainGrad`. */
  #overwritesMainGrad = false;

  /** Copies this rank's rows. The parameter is not changed. A quantized parameter must have a `quantizer`. */
  constructor(parameter: Parameter, { name, group, rowMultiple, prefetch }: ShardOptions) {
    const { value, shape } = parameter;
    this.name = name;
    this.group = group;
    this.#prefetch = prefetch;
    prefetch.addLeaf(this);
    this.#parameter = parameter;
    this.fullShape = shape;
    const multiple = leastCommonMultiple(rowMultiple, blockRows(value));
    this.rowsPerRank = divideRows(shape[0] ?? 1, group.size, multiple);
    const [first, count] = [this.firstRow, this.rowsPerRank[group.rank] as number];
    const fullPart = parameter.part ?? wholePart(shape.length === 0 ? [1] : shape);
    this.part = rowsOfPart(fullPart, [first, first + count]);
    using scope = new Scope();
    if (value instanceof QuantizedTensor) {
      const quantizer = (parameter.quantizer as WeightQuantizer)(this);
      this.#quantizer = quantizer;
      this.localValue = persistent(scope.keep(rowsOfQuantized(value, { first, count }, quantizer)));
    } else {
      const rows = value.slice(first * this.rowSize, [count, ...shape.slice(1)]);
      this.localValue = persistent(scope.keep(rows));
    }
  }

  /** The number of elements of a row. */
  get rowSize(): number {
    return elementCount(this.fullShape.slice(1));
  }

  /** The index of this rank's first row. */
  get firstRow(): number {
    return this.rowsPerRank.slice(0, this.group.rank).reduce((total, count) => total + count, 0);
  }

  /** The number of elements of each rank's rows. */
  get elementsPerRank(): readonly number[] {
    return this.rowsPerRank.map((count) => count * this.rowSize);
  }

  get inUse(): boolean {
    return this.#handleReads.length > 0;
  }

  beforeUse(retained: boolean, operation: Operation): void {
    this.#handleReads.push(false);
    this.#prefetch.beforeUse(operation);
    if (retained) this.transientValue();
  }

  afterUse(operation: Operation): boolean {
    const readHandle = this.#handleReads.pop() === true;
    if (!this.inUse) this.#reshard();
    this.#prefetch.afterUse(operation);
    return readHandle;
  }

  registerGather(start: StartGather, before: "operation" | "backward"): void {
    this.#prefetch.registerGather(start, before);
  }

  takePrefetched<G extends PendingGather>(matches: (pending: PendingGather) => pending is G): G | undefined {
    return this.#prefetch.takePrefetched(matches);
  }

  discardPrefetched(): void {
    this.#prefetch.discard();
  }

  unshard(): Value {
    this.#handleReads[this.#handleReads.length - 1] = true;
    return this.transientValue();
  }

  transientValue(): Value {
    if (!this.inUse) return this.localValue;
    this.registerGather(this.#startGather, "operation");
    return this.localValue instanceof QuantizedTensor ? this.#unshardQuantized() : this.#unshardTensor();
  }

  /** Returns the tensors that this rank sends, and how all ranks' tensors form the full parameter. */
  gatherPlan(): GatherPlan {
    const { localValue, rowsPerRank: rows } = this;
    if (localValue instanceof QuantizedTensor) {
      const rowwise = localValue.rowwise !== undefined;
      const usage = { rowwise, columnwise: !rowwise };
      return quantizedGather(localValue, usage, this.#quantizer as Quantizer, rows);
    }
    return {
      requests: [{ x: localValue, rows }],
      assemble: ([gathered]) => (gathered as Tensor).reshape(this.fullShape),
    };
  }

  /** Returns the full parameter, prefetched or gathered now. The open scope owns it. */
  #waitForUnshard(): Value {
    const pending = this.takePrefetched(
      (each): each is PendingParameter => each instanceof PendingParameter && each.parameter === this,
    );
    if (pending) return pending.take();
    const { requests, assemble } = this.gatherPlan();
    return assemble(this.group.withSubject(this.name, () => this.group.allGatherCoalesced(requests)));
  }

  #unshardQuantized(): QuantizedTensor {
    if (this.#fullQuantized) return this.#fullQuantized;
    using scope = new Scope();
    this.#fullQuantized = persistent(scope.keep(this.#waitForUnshard() as QuantizedTensor));
    return this.#fullQuantized;
  }

  #unshardTensor(): Tensor {
    if (this.#fullTensor && !this.#fullTensor.disposed) return this.#fullTensor;
    using scope = new Scope();
    const gatheredTensor = this.#waitForUnshard() as Tensor;
    if (this.#fullTensor) this.#fullTensor[REVIVE](gatheredTensor);
    else this.#fullTensor = persistent(scope.keep(gatheredTensor));
    return this.#fullTensor;
  }

  /** Frees the full parameter. */
  #reshard(): void {
    this.#fullTensor?.dispose();
    this.#fullQuantized?.dispose();
    this.#fullQuantized = undefined;
  }

  /** Gathers a tensor in the parameter's full shape. `local` has this rank's rows of the tensor. */
  gatherRows<T extends Tensor>(local: T): T {
    using scope = new Scope();
    const { group, rowsPerRank: rows } = this;
    const gatheredTensor = group.withSubject(this.name, () => group.allGather(local, { rows }));
    return scope.keep(gatheredTensor.reshape(this.fullShape)) as T;
  }

  beforeAccumulate(): void {
    const { grad } = this.#parameter;
    const isReduced = this.#isReduced;
    this.#isReduced = false;
    if (!grad || !isReduced) return;
    // `grad` has this rank's rows; the pass now accumulates a full gradient, and these rows are added after its reduction
    this.#earlierGrad = grad;
    this.#parameter.grad = undefined;
  }

  /** Whether the parameter has a gradient of the full parameter that is not reduced yet. */
  get hasFullGrad(): boolean {
    return this.#fullGrad !== undefined || this.hasFullMainGrad;
  }

  /** The parameter's `grad`, if it is the gradient of the full parameter. */
  get #fullGrad(): Tensor<WideDType> | undefined {
    return this.#isReduced ? undefined : this.#parameter.grad;
  }

  get hasFullMainGrad(): boolean {
    return this.#parameter.mainGrad !== undefined && this.#fullMainGrad !== undefined;
  }

  fullMainGrad(overwrites: boolean): Tensor<"f32"> {
    this.#fullMainGrad ??= persistent(zeros(this.localValue.backend, "f32", this.fullShape));
    this.#overwritesMainGrad ||= overwrites;
    return this.#fullMainGrad;
  }

  clearMainGrad(): void {
    this.#fullMainGrad?.dispose();
    this.#fullMainGrad = undefined;
    this.#overwritesMainGrad = false;
  }

  /**
   * Returns the gradient of the full parameter. If the parameter has a `mainGrad`, its gradient is f32, and a full `grad` is
   * added to it and released. The caller has checked `hasFullGrad`.
   */
  takeFullGrad(): Tensor<WideDType> {
    const grad = this.#fullGrad;
    if (!this.#parameter.mainGrad) return grad as Tensor<WideDType>;
    const mainGrad = this.fullMainGrad(false);
    if (!grad) return mainGrad;
    add(mainGrad, grad, { out: mainGrad });
    grad.dispose();
    this.#parameter.grad = this.#earlierGrad;
    this.#isReduced = this.#earlierGrad !== undefined;
    this.#earlierGrad = undefined;
    return mainGrad;
  }

  /**
   * Replaces the full gradient by this rank's rows of the reduced gradient, added to the gradient of earlier passes. A
   * `mainGrad` is overwritten in place.
   */
  setReducedGrad(reduced: Tensor<WideDType>): void {
    using scope = new Scope();
    const { mainGrad } = this.#parameter;
    if (mainGrad) {
      if (this.#overwritesMainGrad) mainGrad.paste(reduced as Tensor<"f32">, 0);
      else add(mainGrad, reduced, { out: mainGrad });
      this.clearMainGrad();
      return;
    }
    const total = this.#earlierGrad ? add(this.#earlierGrad, reduced) : reduced.reshape(reduced.shape);
    this.#earlierGrad?.dispose();
    this.#earlierGrad = undefined;
    this.#parameter.grad?.dispose();
    this.#parameter.grad = persistent(scope.keep(total));
    this.#isReduced = true;
  }

  zeroGrad(): void {
    // this rank's rows may have changed: a step has ended, or other values were loaded
    this.discardPrefetched();
    this.#earlierGrad?.dispose();
    this.#earlierGrad = undefined;
    this.#isReduced = false;
  }

  dispose(): void {
    this.#reshard();
    this.zeroGrad();
    this.clearMainGrad();
    for (const member of membersOf(this.localValue)) member.dispose();
  }
}
