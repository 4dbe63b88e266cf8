/** Generates tokens, one for each sequence of a batch at a time. */
import type { Backend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import { CACHE_FORMATS, type CacheFormat } from "../modules/attention/coded-cache.js";
import type { InferenceParams } from "../modules/attention/inference-params.js";
import { tensor } from "../ops/create.js";
import { anyListOf, callable, type Domain, describe, integer, listOf, oneOf, optionsOf } from "../options.js";
import { noGrad } from "../tape/grad-mode.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { Scope } from "../tensor/scope.js";
import { Tensor } from "../tensor/tensor.js";
import type { CausalLMConfig } from "./config/config.js";
import { sample } from "./sampling.js";

/**
 * Chooses the next token of each sequence. `logits` is f32 [B, vocabulary]; row b belongs to the prompt of index `sequences[b]`.
 * The tensor is freed when the call, or the promise that it returns, has ended.
 */
export type ChooseTokens = (
  logits: Tensor<"f32">,
  sequences: readonly number[],
) => readonly number[] | Promise<readonly number[]>;

/** Options of `CausalLM.generate`. All fields are optional. */
export interface GenerateOptions {
  /**
   * The largest number of tokens of each sequence. A sequence also ends when it has the `maxPositionEmbeddings` of the model,
   * prompt included. Default 128.
   */
  readonly maxNewTokens?: number | undefined;
  /** The tokens that end a sequence; they are returned too. Default: the `eosTokenIds` of the configuration. */
  readonly eosTokenIds?: readonly number[] | undefined;
  /** The largest number of positions of a prompt that are computed at a time. It changes no bits. Default 256. */
  readonly chunkSize?: number | undefined;
  /** The number of positions of a page of the cache. It changes no bits. Default: the cache has no pages. */
  readonly pageSize?: number | undefined;
  /** The format of one-byte codes in the cache, as in `createCache`. Default: the cache holds elements of the model's dtype. */
  readonly cacheFormat?: CacheFormat | undefined;
  /** Chooses tokens. Default: `sample` with temperature 0, the first token with the largest logit. */
  readonly chooseTokens?: ChooseTokens | undefined;
}

/** The parts of a model that generation uses. */
interface Model {
  readonly backend: Backend;
  readonly config: CausalLMConfig;
  forward(
    tokens: Tensor,
    call: {
      readonly inferenceParams: InferenceParams;
      readonly logitsToKeep: number;
      readonly isFirstMicrobatch: boolean;
    },
  ): Variable;
  createCache(options: {
    readonly maxBatchSize: number;
    readonly maxSequenceLength: number;
    readonly isPaged?: boolean;
    readonly pageSize?: number;
    readonly format?: CacheFormat | undefined;
  }): InferenceParams;
}

const checkOptions = optionsOf<GenerateOptions>({
  maxNewTokens: integer(1),
  eosTokenIds: anyListOf(integer(0)),
  chunkSize: integer(1),
  pageSize: integer(1),
  cacheFormat: oneOf(CACHE_FORMATS),
  chooseTokens: callable,
});

/** A sequence that is being generated. */
interface Sequence {
  readonly index: number;
  /** The tokens that the cache does not have yet. */
  pending: readonly number[];
  /** The number of tokens that may still be chosen. */
  left: number;
}

/** The progress of a generation. */
interface Progress {
  /** Whether layers have quantized their weights, which do not change during the generation. */
  hasWeights: boolean;
}

/** Returns an iterator over the next tokens of all sequences. Checks all arguments before it returns. */
export function generateTokens(
  model: Model,
  prompts: readonly (readonly number[])[],
  options: GenerateOptions,
): AsyncGenerator<readonly (number | undefined)[], undefined> {
  const caller = "generate";
  const token: Domain = integer(0, model.config.vocabSize - 1);
  const checked = listOf(listOf(token))(caller, "prompts", prompts) as typeof prompts;
  requirePositions(model, checked);
  return steps(model, checked, checkOptions(caller, options));
}

function requirePositions({ config }: Model, prompts: readonly (readonly number[])[]): void {
  const { maxPositionEmbeddings: positions } = config;
  for (const [i, { length }] of prompts.entries())
    if (length >= positions)
      throw new ArgumentError(
        `generate: prompts[${i}] has ${length} tokens and the model ${positions} positions; give at most ${positions - 1} tokens`,
      );
}

async function* steps(
  model: Model,
  prompts: readonly (readonly number[])[],
  options: GenerateOptions,
): AsyncGenerator<readonly (number | undefined)[], undefined> {
  const { maxNewTokens = 128, eosTokenIds, chunkSize = 256, pageSize, chooseTokens = greedy } = options;
  const ends = new Set(eosTokenIds ?? model.config.eosTokenIds);
  const { maxPositionEmbeddings } = model.config;
  const longestPrompt = Math.max(...prompts.map(({ length }) => length));
  const longest = Math.min(longestPrompt + maxNewTokens, maxPositionEmbeddings);
  const pages = pageSize === undefined ? {} : { isPaged: true, pageSize };
  const maxSequenceLength = pageSize === undefined ? longest : Math.ceil(longest / pageSize) * pageSize;
  const form = { ...pages, format: options.cacheFormat };
  using cache = model.createCache({ maxBatchSize: prompts.length, maxSequenceLength, ...form });
  const progress: Progress = { hasWeights: false };
  let running = prompts.map((pending, index): Sequence => {
    return { index, pending, left: Math.min(maxNewTokens, maxPositionEmbeddings - pending.length) };
  });
  while (running.length > 0) {
    const logits = pendingLogits(model, cache, running, { chunkSize, progress });
    let chosen: readonly number[];
    try {
      chosen = await chooseTokens(
        logits,
        running.map(({ index }) => index),
      );
    } finally {
      logits.dispose();
    }
    const tokens = requireTokens(model, chosen, running.length);
    const next = new Array<number | undefined>(prompts.length).fill(undefined);
    for (const [i, sequence] of running.entries()) {
      const token = tokens[i] as number;
      next[sequence.index] = token;
      sequence.pending = [token];
      sequence.left--;
    }
    yield next;
    running = running.filter(({ pending, left }) => left > 0 && !ends.has(pending[0] as number));
  }
}

/**
 * Computes the pending tokens of all sequences, chunk by chunk. Returns the logits of the last token of each sequence, f32 [B,
 * V].
 */
function pendingLogits(
  model: Model,
  cache: InferenceParams,
  sequences: readonly Sequence[],
  { chunkSize, progress }: { readonly chunkSize: number; readonly progress: Progress },
): Tensor<"f32"> {
  using scope = new Scope();
  const { backend, config } = model;
  const { vocabSize } = config;
  const last = new Tensor(backend, "f32", [sequences.length, vocabSize]);
  const longest = Math.max(...sequences.map(({ pending }) => pending.length));
  for (let begin = 0; begin < longest; begin += chunkSize) {
    using _chunk = new Scope();
    const parts = sequences.map(({ pending }) => pending.slice(begin, begin + chunkSize));
    const width = Math.max(...parts.map(({ length }) => length));
    cache.preStep(new Map(sequences.map(({ index }, i) => [index, (parts[i] as number[]).length])));
    const padded = parts.flatMap((part) => [...part, ...new Array<number>(width - part.length).fill(0)]);
    const ids = tensor(backend, Int32Array.from(padded), [sequences.length, width], "i32");
    const isFirstMicrobatch = !progress.hasWeights;
    const call = { inferenceParams: cache, logitsToKeep: 1, isFirstMicrobatch };
    const { value } = noGrad(() => model.forward(ids, call));
    progress.hasWeights = true;
    const logits = wideOf("generate: the logits", value) as Tensor<"f32">;
    for (const [i, { pending }] of sequences.entries())
      if (pending.length > begin && pending.length <= begin + chunkSize)
        last.paste(logits.slice(i * vocabSize, [vocabSize]), i * vocabSize);
  }
  return scope.keep(last);
}

/** Returns the chosen tokens. Throws `ArgumentError` unless there is one token of the vocabulary for each sequence. */
function requireTokens({ config }: Model, chosen: unknown, count: number): readonly number[] {
  const token: Domain = integer(0, config.vocabSize - 1);
  const tokens: unknown = listOf(token)("generate", "the result of chooseTokens", chosen);
  const list = tokens as readonly number[];
  if (list.length === count) return list;
  throw new ArgumentError(
    `generate: chooseTokens returned ${describe(chosen)}; it must return ${count} tokens, one for each sequence`,
  );
}

/** The first token with the largest logit of each row. Throws `ArgumentError` for a row that `sample` refuses. */
async function greedy(logits: Tensor<"f32">): Promise<readonly number[]> {
  return Array.from(await sample(logits));
}
