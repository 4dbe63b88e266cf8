/** A language model that predicts the next token. */
import { autocast } from "../autocast.js";
import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import { ArgumentError, ShapeError } from "../errors.js";
import { add, cast, multiply, sigmoid } from "../functional/elementwise.js";
import { embedding as rowsOf } from "../functional/embedding.js";
import { reshape } from "../functional/layout.js";
import { expand } from "../functional/sum.js";
import type { InferenceParamsOptions } from "../modules/attention/inference-options.js";
import { InferenceParams } from "../modules/attention/inference-params.js";
import { Embedding } from "../modules/embedding.js";
import { Module } from "../modules/module.js";
import { RMSNorm } from "../modules/norm.js";
import { type InitMethod, newParameter } from "../modules/parameter.js";
import { tensor } from "../ops/create.js";
import { boolean, type Complete, instance, integer, optionsOf } from "../options.js";
import type { RandomState } from "../quantizers/random-state.js";
import type { Recipe } from "../recipes/recipe.js";
import { composed } from "../tape/composed.js";
import type { Variable } from "../tape/variable.js";
import { requireI32 } from "../tensor/require.js";
import { orDispose } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { type CacheOptions, type CacheScales, checkCache } from "./cache-options.js";
import type { CausalLMConfig, DecoderLayerConfig } from "./config/config.js";
import { type GenerateOptions, generateTokens } from "./generate.js";
import { DecoderLayer } from "./layers/decoder-layer.js";
import { ModuleList } from "./layers/module-list.js";
import type { LayerCall, LayerOptions } from "./layers/options.js";
import { OutputHead } from "./layers/output-head.js";
import { RotaryTables } from "./layers/rotary-tables.js";

/** Options of one call of a model. All fields are optional. */
export interface CausalLMCall {
  /** The cache of keys and values, after `preStep`. The tokens are then the new positions of its sequences. */
  readonly inferenceParams?: InferenceParams | undefined;
  /**
   * The number of positions at the end of each sequence whose logits are returned. With a cache, they are the last new positions
   * of each sequence. Default: all.
   */
  readonly logitsToKeep?: number | undefined;
  /**
   * With a recipe: whether linear layers quantize and cache their weights (true), or use the cached weights (false), as
   * `isFirstMicrobatch` of `Linear`. Default: they quantize their weights for this call only.
   */
  readonly isFirstMicrobatch?: boolean | undefined;
}

const checkCall = optionsOf<CausalLMCall>(
  {
    inferenceParams: instance(InferenceParams, "an InferenceParams"),
    logitsToKeep: integer(1),
    isFirstMicrobatch: boolean,
  },
  "call",
);
/** The parts from which a model is created. */
export interface CausalLMParts {
  readonly config: CausalLMConfig;
  readonly dtype: WideDType;
  readonly random: RandomState;
  readonly recipe: Recipe | undefined;
  readonly initMethod: InitMethod;
  readonly cacheScales?: CacheScales | undefined;
}

/** The part of a model below the output layer. */
class DecoderStack extends Module {
  static {
    guardReceivers(this);
  }

  readonly embedding: Embedding;
  readonly layers: readonly DecoderLayer[];
  readonly norm: RMSNorm;

  constructor(backend: Backend, config: CausalLMConfig, options: LayerOptions) {
    const { dtype, random, initMethod, eps, hiddenSize, zeroCenteredGamma, own } = options;
    super(backend, { dtype, random });
    this.embedding = this.addModule(
      "embed_tokens",
      own(new Embedding(backend, config.vocabSize, hiddenSize, { dtype, random, initMethod })),
    );
    const make = (index: number): DecoderLayer =>
      new DecoderLayer(backend, config.layers[index] as DecoderLayerConfig, index + 1, options);
    const layers = new ModuleList(backend, config.layers.length, make, { dtype, random });
    this.layers = this.addModule("layers", layers).list;
    this.norm = this.addModule(
      "norm",
      own(new RMSNorm(backend, hiddenSize, { dtype, random, eps, zeroCenteredGamma })),
    );
  }
}

/**
 * A language model, as `loadCausalLM` returns it. Its parameters have the names of Hugging Face's checkpoints, for example
 * `model.layers.0.self_attn.q_proj.weight`. It is differentiable. The bits of a position's logits depend on the tokens of its
 * sequence up to that position, and on nothing else: not on other sequences, chunks, batches, padding or pages (docs/models.md).
 */
