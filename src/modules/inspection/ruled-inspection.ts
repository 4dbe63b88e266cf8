/** The inspection of one layer: it replaces the quantizers of tensors, and observes each quantization. */
import { ArgumentError } from "../../errors.js";
import { hasGivenScale } from "../../formats/block.js";
import { copyQuantizersOf, quantizerOfCopies, replaceCodes } from "../../quantizers/copies.js";
import { FakeQuantizer } from "../../quantizers/fake.js";
import { Float8CurrentScalingQuantizer } from "../../quantizers/float8.js";
import { type CopyQuantizer, IdentityQuantizer } from "../../quantizers/hybrid.js";
import { ObservedQuantizer, type QuantizationObserver } from "../../quantizers/observed.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { OperandQuantizer } from "../../recipes/role.js";
import { type Product, passOf, type Role } from "../../recipes/table.js";
import { DIRECTIONS, type Direction, type QuantizedTensor } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { currentPhase } from "../recompute-phase.js";
import type { LayerInspection } from "./layer-inspection.js";
import { INSPECTED_TENSORS, type InspectedTensor, type ProductChange } from "./rules.js";

/** Receives the copies that a layer makes of its tensors. */
export interface LayerObserver {
  isActive(tensor: InspectedTensor): boolean;
  record(
    tensor: InspectedTensor,
    direction: Direction,
    quantized: QuantizedTensor,
    source: Tensor<WideDType>,
  ): void;
}

/** The product that reads a copy of a tensor. */
const READERS: Readonly<Record<InspectedTensor, Readonly<Record<Direction, Product>>>> = {
  input: { rowwise: "fprop", columnwise: "wgrad" },
  weight: { rowwise: "fprop", columnwise: "dgrad" },
  gradOutput: { rowwise: "dgrad", columnwise: "wgrad" },
};

function isInspected(role: Role): role is InspectedTensor {
  return (INSPECTED_TENSORS as readonly Role[]).includes(role);
}

/** The inspection of a layer by rules. */
export class RuledInspection implements LayerInspection {
  readonly #quantizers = new WeakMap<Quantizer, Map<Role, Quantizer>>();
  readonly #scaledQuantizers = new WeakMap<Quantizer, Quantizer>();
  readonly #operands = new WeakMap<OperandQuantizer, Map<Role, OperandQuantizer>>();

  constructor(
    private readonly layer: string,
    readonly disables: boolean,
    private readonly changes: ReadonlyMap<Product, ProductChange>,
    /** Undefined if nothing of the layer is logged. */
    private readonly observer: LayerObserver | undefined,
  ) {}

  operand(role: Role, quantizer: OperandQuantizer): OperandQuantizer {
    if (!isInspected(role)) return quantizer;
    return memoize(this.#operands, quantizer, role, () => this.#operandOf(role, quantizer));
  }

  observed(role: Role, quantizer: Quantizer): Quantizer {
    const { observer } = this;
    if (!observer || !isInspected(role)) return quantizer;
    return memoize(
      this.#quantizers,
      quantizer,
      role,
      () => new ObservedQuantizer(quantizer, observerOf(observer, role)),
    );
  }

  #operandOf(role: InspectedTensor, quantizer: OperandQuantizer): OperandQuantizer {
    const { rowwiseQuantizer, columnwiseQuantizer, columnwiseSource } = copyQuantizersOf(quantizer);
    return quantizerOfCopies({
      rowwiseQuantizer: this.#copy(role, "rowwise", rowwiseQuantizer),
      columnwiseQuantizer: this.#copy(role, "columnwise", columnwiseQuantizer),
      columnwiseSource,
    });
  }

  /** Returns the replacement of `copy`, the quantizer of one copy. */
  #copy(role: InspectedTensor, direction: Direction, copy: CopyQuantizer): CopyQuantizer {
    const { feature, tensors = [] } = this.changes.get(READERS[role][direction]) ?? {};
    const changes = tensors.includes(role);
    return replaceCodes(copy, (codes) => {
      if (feature === "PerTensorScaling")
        return this.observed(role, changes ? this.#currentScaling(codes) : codes);
      const quantizer = this.observed(role, codes);
      if (!feature) return quantizer;
      return changes ? new FakeQuantizer(quantizer) : new IdentityQuantizer();
    });
  }

  #currentScaling(quantizer: Quantizer): Quantizer {
    const { spec, shard } = quantizer;
    if (!hasGivenScale(spec))
      throw new ArgumentError(
        `Inspector: PerTensorScaling of ${this.layer} replaces the scales of delayed scaling, and the recipe quantizes by ${spec.quantizer}; use it under DelayedScaling`,
      );
    const scaledQuantizer =
      this.#scaledQuantizers.get(quantizer) ??
      new Float8CurrentScalingQuantizer({ format: spec.format, shard });
    this.#scaledQuantizers.set(quantizer, scaledQuantizer);
    return scaledQuantizer;
  }
}

/** Returns the entry of a quantizer and a role, which is created at its first use. */
function memoize<Q extends object, R>(
  entries: WeakMap<Q, Map<Role, R>>,
  quantizer: Q,
  role: Role,
  create: () => R,
): R {
  const roles = entries.get(quantizer) ?? new Map<Role, R>();
  entries.set(quantizer, roles);
  const entry = roles.get(role) ?? create();
  roles.set(role, entry);
  return entry;
}

function observerOf(observer: LayerObserver, tensor: InspectedTensor): QuantizationObserver {
  return {
    isActive: () => observer.isActive(tensor),
    record(quantized, source) {
      // the second run of a recomputed region makes the rowwise copies of the first run again
      const repeats = passOf(tensor) === "forward" && currentPhase()?.pass === "again";
      for (const direction of DIRECTIONS)
        if (quantized[direction] && !(repeats && direction === "rowwise"))
          observer.record(tensor, direction, quantized, source);
    },
  };
}
