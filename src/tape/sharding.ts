/** The interface of a sharded parameter, as `fullyShard` implements it and as layers, optimizers and the tape call it. */
import type { GatherRequest, ProcessGroup } from "../collectives/group.js";
import type { AmaxReductionGroup } from "../quantizers/shard.js";
import type { Shape } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { UseHooks } from "./uses.js";
import type { Value } from "./value.js";

/** A pending all-gather of a sharded parameter, or of a quantized copy of it. */
export interface PendingGather {
  /** The amaxes of this rank's rows. They are reduced over `group`, in place, before `requests` is called. */
  readonly amaxes?:
    | { readonly local: readonly Tensor<"f32">[]; readonly group: AmaxReductionGroup }
    | undefined;
  /** Returns the tensors that this rank sends. */
  requests(): readonly GatherRequest[];
  /** Assembles the full tensor from the gathered tensors, one for each request. The caller disposes of the gathered tensors. */
  complete(gathered: readonly Tensor[]): void;
  /** Frees the full tensor, unless it was taken. */
  dispose(): void;
}

/** Starts an all-gather. Returns undefined if the tensor to gather is not known yet. */
export type StartGather = () => PendingGather | undefined;

/** A parameter of which each rank stores some rows. Its hooks unshard and reshard it around each operation that uses it. */
export interface Sharding extends UseHooks {
  /** The ranks among which the parameter is divided. */
  readonly group: ProcessGroup;
  /** The shape of the full parameter. */
  readonly fullShape: Shape;
  /** The number of rows of each rank. A scalar counts as one row. */
  readonly rowsPerRank: readonly number[];
  /** The index of this rank's first row. */
  readonly firstRow: number;
  /** This rank's rows. */
  readonly localValue: Value;
  /** Whether an operation that uses the parameter is running. `Parameter.value` is then the full parameter. */
  readonly inUse: boolean;
  /** Returns the full parameter, and gathers it if it is not resident. The running operation may keep the handle. */
  unshard(): Value;
  /**
   * Registers an all-gather to prefetch: before the next run of the running operation (`operation`), or before the backward run
   * that belongs to this forward run (`backward`).
   */
  registerGather(start: StartGather, before: "operation" | "backward"): void;
  /**
   * Takes the all-gather that was prefetched for the running operation and that `matches` accepts. Undefined if there is none.
   */
  takePrefetched<G extends PendingGather>(matches: (pending: PendingGather) => pending is G): G | undefined;
  /** Discards prefetched all-gathers. Call it when this rank's rows change. */
  discardPrefetched(): void;
  /** Frees the gradient of earlier passes, which is not in the parameter's `grad`, and discards prefetched all-gathers. */
  zeroGrad(): void;
  /** Whether layers have added gradients to `fullMainGrad` that are not reduced yet. */
  readonly hasFullMainGrad: boolean;
  /**
   * Returns the f32 tensor in the full shape to which layers add gradients, until it is reduced and added to the rows in
   * `mainGrad`. It is zero at first. If the layer `overwrites` it, the reduced gradient overwrites `mainGrad`.
   */
  fullMainGrad(overwrites: boolean): Tensor<"f32">;
  /** Frees the gradients that `fullMainGrad` has accumulated. */
  clearMainGrad(): void;
  /** Frees this rank's rows and the full parameter. */
  dispose(): void;
}
