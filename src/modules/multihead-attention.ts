/** The module of attention with its projections. */
import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError } from "../errors.js";
import { rotaryEmbedding } from "../functional/rotary-embedding.js";
import { tensor } from "../ops/create.js";
import { optionsOf } from "../options.js";
import type { Recipe } from "../recipes/recipe.js";
import { composed } from "../tape/composed.js";
import { type VariableLike, variableOf } from "../tape/differentiable.js";
import type { Variable } from "../tape/variable.js";
import { orDispose } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";
import { formatOf } from "./attention/core.js";
import { type HeadNorm, l2Normalize, normOfHeads } from "./attention/head-norms.js";
import { type HeadPacking, unpack } from "./attention/heads.js";
import {
  checkMultiheadCall,
  MULTIHEAD_OPTIONS,
  type MultiheadAttentionCall,
  type MultiheadAttentionOptions,
} from "./attention/multihead-options.js";
import type { AttentionCall } from "./attention/options.js";
import { makeProjections, type Projections } from "./attention/projections.js";
import { DotProductAttention, type Heads } from "./dot-product-attention.js";
import { LayerNormLinear } from "./layer-norm-linear.js";
import { hasLayerRecipe, layerRegion } from "./layer-region.js";
import type { LinearCall } from "./linear/parts.js";
import type { Linear } from "./linear.js";
import { Module, requireSizes } from "./module.js";
import type { RotaryAngles } from "./rotary-position-embedding.js";

const checkOptions = optionsOf(MULTIHEAD_OPTIONS);

