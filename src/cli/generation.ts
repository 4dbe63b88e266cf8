/** Generates text for `lockstep generate`, and repeats its logits on another backend. */
import { createHash } from "node:crypto";
import { ArgumentError } from "../errors.js";
import { type CausalLM, type SamplingOptions, sample, type Tokenizer } from "../models/index.js";
import type { CacheFormat } from "../modules/attention/coded-cache.js";
import { tensor } from "../ops/create.js";
import { noGrad } from "../tape/grad-mode.js";
import { asBytes } from "../tensor/data.js";
import { Scope } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";

/** A generated text, its tokens and their logits. */
export interface Generation {
  readonly text: string;
  readonly tokens: readonly number[];
  /** The logits of each token; empty unless `keepsLogits` is set. */
  readonly logits: readonly Float32Array[];
  /** The SHA-256 of all logits, little-endian f32, in order. */
  readonly logitsSha256: string;
  readonly tokensPerSecond: number;
}

/** Options of `generateText`. */
interface TextOptions extends SamplingOptions {
  readonly seed: bigint;
  readonly maxNewTokens: number;
  readonly keepsLogits: boolean;
  readonly cacheFormat?: CacheFormat | undefined;
  /** Called with each piece of the text as soon as the piece is complete. */
  readonly write: (text: string) => void;
}

/**
 * Generates at most `maxNewTokens` tokens, or as many as the model has positions left, and decodes each token at once. The offset
 * of a token's draw is the number of tokens before it. Throws `ArgumentError` for a prompt without tokens, or with too many
 * tokens.
 */
export async function generateText(
  model: CausalLM,
  tokenizer: Tokenizer,
  prompt: Int32Array,
  { seed, maxNewTokens, keepsLogits, cacheFormat, write, ...choice }: TextOptions,
): Promise<Generation> {
  const remainingPositions = requirePositions(model, prompt);
  const stream = tokenizer.decodeStream({ skipSpecialTokens: true });
  const hash = createHash("sha256");
  const [tokens, keptLogits]: [number[], Float32Array[]] = [[], []];
  let text = "";
  const print = (piece: string): void => {
    text += piece;
    write(piece);
  };
  const chooseTokens = async (logits: Tensor<"f32">): Promise<readonly number[]> => {
    const values = (await logits.data()) as Float32Array;
    hash.update(asBytes(values));
    if (keepsLogits) keptLogits.push(values);
    const offset = BigInt(prompt.length + tokens.length);
    return Array.from(await sample(logits, { ...choice, draws: [{ seed, offset }] }));
  };
  const eosTokenIds = [...new Set([...model.config.eosTokenIds, ...tokenizer.eosTokenIds])];
  const options = {
    maxNewTokens: Math.min(maxNewTokens, remainingPositions),
    eosTokenIds,
    chooseTokens,
    cacheFormat,
  };
  const start = performance.now();
  for await (const [id = 0] of model.generate([Array.from(prompt)], options)) {
    tokens.push(id);
    print(stream.step(id));
  }
  print(stream.end());
  const tokensPerSecond = (1000 * tokens.length) / (performance.now() - start);
  return { text, tokens, logits: keptLogits, logitsSha256: hash.digest("hex"), tokensPerSecond };
}

/** The number of positions that are left after a prompt. */
function requirePositions({ config }: CausalLM, { length }: Int32Array): number {
  const { maxPositionEmbeddings: positions } = config;
  if (length > 0 && length < positions) return positions - length;
  throw new ArgumentError(
    `the prompt has ${length} tokens and the model ${positions} positions; give a prompt of 1 to ${positions - 1} tokens`,
  );
}

/**
 * Computes the logits of all generated tokens again, in one full forward pass of a model over the whole text. Returns the number
 * of tokens whose logits differ. With a `format`, the pass has a cache in this format.
 */
export async function differingLogits(
  model: CausalLM,
  prompt: Int32Array,
  { tokens, logits }: Generation,
  format?: CacheFormat,
): Promise<number> {
  const before = Int32Array.from([...prompt, ...tokens.slice(0, -1)]);
  using recomputed = noGrad(() => {
    using scope = new Scope();
    const ids = tensor(model.backend, before, [1, before.length], "i32");
    if (!format) return scope.keep(model.forward(ids, { logitsToKeep: tokens.length }).tensor);
    using inferenceParams = model.createCache({ maxSequenceLength: before.length, format });
    inferenceParams.preStep(new Map([[0, before.length]]));
    return scope.keep(model.forward(ids, { logitsToKeep: tokens.length, inferenceParams }).tensor);
  });
  const expected = asBytes((await recomputed.data()) as Float32Array);
  return logits.filter((row, i) => {
    const bytes = asBytes(row);
    return Buffer.compare(bytes, expected.subarray(i * bytes.length, (i + 1) * bytes.length)) !== 0;
  }).length;
}
