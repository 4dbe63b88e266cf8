/** Measures the perplexity of a model, and the effect of weight forms and recipes. */
import { type Backend, requireBackend } from "../../backends/backend.js";
import { requireCheckpointPath } from "../../checkpoints/api/options.js";
import { openCheckpointFiles } from "../../checkpoints/stored/open.js";
import { ArgumentError } from "../../errors.js";
import { tensor } from "../../ops/create.js";
import { callable, integer, listOf, nested, optionsOf, ownList } from "../../options.js";
import { type Recipe, recipeOption } from "../../recipes/recipe.js";
import { noGrad } from "../../tape/grad-mode.js";
import { dtypeOf } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { WIDE_DTYPES, type WideDType } from "../../tensor/shape.js";
import type { CausalLM } from "../causal-lm.js";
import { type LoadCausalLMOptions, loadFiles, type WeightForm, weightForm } from "../load-files.js";
import { layerErrorsOf } from "../weights/sizes.js";
import { type Distribution, klDivergence, logSumExp, top1 } from "./distributions.js";
import { type PerplexityProgress, progressOf, type TextWindow, windowsOf } from "./windows.js";

/** A form of the weights and a recipe, whose logits are compared with those of the original model. */
export interface PerplexityVariant {
  /** The form of the weights, as in `loadCausalLM`. Default: "as stored". */
  readonly weights?: WeightForm | undefined;
  /** The recipe of linear layers, as in `loadCausalLM`. Default: none. */
  readonly recipe?: Recipe | undefined;
}

/** Options of `perplexity`. All fields are optional. */
export interface PerplexityOptions {
  /** The variants to compare with the original model. Default: none. */
  readonly variants?: readonly PerplexityVariant[] | undefined;
  /** The number of tokens that a forward pass sees, at least 2. Default: 512, or fewer if the model has fewer positions. */
  readonly context?: number | undefined;
  /** The number of tokens from the beginning of a window to the beginning of the next, at most `context`. Default: `context`. */
  readonly stride?: number | undefined;
  /** The dtype of parameters and activations, as in `loadCausalLM`. */
  readonly dtype?: WideDType | undefined;
  /** Called before the first forward pass and after each one. */
  readonly onProgress?: ((progress: PerplexityProgress) => void) | undefined;
}

/** The perplexity of a model. */
export interface ModelPerplexity {
  /** exp of the mean negative log-likelihood of the scored tokens. */
  readonly perplexity: number;
  /** The bits of all codes and scales of the matrices of decoder layers, divided by the number of their elements. */
  readonly bitsPerWeight: number;
}

/** A variant compared with the original model. */
export interface PerplexityComparison extends ModelPerplexity {
  /** The mean over scored tokens of the KL divergence of the variant's distribution from the original's, in nats. */
  readonly meanKl: number;
  /** The share of scored tokens for which both models have the same likeliest token. */
  readonly top1Agreement: number;
  /**
   * The relative root mean square error of the weights that the form changed, for each decoder layer; 0 without such weights. It
   * compares the form's weights with the original weights before either is rounded to `dtype`. It leaves out the errors of a
   * recipe.
   */
  readonly layerErrors: readonly number[];
}

/** The result of `perplexity`. */
export interface PerplexityReport {
  /** The number of scored tokens. */
  readonly scoredTokens: number;
  /** The largest number of tokens of a window. */
  readonly context: number;
  /** The number of tokens from the beginning of a window to the beginning of the next. */
  readonly stride: number;
  /** The model with its weights as stored, without a recipe. */
  readonly original: ModelPerplexity;
  /** One result for each of `variants`, in their order. */
  readonly variants: readonly PerplexityComparison[];
}

const DEFAULT_CONTEXT = 512;
/** The largest number of tokens. */
const MAX_TOKENS = 2 ** 20;

const checkVariant = optionsOf<PerplexityVariant>({ weights: weightForm, recipe: recipeOption }, "variant");
const checkOptions = optionsOf<PerplexityOptions>({
  variants: listOf(nested(checkVariant)),
  context: integer(2),
  stride: integer(1),
  dtype: dtypeOf(WIDE_DTYPES),
  onProgress: callable,
});
const tokenId = integer(0, 2 ** 31 - 1);

/**
 * Computes the perplexity of a model on tokens, and compares variants of it with the model as stored. Memory holds one model at a
 * time, and the original's logits: 4 bytes for each scored token and entry of the vocabulary. Statistics are f64 sums in
 * ascending order (docs/models.md). The host computes their exponentials and logarithms, so their last digits may differ between
 * hosts. Logits do not.
 *
 * @throws the errors of `loadCausalLM`, and `ArgumentError` for fewer than two tokens, tokens outside of the vocabulary, a
 * `context` beyond the model's positions, a `stride` that is larger than `context`, and a model or a variant that computes NaN or
 * an infinity as a logit; `DTypeError` for a `dtype` other than f32, bf16 and f16; `UnsupportedError` for a recipe that the
 * backend does not support; `DisposedError` for a disposed backend.
 */