/**
 * Computes attention of projections of the input: proj(attention(q, k, v)), with the options and the names of parameters of
 * TransformerEngine's module of this name, in camelCase. The input is [S, B, hiddenSize], [B, S, hiddenSize] or [T, hiddenSize],
 * by `qkvFormat`. Under a recipe the projections are quantized; attention has the dtype of the input, or is quantized too with
 * `fp8Dpa`. With `group`, each rank has some of the heads (docs/distributed.md).
 *
 * @throws `ShapeError` for a size that is not divisible by the number of ranks, `ArgumentError` for an unknown option, an invalid
 * option value, options that do not go together, or a size that is not a positive integer, `DTypeError` for a parameter dtype
 * other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class MultiheadAttention extends Module {
  static {
    guardReceivers(this);
  }

  /** Whether the keys and values come from the input or from `encoderOutput`. */
  readonly attentionType: "self" | "cross";
  readonly #options: MultiheadAttentionOptions;
  readonly #projections: Projections;
  readonly #qNorm: HeadNorm | undefined;
  readonly #kNorm: HeadNorm | undefined;
  readonly #coreAttention: DotProductAttention;
  readonly #proj: Linear;
  readonly #packing: HeadPacking;

  constructor(
    backend: Backend,
    /** The last dimension of the input and of the result. */
    readonly hiddenSize: number,
    /** The number of heads of queries, on all ranks. */
    readonly numAttentionHeads: number,
    options: MultiheadAttentionOptions = {},
  ) {
    const ownOptions = checkOptions("MultiheadAttention", options);
    super(backend, ownOptions);
    requireSizes("MultiheadAttention", { hiddenSize, numAttentionHeads });
    this.#options = ownOptions;
    this.attentionType = ownOptions.attentionType ?? "self";
    const common = { ...ownOptions, dtype: this.dtype, random: this.random };
    const projections = makeProjections(backend, { hiddenSize, numAttentionHeads }, common);
    this.#projections = projections.projections;
    this.#packing = projections.packing;
    for (const [name, layer] of Object.entries(projections.projections)) this.addModule(name, layer);
    this.#proj = projections.proj;
    const { width } = projections.packing;
    const { qkNormType, qkNormEps: eps = 1e-6, zeroCenteredGamma } = ownOptions;
    const {
      attentionDropout = 0.1,
      numGqaGroups,
      softmaxType,
      softmaxScale,
      layerNumber,
      group,
    } = ownOptions;
    const { attnMaskType, windowSize, bottomRightDiagonal, softcap, qkvFormat } = ownOptions;
    const { cpGroup, cpCommType } = ownOptions;
    const { dtype, random } = this;
    [this.#qNorm, this.#kNorm, this.#coreAttention] = orDispose((created) => {
      created.push(...Object.values(projections.projections), projections.proj);
      const makeNorm = (name: string): HeadNorm | undefined => {
        if (!qkNormType) return undefined;
        if (qkNormType === "L2Normalization") return { forward: (x) => l2Normalize(x, eps) };
        const options = { eps, zeroCenteredGamma, group, dtype, random };
        const norm = this.addModule(name, normOfHeads(backend, width, qkNormType, options));
        created.push(norm);
        return norm;
      };
      const norms = [makeNorm("qNorm"), makeNorm("kNorm")] as const;
      const core = new DotProductAttention(backend, numAttentionHeads, width, {
        ...{ attentionDropout, numGqaGroups, softmaxType, softmaxScale, layerNumber, group, dtype, random },
        ...{ attnMaskType, windowSize, bottomRightDiagonal, softcap, qkvFormat, cpGroup, cpCommType },
      });
      return [...norms, this.addModule("coreAttention", core)];
    });
    this.addModule("proj", this.#proj);
  }

  /**
   * Returns the attention of the input in its shape. `call` has the options of `DotProductAttention.forward`, and
   * `encoderOutput`, `rotaryPosEmb` and the options of cached weights.
   *
   * @throws `ShapeError` or `DTypeError` for tensors that do not fit, `ArgumentError` for an invalid option value, options that
   * do not go together and tensors on different backends, `UnsupportedError` for a recipe or an attention that the backend does
   * not support, `DisposedError` for a disposed tensor.
   */
  forward(hiddenStates: VariableLike, call: MultiheadAttentionCall = {}): Variable {
    return this.#run(hiddenStates, call, undefined)[0] as Variable;
  }

  /**
   * Runs `forward` and also returns the result of the input's norm, for a residual connection.
   *
   * @throws `ArgumentError` without `inputLayernorm`, and `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and
   * `DisposedError` as `forward` does.
   */
  forwardWithNorm(
    hiddenStates: VariableLike,
    call: MultiheadAttentionCall = {},
  ): readonly [out: Variable, normed: Variable] {
    if (!this.#options.inputLayernorm)
      throw new ArgumentError("MultiheadAttention: there is no norm to return; give inputLayernorm: true");
    return this.#run(hiddenStates, call, "norm") as readonly [Variable, Variable];
  }

  /**
   * Runs `forward` without adding the bias of the last product, and returns that bias too, as `Linear.forwardWithBias` does.
   *
   * @throws `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and `DisposedError` as `forward` does.
   */
  forwardWithBias(
    hiddenStates: VariableLike,
    call: MultiheadAttentionCall = {},
  ): readonly [out: Variable, bias: Variable | undefined] {
    const [out, bias] = this.#run(hiddenStates, call, "bias");
    return [out as Variable, bias];
  }

  /** Returns the result, and the additional result that `extraResult` selects. */
  #run(
    hiddenStates: VariableLike,
    call: MultiheadAttentionCall,
    extraResult: ExtraResult,
  ): readonly Variable[] {
    const ownCall = checkMultiheadCall("MultiheadAttention", call);
    const x = variableOf("MultiheadAttention", "hiddenStates", hiddenStates);
    return composed(() => this.#compose(x, ownCall, extraResult));
  }

  #compose(x: Variable, call: MultiheadAttentionCall, extraResult: ExtraResult): readonly Variable[] {
    const { encoderOutput, rotaryPosEmb, isFirstMicrobatch, skipFp8WeightUpdate, ...attention } = call;
    const use = { isFirstMicrobatch, skipFp8WeightUpdate };
    const angles = rotaryPosEmb as readonly [RotaryAngles, RotaryAngles] | undefined;
    const { output, gradOutput, input } = this.#quantizedBoundaries(angles !== undefined, call);
    const projection = { ...use, ...(input ? { fp8Output: true } : {}) };
    const [sources, normResult] = this.#project(x, encoderOutput, projection, extraResult === "norm");
    const divideHeads = (results: readonly Variable[]): Heads => {
      const [query, key, value] = this.#divide(results);
      return [this.#turned(query, 0, angles, attention), this.#turned(key, 1, angles, attention), value];
    };
    const context = this.#coreAttention.attendTo(
      { sources, headsOf: divideHeads, returnsCodes: output },
      attention,
    );
    const projUse = { ...use, ...(gradOutput ? { fp8Grad: true } : {}) };
    if (extraResult === "bias")
      return this.#proj.forwardWithBias(context, projUse).filter((each) => each !== undefined);
    const out = this.#proj.forward(context, projUse);
    return normResult ? [out, normResult] : [out];
  }

  /**
   * Returns which tensors are quantized at the boundaries of attention: its result, the gradient of its result, and the results
   * of the projections before it. A projection under another recipe gets and returns tensors in high precision.
   */
  #quantizedBoundaries(isRotated: boolean, { inferenceParams }: MultiheadAttentionCall) {
    const recipe = this.#coreAttention.activeRecipe;
    const traits = recipe?.attention;
    if (!recipe || !traits || inferenceParams) return { output: false, gradOutput: false, input: false };
    const output = traits.output && hasRecipe(this.#proj, recipe);
    const isDirect = !isRotated && !this.#options.qkNormType;
    const ofProjections = Object.values(this.#projections) as readonly Module[];
    const input = traits.input && isDirect && ofProjections.every((each) => hasRecipe(each, recipe));
    return { output, gradOutput: output && traits.gradOutput, input };
  }

  /** Normalizes and rotates queries (0) or keys (1), in the order of the options. */
  #turned(
    x: Variable,
    projectionIndex: number,
    angles: readonly [RotaryAngles, RotaryAngles] | undefined,
    call: AttentionCall,
  ): Variable {
    const norm = projectionIndex === 0 ? this.#qNorm : this.#kNorm;
    const isFirst = this.#options.qkNormBeforeRope === true;
    const normalized = norm && isFirst ? norm.forward(x) : x;
    const rotatedHeads = angles
      ? this.#rotate(normalized, angles[projectionIndex] as RotaryAngles, call, projectionIndex)
      : normalized;
    return norm && !isFirst ? norm.forward(rotatedHeads) : rotatedHeads;
  }

  /** Returns the results of the projections, and the result of the input's norm if it is returned. */
  #project(
    x: Variable,
    encoderOutput: VariableLike | undefined,
    use: LinearCall,
    returnsNorm: boolean,
  ): readonly [results: readonly Variable[], normed: Variable | undefined] {
    const { attentionType } = this;
    if ((attentionType === "cross") !== (encoderOutput !== undefined))
      throw new ArgumentError(
        `MultiheadAttention: the attention type is "${attentionType}"; give encoderOutput with "cross" only`,
      );
    const { layernormQkv, qkv, layernormQuery, queryLayer, keyValue } = this.#projections;
    const layer = (layernormQkv ?? qkv ?? layernormQuery ?? queryLayer) as LayerNormLinear | Linear;
    const [firstProjection, normResult] =
      returnsNorm && layer instanceof LayerNormLinear
        ? layer.forwardWithNorm(x, use)
        : [layer.forward(x, use), undefined];
    if (!keyValue) return [[firstProjection], normResult];
    const source = variableOf("MultiheadAttention", "encoderOutput", encoderOutput as VariableLike);
    return [[firstProjection, keyValue.forward(source, use)], normResult];
  }

  /** Divides the results of the projections into the heads of queries, keys and values. */
  #divide([first, second]: readonly Variable[]): Heads {
    const { counts } = this.#packing;
    const queries = counts.heads / counts.groups;
    if (!second) return splitIntoHeads(unpack(first as Variable, this.#packing, [queries, 1, 1]));
    const query = unpack(first as Variable, { ...this.#packing, interleaved: false }, [queries]);
    return splitIntoHeads([...query, ...unpack(second, this.#packing, [1, 1])]);
  }

  /**
   * Rotates queries (0) or keys (1). The first position is the number of cached positions, or the number of positions of the
   * lower ranks.
   */
  #rotate(
    x: Variable,
    { cos, sin, interleaved }: RotaryAngles,
    call: AttentionCall,
    projectionIndex: number,
  ): Variable {
    const { inferenceParams } = call;
    const layout = formatOf({ module: this.#options, call });
    const queries = call.cuSeqlensQPadded ?? call.cuSeqlensQ;
    const keys = call.cuSeqlensKvPadded ?? call.cuSeqlensKv ?? queries;
    const ofCall = projectionIndex === 0 ? queries : keys;
    const cuSeqlens = layout === "thd" ? (inferenceParams?.cuSeqlens ?? ofCall) : undefined;
    const { cpGroup } = this.#options;
    const isDivided = cpGroup !== undefined && cpGroup.size > 1 && layout !== "thd";
    return rotaryEmbedding(x, cos, sin, {
      layout,
      interleaved,
      ...(cuSeqlens ? { cuSeqlens } : {}),
      ...(isDivided ? { startPositions: firstPositions(x, layout, cpGroup) } : {}),
      ...(inferenceParams ? { startPositions: inferenceParams.startPositions } : {}),
    });
  }

  /** @internal How state dictionaries of TransformerEngine divide the rows of a projection's weight, if they do. */
  get splitRows(): ReadonlyMap<string, RowSplit> {
    const { counts, width } = this.#packing;
    if (this.#options.fuseQkvParams) return new Map();
    const [q, kv] = [counts.heads * width, counts.groups * width];
    const query: RowSplit = [["query", q]];
    const keysAndValues: RowSplit = [
      ["key", kv],
      ["value", kv],
    ];
    const projections = [...query, ...keysAndValues];
    const splits = {
      layernormQkv: projections,
      qkv: projections,
      layernormQuery: query,
      keyValue: keysAndValues,
    };
    return new Map(Object.entries(splits).filter(([name]) => name in this.#projections));
  }
}

function splitIntoHeads([query, key, value]: readonly Variable[]): Heads {
  return [query as Variable, key as Variable, value as Variable];
}

/** Whether all products of a layer quantize by `recipe` now. */
function hasRecipe(layer: Module, recipe: Recipe): boolean {
  return [...layer.namedQuantizations().values()].every((state) => {
    const region = hasLayerRecipe(state) ? layerRegion(state) : undefined;
    return region?.enabled === true && region.recipe.key === recipe.key;
  });
}

/** The position of this rank's first row of each sequence, i32 [B]. All ranks have as many rows as x. */
function firstPositions(
  { backend, shape }: Variable,
  layout: "bshd" | "sbhd",
  { rank }: ProcessGroup,
): Tensor<"i32"> {
  const [a = 0, b = 0] = shape;
  const [rows, batch] = layout === "bshd" ? [b, a] : [a, b];
  return tensor(backend, new Int32Array(batch).fill(rank * rows), [batch], "i32");
}

/** The additional result of a call. */
type ExtraResult = "norm" | "bias" | undefined;

/** The names of consecutive rows of a weight, and their numbers. */
export type RowSplit = readonly (readonly [name: string, rows: number])[];
