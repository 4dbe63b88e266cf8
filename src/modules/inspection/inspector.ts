/** Statistics and changes of the quantization of single layers, for debugging. */
import { guardReceivers, isObject } from "../../brand.js";
import { ArgumentError, DisposedError } from "../../errors.js";
import type { BlockFormatName } from "../../formats/block.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { instance, integer, optionsOf } from "../../options.js";
import { PRODUCTS, type Product } from "../../recipes/table.js";
import type { Direction, QuantizedTensor } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { AttentionLayerQuantization } from "../attention/quantization.js";
import { matchingLayers, type NamedLayer } from "../layer-names.js";
import { LayerQuantization } from "../layer-quantization.js";
import { LAYER_INSPECTION } from "../layer-region.js";
import { Module } from "../module.js";
import { readCopy } from "./copy-values.js";
import type { LayerInspection } from "./layer-inspection.js";
import { type LayerObserver, RuledInspection } from "./ruled-inspection.js";
import {
  checkRules,
  INSPECTED_TENSORS,
  type InspectedTensor,
  type InspectionRule,
  type LogTensorStats,
  type ProductChange,
  productChanges,
} from "./rules.js";
import { requiredReads, STATISTIC_NAMES, type StatisticValues, TensorStatistics } from "./statistics.js";

/** Options of `Inspector`. All fields are optional. */
export interface InspectorOptions {
  /** The number of the first step. Default 0. */
  readonly step?: number | undefined;
}

/** The statistics of one copy of a tensor of a layer in one step. */
export interface TensorRecord {
  /** The number of the step. */
  readonly step: number;
  /** The name of the layer: its key in `namedQuantizations` of the module. */
  readonly layer: string;
  /** The tensor in the layer. */
  readonly tensor: InspectedTensor;
  /** The copy whose codes were compared with the tensor. */
  readonly copy: Direction;
  /** The quantizer of the tensor: a key of `BLOCK_FORMATS`. */
  readonly quantizer: BlockFormatName;
  /** The element format. */
  readonly format: ScalarFormat;
  /** The number of elements of all calls of the layer in the step or, for a weight, of the last call. */
  readonly elements: number;
  /** The number of elements that were NaN or infinite before quantization. No statistic but `overflow` counts them. */
  readonly nonFinite: number;
  /** The statistics that the rule names. */
  readonly stats: StatisticValues;
}

const checkOptions = optionsOf<InspectorOptions>({ step: integer(0) });
const requireModule = instance(Module, "a module");

/** The rules that apply to one layer, combined. */
interface LayerRules {
  disables: boolean;
  readonly changes: Map<Product, ProductChange>;
  readonly logs: Map<InspectedTensor, LogTensorStats>;
}

/** The statistics of one copy during a step. */
interface CollectedStatistics {
  readonly head: Omit<TensorRecord, "elements" | "nonFinite" | "stats">;
  readonly log: LogTensorStats;
  readonly statistics: TensorStatistics;
}

/**
 * Debugs the quantization of layers of `module`, as TransformerEngine's features for nvidia-dlfw-inspect do. `LogTensorStats`
 * collects statistics of tensors as layers quantize them; results of the layers are bitwise equal to the results without an
 * inspector. The other features replace quantizers of single products. If several rules apply to a layer and tensor, or to a
 * layer and product, the last rule wins. Rules take effect in autocast regions that are enabled.
 *
 * Statistics cover this rank's tensors of layers that quantize. They are computed on the host, from a copy of the tensor and of
 * its codes: each logged quantization waits for the device, so it cannot be captured as a graph.
 *
 * Of the features, only `DisableFP8Layer` applies to attention.
 *
 * @throws `ArgumentError` for an argument that is not a module, rules that are not a list of `InspectionRule`, a rule that
 * matches no layer or a quantization state that the module defines itself, a rule that changes products of a
 * `LayerQuantization`, a rule without `DisableFP8Layer` that matches only attention, a layer that has an inspector, and an
 * unknown option or an invalid option value. In each case nothing has changed.
 */
