/** A quantized weight that is brought from other ranks before the operation that needs it runs. */
import { type QuantizedGather, quantizedGather } from "../../collectives/quantized.js";
import { isDirectionless } from "../../formats/block.js";
import { membersOf } from "../../tape/value.js";
import { type QuantizedTensor, type QuantizerOps, ROWWISE, type Usage } from "../../tensor/quantized.js";
import { adopt } from "../../tensor/scope.js";
import type { Tensor } from "../../tensor/tensor.js";
import { persistent } from "../parameter.js";
import type { EarlyQuantization } from "../recipe-in-force.js";
import type { Bringing, Sharding } from "../sharding.js";

/** Makes the open scope the owner of what a bringing gives away. */
function given(value: QuantizedTensor): QuantizedTensor {
  for (const member of membersOf(value)) adopt(member);
  return value;
}

/** All rows of `own`, in copies of `usage`. */
export class WholeWeight implements Bringing {
  #gather: QuantizedGather | undefined;
  #whole: QuantizedTensor | undefined;

  constructor(
    readonly own: QuantizedTensor,
    readonly usage: Usage,
    private readonly sharding: Sharding,
    private readonly ops: QuantizerOps,
  ) {}

  requests(): QuantizedGather["requests"] {
    this.#gather = quantizedGather(this.own, this.usage, this.ops, this.sharding.rows);
    return this.#gather.requests;
  }

  arrive(gathered: readonly Tensor[]): void {
    if (this.#gather) this.#whole = persistent(this.#gather.whole(gathered));
  }

  /** The whole, which the open scope then owns. */
  whole(): QuantizedTensor {
    return given(this.#whole as QuantizedTensor);
  }

  dispose(): void {
    this.#whole?.dispose();
  }
}

/** The rows of a weight, quantized before the call that needs them, and the whole for its forward product. */
export class EarlyWeight implements Bringing {
  readonly amaxes: Bringing["amaxes"];
  #own: QuantizedTensor | undefined;
  #whole: WholeWeight | undefined;
  readonly #early: EarlyQuantization;

  constructor(
    /** The quantization of the product. */
    readonly of: object,
    private readonly values: Tensor,
    early: EarlyQuantization,
    private readonly sharding: Sharding,
  ) {
    this.#early = early;
    const { quantizer, delayed } = early;
    // codes by a given scale are there at once
    if (delayed) this.#own = this.#quantized([]);
    const own = delayed ? [delayed.amax] : quantizer.amaxesOf(values).map(persistent);
    const group = delayed ? sharding.group : quantizer.shard?.group;
    this.amaxes = group && own.length > 0 ? { own, group } : undefined;
  }

  /** How the rows were quantized. */
  get early(): EarlyQuantization {
    return this.#early;
  }

  #quantized(amaxes: readonly Tensor<"f32">[]): QuantizedTensor {
    const { quantizer, columnwise } = this.#early;
    const usage = { rowwise: true, columnwise: columnwise && !isDirectionless(quantizer.spec) };
    return persistent(quantizer.setUsage(usage).quantizeBy(this.values, amaxes));
  }

  requests(): QuantizedGather["requests"] {
    this.#own ??= this.#quantized(this.amaxes?.own ?? []);
    this.#whole = new WholeWeight(this.#own, ROWWISE, this.sharding, this.#early.quantizer);
    return this.#whole.requests();
  }

  arrive(gathered: readonly Tensor[]): void {
    this.#whole?.arrive(gathered);
  }

  /** This rank's rows and the whole, which the open scope then owns. */
  taken(): { readonly own: QuantizedTensor; readonly whole: QuantizedTensor } {
    const [own, whole] = [this.#own as QuantizedTensor, this.#whole as WholeWeight];
    this.#own = undefined;
    this.#whole = undefined;
    this.#free();
    return { own: given(own), whole: whole.whole() };
  }

  dispose(): void {
    this.#own?.dispose();
    this.#whole?.dispose();
    this.#free();
    this.#early.delayed?.amax.dispose();
  }

  #free(): void {
    if (!this.#early.delayed) for (const each of this.amaxes?.own ?? []) each.dispose();
  }
}