export async function perplexity(
  backend: Backend,
  path: string,
  tokens: readonly number[],
  options: PerplexityOptions = {},
): Promise<PerplexityReport> {
  const caller = "perplexity";
  requireBackend(caller, backend);
  requireCheckpointPath(caller, "path", path);
  const ids = ownList(caller, "tokens", tokens, (each, i) => tokenId(caller, `tokens[${i}]`, each) as number);
  if (ids.length < 2 || ids.length > MAX_TOKENS)
    throw new ArgumentError(`${caller}: there are ${ids.length} tokens; 2 to ${MAX_TOKENS} are needed`);
  const { variants = [], context: chosen, stride: step, dtype, onProgress } = checkOptions(caller, options);
  const { bitsPerWeight, ...expected } = await withModel(backend, path, { dtype }, (model, { bits }) => {
    const context = chosen ?? Math.min(DEFAULT_CONTEXT, model.config.maxPositionEmbeddings);
    const stride = step ?? context;
    requireFit(model, ids, context, stride);
    const windows = windowsOf(ids.length, context, stride);
    const report = progressOf(windows, 1 + variants.length, onProgress);
    const rows = [...rowsOf("the original model", model, { ids, windows, report })];
    return { ids, windows, context, stride, report, rows, bitsPerWeight: bits };
  });
  const { rows, context, stride } = expected;
  const results: PerplexityComparison[] = [];
  for (const [i, variant] of variants.entries())
    results.push(
      await withModel(backend, path, { ...variant, dtype }, (model, { bits, layerErrors }) => {
        return { ...compared(`variants[${i}]`, model, expected), bitsPerWeight: bits, layerErrors };
      }),
    );
  return {
    ...{ scoredTokens: rows.length, context, stride },
    original: { perplexity: perplexityOf(rows), bitsPerWeight },
    variants: results,
  };
}

/** The distribution of one scored token, and the token. */
interface Row extends Distribution {
  readonly token: number;
}

function requireFit(
  { config: { maxPositionEmbeddings, vocabSize } }: CausalLM,
  ids: readonly number[],
  context: number,
  stride: number,
): void {
  if (context > maxPositionEmbeddings)
    throw new ArgumentError(
      `perplexity: context is ${context}; the model has ${maxPositionEmbeddings} positions`,
    );
  if (stride > context)
    throw new ArgumentError(
      `perplexity: stride is ${stride}; it must be at most the context of ${context}, so that no token is left out`,
    );
  const outside = ids.find((id) => id >= vocabSize);
  if (outside !== undefined)
    throw new ArgumentError(`perplexity: token ${outside} is not in the vocabulary of ${vocabSize} tokens`);
}

/** Loads a model, calls `body` with it and with the sizes and changes of its weights, and disposes of it. */
async function withModel<T>(
  backend: Backend,
  path: string,
  options: LoadCausalLMOptions,
  body: (model: CausalLM, weights: { readonly bits: number; readonly layerErrors: readonly number[] }) => T,
): Promise<T> {
  const { model, sizes, changes } = await loadFiles(backend, await openCheckpointFiles(path), options);
  try {
    const sum = (field: "bytes" | "elements"): number =>
      sizes.reduce((total, each) => total + each[field], 0);
    const layerErrors = layerErrorsOf(model.config.layers.length, sizes, changes);
    return body(model, { bits: (8 * sum("bytes")) / sum("elements"), layerErrors });
  } finally {
    model.dispose();
  }
}

/** The tokens of a text, their windows, and the progress over them. */
interface Text {
  readonly ids: readonly number[];
  readonly windows: readonly TextWindow[];
  readonly report: (tokens: number) => void;
}

/** The distributions of the scored tokens in order. Throws `ArgumentError` for a logit that is not finite. */
function* rowsOf(
  subject: string,
  model: CausalLM,
  { ids, windows, report }: Text,
): Generator<Row, undefined> {
  const { vocabSize } = model.config;
  for (const { begin, first, end } of windows) {
    const logits = logitsOf(model, ids.slice(begin, end), end - first + 1);
    for (let at = first; at < end; at++) {
      const row = logits.subarray((at - first) * vocabSize, (at - first + 1) * vocabSize);
      requireFinite(subject, at, row);
      yield { logits: row, logSum: logSumExp(row), token: ids[at] as number };
    }
    report(end - begin);
  }
}

function requireFinite(subject: string, at: number, logits: Float32Array): void {
  const index = logits.findIndex((logit) => !Number.isFinite(logit));
  if (index < 0) return;
  throw new ArgumentError(
    `perplexity: ${subject} computes ${logits[index]} as a logit of tokens[${at}]; look for what made it, such as NaN in the weights (lockstep verify) or an overflow of the dtype or the recipe`,
  );
}

/** The logits of the last `count` positions. */
function logitsOf(model: CausalLM, ids: readonly number[], count: number): Float32Array {
  using _scope = new Scope();
  const input = tensor(model.backend, Int32Array.from(ids), [1, ids.length], "i32");
  return noGrad(
    () => model.forward(input, { logitsToKeep: count }).tensor.dataSync().slice() as Float32Array,
  );
}

/** exp of the mean of -log p(token). The sum is in the order of the tokens. */
function perplexityOf(rows: Iterable<Row>): number {
  let [sum, count] = [0, 0];
  for (const { logits, logSum, token } of rows) {
    sum += logSum - (logits[token] as number);
    count++;
  }
  return Math.exp(sum / count);
}

/** The text, and the original model's distributions with which all variants are compared. */
interface Expected extends Text {
  readonly rows: readonly Row[];
}

function compared(
  subject: string,
  model: CausalLM,
  { rows, ...text }: Expected,
): Pick<PerplexityComparison, "perplexity" | "meanKl" | "top1Agreement"> {
  let [kl, equal, index] = [0, 0, 0];
  const counted = function* (): Generator<Row, undefined> {
    for (const row of rowsOf(subject, model, text)) {
      const original = rows[index++] as Row;
      kl += klDivergence(original, row);
      if (top1(original.logits) === top1(row.logits)) equal++;
      yield row;
    }
  };
  const perplexity = perplexityOf(counted());
  return { perplexity, meanKl: kl / index, top1Agreement: equal / index };
}