export class CausalLM extends Module {
  static {
    guardReceivers(this);
  }

  /** The configuration. */
  readonly config: CausalLMConfig;
  /** The recipe of the linear layers in decoder layers; undefined if there is none. */
  readonly recipe: Recipe | undefined;
  /** The scales of the checkpoint for cached codes; undefined if it has none, which means that all scales are 1. */
  readonly cacheScales: CacheScales | undefined;
  readonly #stack: DecoderStack;
  readonly #head: OutputHead;
  readonly #tables: RotaryTables;

  private constructor(backend: Backend, parts: CausalLMParts) {
    const { config, dtype, random, recipe, initMethod, cacheScales } = parts;
    super(backend, { dtype, random });
    const { hiddenSize, vocabSize, rmsNormEps: eps, zeroCenteredNorms: zeroCenteredGamma = false } = config;
    this.config = config;
    this.recipe = recipe;
    this.cacheScales = cacheScales;
    this.#tables = new RotaryTables(backend);
    [this.#stack, this.#head] = orDispose((created) => {
      const own = <M extends Module>(module: M): M => {
        created.push(module);
        return module;
      };
      const sizes = { eps, hiddenSize, zeroCenteredGamma };
      const options: Complete<LayerOptions> = { dtype, random, initMethod, ...sizes, own };
      const stack = this.addModule("model", new DecoderStack(backend, config, options));
      created.push(stack);
      const weight = config.tieWordEmbeddings
        ? stack.embedding.weight
        : newParameter(backend, [vocabSize, hiddenSize], initMethod, { dtype, random });
      created.push(weight);
      return [stack, this.addModule("lm_head", new OutputHead(backend, weight, { dtype, random }))] as const;
    });
  }

  /** @internal */
  static of(backend: Backend, parts: CausalLMParts): CausalLM {
    return new CausalLM(backend, parts);
  }

  /**
   * Returns the logits f32 [B, T, vocabulary] of tokens, i32 [B, T]; with `logitsToKeep`, of the last positions only. The logits
   * of a position say which token follows it. A token outside of the vocabulary gives NaN. Shorter sequences are padded at the
   * end by any tokens; logits of padding are arbitrary.
   *
   * @throws `DTypeError` or `ShapeError` for tokens that are not i32 [B, T], or a cache of another shape, `ArgumentError` for an
   * argument that is not a tensor or is on another backend, an invalid option, fewer positions than `logitsToKeep`, and a cache
   * that is used outside of `noGrad` or before `preStep`, `UnsupportedError` for a recipe that the backend does not support,
   * `DisposedError` for a disposed tensor, cache or model.
   */
  forward(tokens: Tensor, call: CausalLMCall = {}): Variable {
    const caller = "CausalLM";
    const ids = requireI32(caller, "tokens", tokens);
    const { inferenceParams, logitsToKeep, isFirstMicrobatch } = checkCall(caller, call);
    if (ids.shape.length !== 2)
      throw new ShapeError(`${caller}: tokens are [${ids.shape}]; they must be [batch, positions]`);
    if (ids.backend !== this.backend)
      throw new ArgumentError(`${caller}: tokens live on another backend than the model; move them there`);
    if (inferenceParams && inferenceParams.backend !== this.backend)
      throw new ArgumentError(`${caller}: inferenceParams live on another backend than the model`);
    const [batch, length] = ids.shape as readonly [number, number];
    if (logitsToKeep !== undefined && logitsToKeep > length)
      throw new ArgumentError(
        `${caller}: logitsToKeep is ${logitsToKeep} and tokens are [${ids.shape}]; keep at most ${length}`,
      );
    const counts = inferenceParams?.newPositions ?? new Array<number>(batch).fill(length);
    if (counts.length !== batch || counts.some((count) => count > length))
      throw new ShapeError(
        `${caller}: tokens are [${ids.shape}], and the step of inferenceParams has ${counts.length} sequences of up to ${Math.max(0, ...counts)} new positions; give a row for each sequence`,
      );
    return composed(() => {
      const all = this.#decoded(ids, inferenceParams, { isFirstMicrobatch });
      const kept = logitsToKeep === undefined ? all : lastRows(all, counts, logitsToKeep);
      const logits = this.#head.forward(this.#stack.norm.forward(kept));
      const { logitSoftcap } = this.config;
      return [logitSoftcap === undefined ? logits : softcapped(logits, logitSoftcap)];
    })[0];
  }

  /** The result of the last layer, [B, T, hidden]. */
  #decoded(
    ids: Tensor<"i32">,
    inferenceParams: InferenceParams | undefined,
    weightUse: LayerCall["weightUse"],
  ): Variable {
    const positions = inferenceParams
      ? Math.max(...inferenceParams.sequences.values())
      : (ids.shape[1] as number);
    const call: LayerCall = {
      angles: (rotary) => this.#tables.angles(rotary, positions),
      inferenceParams,
      weightUse,
    };
    const { embedding, layers } = this.#stack;
    const run = (): Variable =>
      layers.reduce((x, layer) => layer.forward(x, call), this.#scaled(embedding.forward(ids)));
    return this.recipe ? autocast({ recipe: this.recipe }, run) : run();
  }

  /** Multiplies embeddings by the `embeddingScale` of the configuration. */
  #scaled(embeddings: Variable): Variable {
    const { embeddingScale } = this.config;
    if (embeddingScale === undefined) return embeddings;
    const scale = cast(tensor(this.backend, [embeddingScale], []), this.dtype);
    return multiply(embeddings, expand(scale, embeddings.shape));
  }

  /**
   * Creates a cache of keys and values for the layers of this model. Call its `preStep` before each `forward`. The caller
   * disposes of it.
   *
   * @throws `ArgumentError` for an invalid option, `DisposedError` for a disposed backend.
   */
  createCache(options: CacheOptions = {}): InferenceParams {
    const ownOptions = checkCache("createCache", options);
    const { maxBatchSize = 1, maxSequenceLength = this.config.maxPositionEmbeddings, ...form } = ownOptions;
    const { k: kScales, v: vScales } = (ownOptions.format && this.cacheScales) ?? {};
    const { keyValueHeads, headDim, valueDim } = (this.config.layers[0] as DecoderLayerConfig).attention;
    return new InferenceParams(this.backend, maxBatchSize, maxSequenceLength, {
      ...(form as Partial<InferenceParamsOptions>),
      ...(kScales && vScales ? { kScales, vScales } : {}),
      numHeadsKv: keyValueHeads,
      headDimK: headDim,
      headDimV: valueDim,
      dtype: this.dtype,
    });
  }

  /**
   * Generates text after each of `prompts`, lists of tokens. Each iteration returns the next token of each prompt, and undefined
   * for a prompt whose text has ended. A text ends after an end-of-text token, after `maxNewTokens` tokens, or at the last
   * position of the model. The model computes with a key-value cache, which is freed when the iteration ends. The tokens of a
   * prompt do not depend on the other prompts, unless the recipe's scales or `chooseTokens` do.
   *
   *     for await (const [token] of model.generate([prompt])) ...
   *
   * @throws `ArgumentError` for an invalid option, no prompt, an empty prompt, a prompt that leaves no position for a token, a
   * token outside of the vocabulary, and a result of `chooseTokens` that is not one token for each sequence. Later, the iteration
   * throws what `forward` throws, and `ArgumentError` for logits that `sample` refuses, such as NaN.
   */
  generate(
    prompts: readonly (readonly number[])[],
    options: GenerateOptions = {},
  ): AsyncGenerator<readonly (number | undefined)[], undefined> {
    return generateTokens(this, prompts, options);
  }

  /** Frees the parameters, their gradients and the rotary tables. The caller disposes of caches. */
  override dispose(): void {
    this.#tables.dispose();
    super.dispose();
  }
}

/** Returns bound * tanh(x / bound), with tanh(x) = 2 sigmoid(2x) - 1. */
function softcapped(x: Variable, bound: number): Variable {
  const constant = (value: number): Variable => expand(tensor(x.backend, [value], []), x.shape);
  const half = sigmoid(multiply(x, constant(2 / bound)));
  return add(multiply(half, constant(2 * bound)), constant(-bound));
}

/** For each sequence b of x [B, T, hidden], the last `count` of its first `counts[b]` rows; NaN for rows that do not exist. */
function lastRows(x: Variable, counts: readonly number[], count: number): Variable {
  const [batch, length, hidden] = x.shape as readonly [number, number, number];
  const indices = counts.flatMap((rows, b) =>
    Array.from({ length: count }, (_, i) => (rows < count - i ? -1 : b * length + rows - count + i)),
  );
  const ids = tensor(x.backend, Int32Array.from(indices), [batch, count], "i32");
  return rowsOf(reshape(x, [batch * length, hidden]), ids);
}
