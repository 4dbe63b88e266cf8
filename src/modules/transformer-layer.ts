/** The module of a transformer layer. */
import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { dropout } from "../functional/dropout.js";
import { add, multiply } from "../functional/elementwise.js";
import { tensor } from "../ops/create.js";
import type { DropoutDraws } from "../ops/elementwise/dropout.js";
import { fieldsOf } from "../options.js";
import { composed } from "../tape/composed.js";
import { type VariableLike, variableOf } from "../tape/differentiable.js";
import type { Variable } from "../tape/variable.js";
import { orDispose } from "../tensor/scope.js";
import { drawFor } from "./attention/draws.js";
import {
  MULTIHEAD_CALL,
  MULTIHEAD_OPTIONS,
  type MultiheadAttentionCall,
  type MultiheadAttentionOptions,
} from "./attention/multihead-options.js";
import {
  checkTransformerCall,
  checkTransformerOptions,
  type TransformerLayerCall,
  type TransformerLayerOptions,
} from "./attention/transformer-options.js";
import { LayerNormMLP } from "./layer-norm-mlp.js";
import { Module, requireSizes } from "./module.js";
import { MultiheadAttention } from "./multihead-attention.js";
import { LayerNorm, RMSNorm } from "./norm.js";

/** The options that change the order of a layer's parts. */
type Form = Pick<
  TransformerLayerOptions,
  "applyResidualConnectionPostLayernorm" | "outputLayernorm" | "parallelAttentionMlp" | "layerType"
>;

