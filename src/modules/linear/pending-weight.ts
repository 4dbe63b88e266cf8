/** Pending all-gathers of a quantized weight of which each rank stores some rows. */
import { type QuantizedGather, quantizedGather } from "../../collectives/quantized.js";
import { isDirectionless } from "../../formats/block.js";
import { amaxGroupOf } from "../../quantizers/shard.js";
import type { Recipe } from "../../recipes/recipe.js";
import type { PendingGather, Sharding } from "../../tape/sharding.js";
import { membersOf } from "../../tape/value.js";
import {
  type QuantizedTensor,
  type QuantizerOps,
  type QuantizeSpec,
  ROWWISE,
  type Usage,
} from "../../tensor/quantized.js";
import { adopt } from "../../tensor/scope.js";
import type { Tensor } from "../../tensor/tensor.js";
import { persistent } from "../parameter.js";
import type { RecipeState, RowsQuantization } from "../recipe-state.js";
import { areCompleteBlocks } from "../tensor-parallel/row-operand.js";

/** Makes the open scope the owner of `value`. */
function adoptWeight(value: QuantizedTensor): QuantizedTensor {
  for (const member of membersOf(value)) adopt(member);
  return value;
}

/** The all-gather of quantized rows, in the copies of `usage`. */
export class PendingWeight implements PendingGather {
  #gather: QuantizedGather | undefined;
  #fullWeight: QuantizedTensor | undefined;

  constructor(
    /** This rank's rows. */
    readonly local: QuantizedTensor,
    readonly usage: Usage,
    private readonly sharding: Sharding,
    private readonly quantizer: QuantizerOps,
  ) {}

  requests(): QuantizedGather["requests"] {
    this.#gather = quantizedGather(this.local, this.usage, this.quantizer, this.sharding.rowsPerRank);
    return this.#gather.requests;
  }

  complete(gathered: readonly Tensor[]): void {
    if (this.#gather) this.#fullWeight = persistent(this.#gather.assemble(gathered));
  }

  /** Returns the full weight. The open scope owns it. */
  take(): QuantizedTensor {
    return adoptWeight(this.#fullWeight as QuantizedTensor);
  }

  dispose(): void {
    this.#fullWeight?.dispose();
  }
}

/** Quantizes this rank's rows before the call that uses them, and gathers the full weight for its forward product. */
export class PendingQuantizedWeight implements PendingGather {
  readonly amaxes: PendingGather["amaxes"];
  #local: QuantizedTensor | undefined;
  #gather: PendingWeight | undefined;

  constructor(
    /** The `LinearQuantization` of the layer. */
    readonly quantization: object,
    private readonly values: Tensor,
    /** How the rows are quantized. */
    readonly rows: RowsQuantization,
    private readonly sharding: Sharding,
  ) {
    const { quantizer, delayed } = rows;
    // delayed scaling has its scale already, so the rows can be quantized at once
    if (delayed) this.#local = this.#quantize([]);
    const local = delayed ? [delayed.amax] : quantizer.amaxesOf(values).map(persistent);
    const { shard } = quantizer;
    const group = delayed ? sharding.group : shard && amaxGroupOf(shard);
    this.amaxes = group && local.length > 0 ? { local, group } : undefined;
  }

  #quantize(amaxes: readonly Tensor<"f32">[]): QuantizedTensor {
    const { quantizer, columnwise } = this.rows;
    const usage = { rowwise: true, columnwise: columnwise && !isDirectionless(quantizer.spec) };
    return persistent(quantizer.setUsage(usage).quantizeBy(this.values, amaxes));
  }

  requests(): QuantizedGather["requests"] {
    this.#local ??= this.#quantize(this.amaxes?.local ?? []);
    this.#gather = new PendingWeight(this.#local, ROWWISE, this.sharding, this.rows.quantizer);
    return this.#gather.requests();
  }

  complete(gathered: readonly Tensor[]): void {
    this.#gather?.complete(gathered);
  }

  /** Returns this rank's rows and the full weight. The open scope owns both. */
  take(): { readonly local: QuantizedTensor; readonly fullWeight: QuantizedTensor } {
    const [local, gather] = [this.#local as QuantizedTensor, this.#gather as PendingWeight];
    this.#local = undefined;
    this.#gather = undefined;
    this.#freeAmaxes();
    return { local: adoptWeight(local), fullWeight: gather.take() };
  }

  dispose(): void {
    this.#local?.dispose();
    this.#gather?.dispose();
    this.#freeAmaxes();
    this.rows.delayed?.amax.dispose();
  }

  /** Frees the amaxes, except under delayed scaling: there `recordAmax` or `dispose` frees the amax. */
  #freeAmaxes(): void {
    if (!this.rows.delayed) for (const each of this.amaxes?.local ?? []) each.dispose();
  }
}

/** Whether each rank may quantize its rows of a weight separately: see `LinearQuantization.quantizesRows`. */
export function canQuantizeRows({ kind }: Recipe, spec: QuantizeSpec, { rowsPerRank }: Sharding): boolean {
  return kind !== "custom" && !spec.stochastic && areCompleteBlocks(spec, rowsPerRank);
}

/** Returns the operations of a quantized parameter's rows. They reduce the amax over ranks after each quantization. */
export function rowsQuantizer(state: RecipeState, sharding: Sharding): QuantizerOps {
  const quantizer = state.weightQuantizer(sharding);
  return {
    dequantize: (t, dtype) => quantizer.dequantize(t, dtype),
    deriveColumnwise: (t) => quantizer.deriveColumnwise(t),
    updateQuantized(source, t, call) {
      quantizer.updateQuantized(source, t, call);
      state.reduceWeightAmax(sharding);
    },
  };
}
