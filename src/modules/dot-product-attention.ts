/** The module of softmax attention. */
import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError, DTypeError } from "../errors.js";
import { attention } from "../functional/blockwise-attention.js";
import { reshape, transpose } from "../functional/layout.js";
import { quantizedAttention, valuesOfCodes } from "../functional/quantized-attention.js";
import { groupOf } from "../functional/ranks.js";
import { attention as attend, checkedRule } from "../ops/attention/attention.js";
import { type AttentionOptions, checkForward } from "../ops/attention/options.js";
import { integer, isArray, optionsOf } from "../options.js";
import { composed } from "../tape/composed.js";
import { type VariableLike, variableOf } from "../tape/differentiable.js";
import { gradEnabled } from "../tape/grad-mode.js";
import { gradFnOf } from "../tape/node.js";
import { wideOf } from "../tape/value.js";
import { Variable } from "../tape/variable.js";
import { partAlong } from "../tensor/part.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { constantSinks, coreOptions, formatOf, requireHeads } from "./attention/core.js";
import { drawFor } from "./attention/draws.js";
import type { InferenceParams } from "./attention/inference-params.js";
import {
  ATTENTION_OPTIONS,
  type AttentionCall,
  checkAttentionCall,
  type DotProductAttentionOptions,
  type HeadCounts,
  headCounts,
} from "./attention/options.js";
import { type AttentionCallQuantization, AttentionLayerQuantization } from "./attention/quantization.js";
import { Module, requireSizes } from "./module.js";
import { constantInit, newParameter, type Parameter } from "./parameter.js";
import type { QuantizationState } from "./quantization-state.js";
import { recompute } from "./recompute.js";

/** The queries, keys and values, divided into heads. */
export type Heads = readonly [query: Variable, key: Variable, value: Variable];

/** The results of projections that have the heads of an attention. */
export interface ProjectedHeads {
  /** The results, all quantized or none. */
  readonly sources: readonly Variable[];
  /** Divides the values of the results into heads. */
  readonly headsOf: (sources: readonly Variable[]) => Heads;
  /** Whether FP8 attention returns a quantized result. */
  readonly returnsCodes: boolean;
}

const checkOptions = optionsOf(ATTENTION_OPTIONS);
const width = integer(1);

/**
 * Computes softmax(q·kᵀ * scale)·v of each head with the options of TransformerEngine's module of this name. The computation is
 * the operation `attention`, in the dtype of the queries. Under a recipe with `fp8Dpa`, its tensors are quantized, and it
 * consists of several operations, which store all scores (numerics.md §10.9). With `group`, each rank has some of the heads.
 *
 * @throws `ArgumentError` for an unknown option, an invalid option value, a size that is not a positive integer, or numbers of
 * heads that do not divide each other, `DTypeError` for a parameter dtype other than f32, bf16 and f16, `DisposedError` for a
 * disposed backend.
 */
export class DotProductAttention extends Module {
  static {
    guardReceivers(this);
  }

  /** The logit of each head's sink, f32 [1, H, 1, 1], with the softmax type "learnable". Initially 0. */
  readonly softmaxOffset: Parameter | undefined;
  readonly #options: DotProductAttentionOptions;
  readonly #counts: HeadCounts;
  readonly #quantization: AttentionLayerQuantization;
  /** The widths of heads of keys and of values. */
  readonly widths: readonly [keys: number, values: number];
  /** The number of heads of keys and values, on all ranks. */
  readonly numGqaGroups: number;