/**
 * Computes self-attention, attention to `encoderOutput` in a decoder, and an MLP, each added to its input, with the options and
 * the names of parameters of TransformerEngine's module of this name, in camelCase. The input is [S, B, hiddenSize],
 * [B, S, hiddenSize] or [T, hiddenSize], by `attnInputFormat`. Sums are rounded to the dtype of the input; the linear layers add
 * their biases. With `group`, each rank has a part of the weights (docs/distributed.md).
 *
 * @throws `ShapeError` for a size that is not divisible by the number of ranks, `ArgumentError` for an unknown option, an invalid
 * option value, options that do not go together, or a size that is not a positive integer, `DTypeError` for a parameter dtype
 * other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class TransformerLayer extends Module {
  static {
    guardReceivers(this);
  }

  /** Whether the layer attends to `encoderOutput`, as a "decoder" does. */
  readonly layerType: "encoder" | "decoder";
  readonly #options: TransformerLayerOptions;
  readonly #selfAttention: MultiheadAttention;
  readonly #interAttention: MultiheadAttention | undefined;
  readonly #mlp: LayerNormMLP;
  readonly #layernorm: LayerNorm | RMSNorm | undefined;

  constructor(
    backend: Backend,
    /** The last dimension of the input and of the result. */
    readonly hiddenSize: number,
    /** The last dimension of the activation's result in the MLP. */
    readonly ffnHiddenSize: number,
    /** The number of heads of queries, on all ranks. */
    readonly numAttentionHeads: number,
    options: TransformerLayerOptions = {},
  ) {
    const ownOptions = checkTransformerOptions("TransformerLayer", options);
    super(backend, ownOptions);
    requireSizes("TransformerLayer", { hiddenSize, ffnHiddenSize, numAttentionHeads });
    requireForm(ownOptions);
    const drawsByRow = ownOptions.hiddenDropout !== 0 || (ownOptions.dropPathRate ?? 0) !== 0;
    if (ownOptions.group && ownOptions.sequenceParallel && drawsByRow)
      throw new ArgumentError(
        "TransformerLayer: sequenceParallel divides rows among ranks, and hiddenDropout and dropPathRate draw by element of all rows; give 0 for both",
      );
    if ((ownOptions.cpGroup?.size ?? 1) > 1 && drawsByRow)
      throw new ArgumentError(
        "TransformerLayer: cpGroup divides positions among ranks, and hiddenDropout and dropPathRate draw by element of all rows; give 0 for both",
      );
    this.#options = ownOptions;
    const { dtype, random } = this;
    const { outputLayernorm = false, layerType = "encoder" } = ownOptions;
    this.layerType = layerType;
    const attention = attentionOptions(ownOptions);
    const { group, sequenceParallel, bias, fuseWgradAccumulation, normalization } = ownOptions;
    const { initMethod, outputLayerInitMethod } = ownOptions;
    const norm = { eps: ownOptions.layernormEpsilon, zeroCenteredGamma: ownOptions.zeroCenteredGamma };
    const common = { dtype, random, ...norm, ...(group ? { group, sequenceParallel } : {}) };
    const layers = orDispose((created) => {
      const addOwned = <M extends Module>(name: string, module: M): M => {
        created.push(module);
        return this.addModule(name, module);
      };
      const self = addOwned(
        "selfAttention",
        new MultiheadAttention(backend, hiddenSize, numAttentionHeads, {
          ...{ ...attention, dtype, random, inputLayernorm: !outputLayernorm },
          attnMaskType: ownOptions.selfAttnMaskType,
        }),
      );
      const inter =
        layerType === "decoder"
          ? addOwned(
              "interAttention",
              new MultiheadAttention(backend, hiddenSize, numAttentionHeads, {
                ...{ ...attention, dtype, random, inputLayernorm: true, attentionType: "cross" as const },
                attnMaskType: ownOptions.encDecAttnMaskType ?? "no_mask",
                windowSize: ownOptions.encDecWindowSize,
                bottomRightDiagonal: ownOptions.encDecBottomRightDiagonal,
              }),
            )
          : undefined;
      const { activation } = ownOptions;
      const mlp = addOwned(
        "layernormMlp",
        new LayerNormMLP(backend, hiddenSize, ffnHiddenSize, {
          ...{ ...common, normalization, activation, bias, fuseWgradAccumulation },
          ...{ initMethod, outputLayerInitMethod },
        }),
      );
      const Norm = normalization === "RMSNorm" ? RMSNorm : LayerNorm;
      const last = outputLayernorm ? addOwned("layernorm", new Norm(backend, hiddenSize, common)) : undefined;
      return { self, inter, mlp, last };
    });
    this.#selfAttention = layers.self;
    this.#interAttention = layers.inter;
    this.#mlp = layers.mlp;
    this.#layernorm = layers.last;
  }

  /**
   * Returns the result of the layer in the shape of the input. `call` has the options of `MultiheadAttention.forward`; options of
   * masks apply to self-attention, and options with the prefix `encDec` to attention to `encoderOutput`.
   *
   * @throws `ShapeError` or `DTypeError` for tensors that do not fit, `ArgumentError` for an invalid option value, options that
   * do not go together and tensors on different backends, `UnsupportedError` for a recipe or an attention that the backend does
   * not support, `DisposedError` for a disposed tensor.
   */
  forward(hiddenStates: VariableLike, call: TransformerLayerCall = {}): Variable {
    const ownCall = checkTransformerCall("TransformerLayer", call);
    const x = variableOf("TransformerLayer", "hiddenStates", hiddenStates);
    if ((this.#interAttention === undefined) !== (ownCall.encoderOutput === undefined))
      throw new ArgumentError(
        `TransformerLayer: layerType is "${this.layerType}"; give encoderOutput with "decoder" only`,
      );
    const { encoderOutput } = ownCall;
    if (encoderOutput !== undefined) variableOf("TransformerLayer", "encoderOutput", encoderOutput);
    return composed(() => [this.#compose(x, ownCall)])[0];
  }

  #compose(x: Variable, call: TransformerLayerCall): Variable {
    const { isFirstMicrobatch, skipFp8WeightUpdate } = call;
    const use = { isFirstMicrobatch, skipFp8WeightUpdate };
    const { parallelAttentionMlp, applyResidualConnectionPostLayernorm: postNorm } = this.#options;
    const selfCall = selfAttentionCall(call);
    if (parallelAttentionMlp) {
      const attentionResult = this.#selfAttention.forward(x, selfCall);
      return this.#addTo(x, add(attentionResult, this.#mlp.forward(x, use)), call);
    }
    let hidden = this.#attend(this.#selfAttention, x, selfCall, postNorm && !this.#layernorm);
    if (this.#interAttention)
      hidden = this.#attend(this.#interAttention, hidden, interAttentionCall(call), postNorm);
    const [out, residual] = postNorm
      ? this.#mlp.forwardWithNorm(hidden, use)
      : [this.#mlp.forward(hidden, use), hidden];
    const sum = this.#addTo(residual, out, call);
    return this.#layernorm ? this.#layernorm.forward(sum) : sum;
  }

  /** Adds the attention of x to x, or to the norm of x. */
  #attend(
    layer: MultiheadAttention,
    x: Variable,
    call: Parameters<MultiheadAttention["forward"]>[1],
    postNorm: boolean | undefined,
  ): Variable {
    const [out, residual] = postNorm ? layer.forwardWithNorm(x, call) : [layer.forward(x, call), x];
    return this.#addTo(residual, out, call);
  }

  /** Drops elements of `out`, and adds the others to the residual. */
  #addTo(
    residual: Variable,
    out: Variable,
    { training = true }: Pick<TransformerLayerCall, "training"> = {},
  ): Variable {
    const { hiddenDropout = 0.1, dropPathRate = 0 } = this.#options;
    if (!training) return add(residual, out);
    const draws = (probability: number) => ({ probability, ...drawFor(this, this.random) });
    const keptResult = hiddenDropout === 0 ? out : dropout(out, draws(hiddenDropout));
    return add(residual, dropPathRate === 0 ? keptResult : dropPath(keptResult, draws(dropPathRate)));
  }
}

/** Drops x for some indices of its first dimension, and multiplies the rest by the factor of dropout. */
function dropPath(x: Variable, draws: DropoutDraws): Variable {
  const [count = 0, ...rest] = x.shape;
  const onePerRow = tensor(x.backend, new Float32Array(count).fill(1), [count, ...rest.map(() => 1)]);
  return multiply(x, dropout(onePerRow, draws));
}

/** Throws `ArgumentError` for forms that exclude each other. */
function requireForm(form: Form): void {
  if (!form.parallelAttentionMlp) return;
  const incompatibleOption = form.layerType === "decoder" ? 'layerType "decoder"' : undefined;
  const refusedOption =
    incompatibleOption ??
    (["applyResidualConnectionPostLayernorm", "outputLayernorm"] as const).find((name) => form[name]);
  if (refusedOption)
    throw new ArgumentError(
      `TransformerLayer: parallelAttentionMlp does not go with ${refusedOption}; leave one of them out`,
    );
}

/** The options that a layer passes to its attention. */
function attentionOptions(options: TransformerLayerOptions): MultiheadAttentionOptions {
  const fields: MultiheadAttentionOptions = fieldsOf("TransformerLayer", options, MULTIHEAD_OPTIONS);
  return { ...fields, qkvFormat: options.attnInputFormat };
}

/** Returns the options of self-attention, whose keys come from the input. */
function selfAttentionCall(call: TransformerLayerCall): MultiheadAttentionCall {
  const fields: MultiheadAttentionCall = fieldsOf("TransformerLayer", call, MULTIHEAD_CALL);
  const { encoderOutput: _, cuSeqlensKv: __, cuSeqlensKvPadded: ___, seqlensKv: ____, ...rest } = fields;
  return { ...rest, attnMaskType: call.selfAttnMaskType };
}

/** Returns the options of attention to `encoderOutput`. It has no cache, because its keys come from the whole `encoderOutput`. */
function interAttentionCall(call: TransformerLayerCall): MultiheadAttentionCall {
  const fields: MultiheadAttentionCall = fieldsOf("TransformerLayer", call, MULTIHEAD_CALL);
  const { inferenceParams, ...rest } = fields;
  if (inferenceParams && rest.rotaryPosEmb)
    throw new ArgumentError(
      "TransformerLayer: attention to encoderOutput has no positions for rotaryPosEmb with inferenceParams; leave one of them out",
    );
  return {
    ...rest,
    attnMaskType: call.encDecAttnMaskType,
    attentionMask: call.encDecAttnMask,
    windowSize: call.encDecWindowSize,
    bottomRightDiagonal: call.encDecBottomRightDiagonal,
  };
}