export class Inspector {
  static {
    guardReceivers(this, (x) => isObject(x) && #statisticsByKey in x);
  }

  #step: number;
  readonly #layers: readonly NamedLayer[];
  readonly #statisticsByKey = new Map<string, CollectedStatistics>();
  #isDisposed = false;

  constructor(module: Module, rules: readonly InspectionRule[], options: InspectorOptions = {}) {
    const caller = "Inspector";
    requireModule(caller, "module", module);
    const enabledRules = checkRules(caller, rules).filter(({ enabled }) => enabled !== false);
    this.#step = checkOptions(caller, options).step ?? 0;
    const selectedLayers = rulesOfLayers(caller, [...module.namedQuantizations()], enabledRules);
    for (const [[name, state]] of selectedLayers)
      if (state[LAYER_INSPECTION])
        throw new ArgumentError(
          `${caller}: ${name} has an inspector; dispose of it before another one begins`,
        );
    this.#layers = [...selectedLayers.keys()];
    for (const [[name, state], layerRules] of selectedLayers)
      state[LAYER_INSPECTION] = this.#inspection(name, layerRules);
  }

  /** The number of the current step. */
  get step(): number {
    return this.#step;
  }

  /**
   * Ends the step and begins the next one. Returns the statistics of the step, in the order in which tensors were first
   * quantized.
   *
   * @throws `DisposedError` after `dispose`.
   */
  endStep(): readonly TensorRecord[] {
    if (this.#isDisposed) throw new DisposedError("endStep: the inspector");
    const records = [...this.#statisticsByKey.values()].map(({ head, log, statistics }) => ({
      ...head,
      elements: statistics.elements,
      nonFinite: statistics.nonFinite,
      stats: statistics.values(log.stats ?? STATISTIC_NAMES),
    }));
    this.#statisticsByKey.clear();
    this.#step++;
    return records;
  }

  /** Ends the inspection: from their next call on, layers quantize as without an inspector. A second call does nothing. */
  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    for (const [, state] of this.#layers) state[LAYER_INSPECTION] = undefined;
    this.#statisticsByKey.clear();
  }

  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  #inspection(layer: string, { disables, changes, logs }: LayerRules): LayerInspection {
    const observer: LayerObserver = {
      isActive: (tensor) => !this.#isDisposed && isLogged(logs.get(tensor), this.#step),
      record: (tensor, copy, quantized, source) =>
        this.#record({ layer, tensor, copy }, logs.get(tensor) ?? {}, quantized, source),
    };
    return new RuledInspection(layer, disables, changes, logs.size > 0 ? observer : undefined);
  }

  #record(
    tensorKey: Pick<TensorRecord, "layer" | "tensor" | "copy">,
    log: LogTensorStats,
    quantized: QuantizedTensor,
    source: Tensor<WideDType>,
  ): void {
    const { quantizer, format } = quantized.spec;
    const head = { step: this.#step, ...tensorKey, quantizer, format };
    const values = readCopy(quantized, tensorKey.copy, source, requiredReads(log.stats ?? STATISTIC_NAMES));
    const key = JSON.stringify(head);
    const previous = tensorKey.tensor === "weight" ? undefined : this.#statisticsByKey.get(key);
    const entry = previous ?? { head, log, statistics: new TensorStatistics() };
    entry.statistics.add(values);
    this.#statisticsByKey.set(key, entry);
  }
}

/** Whether a step is logged. */
function isLogged(log: LogTensorStats | undefined, step: number): boolean {
  if (!log) return false;
  const { startStep = 0, endStep = Number.POSITIVE_INFINITY, freq = 1 } = log;
  return step >= startStep && step < endStep && (step - startStep) % freq === 0;
}

/** Returns the combined rules of each layer that a rule matches. */
function rulesOfLayers(
  caller: string,
  layers: Parameters<typeof matchingLayers>[1],
  rules: readonly InspectionRule[],
): ReadonlyMap<NamedLayer, LayerRules> {
  const rulesByLayer = new Map<NamedLayer[1], readonly [NamedLayer, LayerRules]>();
  for (const rule of rules) {
    const changes = productChanges(rule);
    const matches = rule.layers.flatMap((pattern) => matchingLayers(caller, layers, pattern));
    const isOnlyAttention =
      matches.length > 0 && matches.every(([, state]) => state instanceof AttentionLayerQuantization);
    if (isOnlyAttention && !rule.DisableFP8Layer)
      throw new ArgumentError(
        `${caller}: a rule for ${rule.layers.join(", ")} matches only attention, which takes DisableFP8Layer; give that, or name linear layers`,
      );
    for (const layer of matches) {
      const [name, state] = layer;
      if (changes.length > 0 && state instanceof LayerQuantization)
        throw new ArgumentError(
          `${caller}: ${name} is a LayerQuantization, whose module multiplies what its quantizers return; it takes LogTensorStats and DisableFP8Layer only`,
        );
      const entry = rulesByLayer.get(state) ?? [
        layer,
        { disables: false, changes: new Map(), logs: new Map() },
      ];
      rulesByLayer.set(state, entry);
      addRule(entry[1], rule, changes);
    }
  }
  return new Map(rulesByLayer.values());
}

function addRule(layerRules: LayerRules, rule: InspectionRule, changes: readonly ProductChange[]): void {
  const { LogTensorStats: log, DisableFP8Layer: disable } = rule;
  if (disable) layerRules.disables = true;
  for (const change of changes)
    for (const product of PRODUCTS)
      if (change.gemms.includes(product)) layerRules.changes.set(product, change);
  if (log) for (const tensor of log.tensors ?? INSPECTED_TENSORS) layerRules.logs.set(tensor, log);
}