  constructor(
    backend: Backend,
    /** The number of heads of queries, on all ranks. */
    readonly numAttentionHeads: number,
    /** The width of a head, or the widths of heads of keys and of values. */
    kvChannels: number | readonly [keys: number, values: number],
    options: DotProductAttentionOptions = {},
  ) {
    const ownOptions = checkOptions("DotProductAttention", options);
    super(backend, ownOptions);
    requireSizes("DotProductAttention", { numAttentionHeads });
    const [keys, values] = isArray(kvChannels) ? kvChannels : [kvChannels, kvChannels];
    width("DotProductAttention", "kvChannels", keys);
    width("DotProductAttention", "kvChannels", values);
    this.widths = [keys as number, values as number];
    this.#options = ownOptions;
    const { numGqaGroups: groups = numAttentionHeads, softmaxType } = ownOptions;
    this.numGqaGroups = groups;
    const group = groupOf("DotProductAttention", backend, ownOptions);
    groupOf("DotProductAttention", backend, { group: ownOptions.cpGroup });
    this.#counts = headCounts("DotProductAttention", { heads: numAttentionHeads, groups }, group);
    this.#quantization = new AttentionLayerQuantization(backend, this.random, group);
    if (softmaxType === "learnable") {
      const shape = [1, this.#counts.heads, 1, 1];
      const { random } = this;
      this.softmaxOffset = this.addParameter(
        "softmaxOffset",
        newParameter(backend, shape, constantInit(0), { dtype: "f32", random }),
      );
      if (group) divideHeads(this.softmaxOffset, group, numAttentionHeads);
    }
  }

  /** Returns the quantization state of the attention, under the name `attention`. */
  protected override quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map([["attention", this.#quantization]]);
  }

  /** @internal The recipe by which a call quantizes now. Undefined if attention computes in high precision. */
  get activeRecipe() {
    return this.#quantization.activeRecipe;
  }

  /**
   * Returns the weighted sums of values, with heads and their widths as one dimension: [S, B, H * D], [B, S, H * D] or [T, H *
   * D]. The queries are [S, B, H, D], [B, S, H, D] or [T, H, D], the keys and values the same with their numbers of heads and
   * positions. With `inferenceParams`, the keys and values belong to new positions, and queries attend to all cached positions.
   *
   * @throws `ShapeError` or `DTypeError` for tensors that do not fit, `ArgumentError` for an invalid option value, options that
   * do not go together, a cache outside `noGrad`, options that FP8 attention does not have and tensors on different backends,
   * `UnsupportedError` if the backend has no attention, `DisposedError` for a disposed tensor.
   */
  forward(query: VariableLike, key: VariableLike, value: VariableLike, call: AttentionCall = {}): Variable {
    const caller = "DotProductAttention";
    const ownCall = checkAttentionCall(caller, call);
    const inputs = [
      variableOf(caller, "query", query),
      variableOf(caller, "key", key),
      variableOf(caller, "value", value),
    ] as const;
    for (const [i, name] of (["query", "key", "value"] as const).entries())
      wideOf(`${caller}: ${name}`, (inputs[i] as Variable).value);
    return this.attendTo({ sources: inputs, headsOf: () => inputs, returnsCodes: false }, ownCall);
  }

  /** @internal As `forward`, for heads that are parts of the results of projections. The options have been checked. */
  attendTo(heads: ProjectedHeads, call: AttentionCall): Variable {
    return composed(() => [call.inferenceParams ? this.#cached(heads, call) : this.#attend(heads, call)])[0];
  }

  /** Returns the heads, if they have the sizes of this module. Throws `ShapeError` otherwise. */
  #requireHeads(inputs: Heads): Heads {
    const { heads, groups } = this.#counts;
    const [keyWidth, valueWidth] = this.widths;
    const caller = "DotProductAttention";
    requireHeads(caller, "query", inputs[0].shape, [heads, keyWidth]);
    requireHeads(caller, "key", inputs[1].shape, [groups, keyWidth]);
    requireHeads(caller, "value", inputs[2].shape, [groups, valueWidth]);
    return inputs;
  }

  #attend(heads: ProjectedHeads, call: AttentionCall): Variable {
    if (this.activeRecipe) return this.#attendQuantized(heads, call);
    const options = {
      ...{ ...this.#coreOptions(call), ...this.#dropout(call) },
      ...{ cpGroup: this.#options.cpGroup, cpCommType: this.#options.cpCommType },
    };
    const inputs = this.#requireHeads(heads.headsOf(heads.sources));
    const run = (q: Variable, k: Variable, v: Variable): Variable => mergeHeads(attention(q, k, v, options));
    return call.checkpointCoreAttention ? recompute(run, ...inputs) : run(...inputs);
  }

  #coreOptions(call: AttentionCall) {
    const core = { caller: "DotProductAttention", module: this.#options, call, counts: this.#counts };
    return { ...coreOptions(core, this.backend), ...this.#sinks() };
  }

  /** Attention whose tensors are quantized. Without quantized sources, nothing has changed if it throws. */
  #attendQuantized({ sources, headsOf, returnsCodes }: ProjectedHeads, call: AttentionCall): Variable {
    this.#requireQuantizable(call);
    const { bias, sinks, ...options } = this.#coreOptions(call);
    const ruleOptions = { ...options, ...this.#dropout(call) };
    const variables = { bias: optionalVariable("bias", bias), sinks: optionalVariable("sinks", sinks) };
    const takesCodes = sources.map((source) => gradFnOf(source)?.quantized.gradOutput === true);
    const run = (...results: readonly Variable[]): Variable => {
      const hasCodes = results.some(({ value }) => value instanceof QuantizedTensor);
      const begun = hasCodes ? this.#beginQuantized() : undefined;
      const wide = begun
        ? results.map((result, i) => valuesOfCodes(result, begun, takesCodes[i] === true))
        : results;
      const inputs = this.#requireHeads(headsOf(wide));
      const rule = this.#ruleOf(inputs, ruleOptions, variables);
      const quantization = begun ?? this.#beginQuantized();
      return quantizedAttention({ inputs, ...variables, rule, quantization, hasCodes, returnsCodes });
    };
    return call.checkpointCoreAttention ? recompute(run, ...sources) : run(...sources);
  }

  #beginQuantized(): AttentionCallQuantization {
    return this.#quantization.begin() as AttentionCallQuantization;
  }

  /** Returns the checked arguments of the operation `attention` for these variables. */
  #ruleOf(
    [q, k, v]: Heads,
    options: Omit<AttentionOptions, "bias" | "sinks">,
    { bias, sinks }: Readonly<Record<"bias" | "sinks", Variable | undefined>>,
  ) {
    const caller = "DotProductAttention";
    const wide = (name: string, variable: Variable) => wideOf(`${caller}: ${name}`, variable.value);
    const checkArgs = {
      ...options,
      ...(bias ? { bias: wide("bias", bias) } : {}),
      ...(sinks ? { sinks: wide("sinks", sinks) } : {}),
    };
    const shapes = checkForward(caller, checkArgs);
    return checkedRule(caller, wide("query", q), wide("key", k), wide("value", v), shapes);
  }

  /** Throws `ArgumentError` for options that FP8 attention does not have. */
  #requireQuantizable(call: AttentionCall): void {
    const { cpGroup, softcap } = this.#options;
    const names = [
      (call.softcap ?? softcap ?? 0) > 0 ? "softcap" : undefined,
      (cpGroup?.size ?? 1) > 1 ? "cpGroup" : undefined,
      call.inferenceParams ? "inferenceParams" : undefined,
    ].filter((each) => each !== undefined);
    if (names.length === 0) return;
    throw new ArgumentError(
      `DotProductAttention: fp8Dpa does not go with ${names.join(" and ")}; leave one of them out, or keep this attention in high precision by setLayerRecipes`,
    );
  }

  #sinks() {
    const { heads } = this.#counts;
    if (this.softmaxOffset) return { sinks: reshape(this.softmaxOffset, [heads]) };
    return constantSinks(this.#options.softmaxType ?? "vanilla", heads, this.backend);
  }

  #dropout({ training = true }: AttentionCall) {
    const { attentionDropout: probability = 0 } = this.#options;
    if (probability === 0 || !training) return {};
    const { allHeads, firstHead } = this.#counts;
    return { dropout: { probability, ...drawFor(this, this.random), allHeads, firstHead } };
  }

  /** Attention to cached keys and values. The cache has the format "bshd". */
  #cached({ sources, headsOf }: ProjectedHeads, call: AttentionCall): Variable {
    const caller = "DotProductAttention";
    if (this.activeRecipe) this.#requireQuantizable(call);
    const inputs = this.#requireHeads(headsOf(sources));
    const core = { caller, module: this.#options, call, counts: this.#counts };
    const format = formatOf(core);
    const cache = call.inferenceParams as NonNullable<AttentionCall["inferenceParams"]>;
    if ((this.#options.cpGroup?.size ?? 1) > 1)
      throw new ArgumentError(`${caller}: a cache has all positions; leave out cpGroup or inferenceParams`);
    if (gradEnabled() && inputs.some((each) => each.requiresGrad))
      throw new ArgumentError(`${caller}: cached keys have no gradients; call the layer in noGrad`);
    requireCacheable(inputs, cache);
    const [q, k, v] = inputs.map((input, i) => {
      const batchFirst = format === "sbhd" ? transpose(input, 0, 1) : input;
      const wide = wideOf(`${caller}: ${["query", "key", "value"][i]}`, batchFirst.value);
      return format === "thd" ? cache.padded(wide) : wide;
    }) as [ReturnType<typeof wideOf>, ReturnType<typeof wideOf>, ReturnType<typeof wideOf>];
    const { layout: _, bias, ...own } = coreOptions(core, this.backend);
    if (bias) throw new ArgumentError(`${caller}: a bias does not go with inferenceParams; leave it out`);
    const sinks = this.#sinks().sinks as Variable | undefined;
    const cachedTensors = cache.append(this.#options.layerNumber ?? 1, k, v);
    const { out } = attend(q, cachedTensors.k, cachedTensors.v, {
      ...own,
      ...(sinks ? { sinks: wideOf(caller, variableOf(caller, "sinks", sinks).value) } : {}),
      pages: cachedTensors.pages,
      queryLengths: cachedTensors.queryLengths,
      keyLengths: cachedTensors.keyLengths,
    } as Parameters<typeof attend>[3]);
    if (format === "thd") return mergeHeads(new Variable(cache.packed(out), false));
    const result = mergeHeads(new Variable(out, false));
    return format === "bshd" ? result : transpose(result, 0, 1);
  }
}

function optionalVariable(name: string, x: VariableLike | undefined): Variable | undefined {
  return x === undefined ? undefined : variableOf("DotProductAttention", name, x);
}

/** Records in a parameter [1, H, 1, 1] which heads each rank has. */
function divideHeads(parameter: Parameter, group: ProcessGroup, heads: number): void {
  const count = heads / group.size;
  const rankPart = (rank: number) => partAlong([1, heads, 1, 1], 1, [[rank * count, (rank + 1) * count]]);
  parameter.setRankParts({ group, axis: 1, partOf: rankPart });
}

/** Makes heads and their width one dimension. */
function mergeHeads(x: Variable): Variable {
  const [heads, width] = x.shape.slice(-2) as [number, number];
  return reshape(x, [...x.shape.slice(0, -2), heads * width]);
}

/** Throws unless queries, keys and values have one dtype and live where the cache does. A refused call changes no cache. */
function requireCacheable(inputs: Heads, cache: InferenceParams): void {
  const caller = "DotProductAttention";
  const [query, key, value] = inputs.map((input, i) =>
    wideOf(`${caller}: ${["query", "key", "value"][i]}`, input.value),
  ) as [ReturnType<typeof wideOf>, ReturnType<typeof wideOf>, ReturnType<typeof wideOf>];
  if (query.dtype !== key.dtype || query.dtype !== value.dtype)
    throw new DTypeError(
      `${caller}: query is ${query.dtype}, key ${key.dtype} and value ${value.dtype}; they must be of one dtype`,
    );
  if ([query, key, value].some(({ backend }) => backend !== cache.backend))
    throw new ArgumentError(
      `${caller}: query, key and value must live on the backend of inferenceParams; move them by data() and tensor()`,
    );
}
