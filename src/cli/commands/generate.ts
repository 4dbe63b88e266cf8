/** `lockstep generate`: continues a prompt by a language model. */
import type { Backend } from "../../backends/backend.js";
import { openBackend } from "../../backends/open.js";
import { type ConversionTarget, parseTarget } from "../../checkpoints/convert/targets/named.js";
import { ArgumentError } from "../../errors.js";
import { type CausalLM, loadCausalLM, loadTokenizer, type Tokenizer } from "../../models/index.js";
import { CACHE_FORMATS } from "../../modules/attention/coded-cache.js";
import { printable } from "../../text/printable.js";
import { defineCommand } from "../command.js";
import { differingLogits, generateText } from "../generation.js";
import { MODEL_RECIPES } from "../model-recipes.js";
import { flag, integer, oneOf, optional, required, u64, value, withMeanings } from "../options.js";

const RECIPE_NAMES = MODEL_RECIPES.map(({ name }) => name);

const LARGEST = 2 ** 20;

/** Returns a parser of numbers from `minimum` to `maximum`. If `zero` is set, it also accepts 0. */
function number(minimum: number, maximum: number, range: string, zero = false): (text: string) => number {
  return (text) => {
    const parsedNumber = text.trim() === "" ? Number.NaN : Number(text);
    if ((parsedNumber >= minimum && parsedNumber <= maximum) || (zero && parsedNumber === 0))
      return parsedNumber;
    throw new ArgumentError(`"${text}" is not ${range}`);
  };
}

/** Escapes the control characters of generated text for a terminal, except line feeds. */
const printableLines = (text: string): string => text.split("\n").map(printable).join("\n");

export const generate = defineCommand({
  name: "generate",
  summary: "continues a prompt by a language model, and prints the SHA-256 of all logits",
  details: [
    "MODEL is the folder of a model with config.json, safetensors files and tokenizer.json, or a GGUF file. The text is printed token by token. It ends with a token that ends texts, or after N tokens.",
    "The same options give the same text and the same hash on every backend. The hash is that of the f32 logits of all generated tokens, little-endian, in order. With --verify-with wasm, a full forward pass on the reference repeats all of these logits, and a difference leads to exit status 1.",
  ],
  example: "language-model --prompt hello --max-tokens 4 --verify-with wasm",
  inputs: ["MODEL"],
  options: {
    prompt: required({ placeholder: "TEXT", help: "text to continue" }),
    chat: flag("write the prompt as a message of a user by the chat template of the model"),
    recipe: optional({
      placeholder: RECIPE_NAMES.join("|"),
      help: withMeanings(
        "quantize weights and activations of linear layers (default: not)",
        Object.fromEntries(MODEL_RECIPES.map(({ name, meaning }) => [name, meaning])),
      ),
      parse: oneOf(RECIPE_NAMES),
    }),
    weights: optional<ConversionTarget>({
      placeholder: "FORM",
      help: "load the values that convert --to FORM would give (default: the values as stored); docs/checkpoints.md has the forms",
      parse: (name) => parseTarget(name).name,
    }),
    cache: optional({
      placeholder: CACHE_FORMATS.join("|"),
      help: "cache keys and values as codes, with the scales of the checkpoint, or 1 (default: elements of the model's type)",
      parse: oneOf(CACHE_FORMATS),
    }),
    "max-tokens": value({
      placeholder: "N",
      help: "largest number of tokens",
      parse: integer(1, LARGEST),
      fallback: 128,
      shown: "128",
    }),
    temperature: value({
      placeholder: "T",
      help: "divisor of logits; 0 takes the most likely token",
      parse: number(1 / LARGEST, LARGEST, "0, or a number from 2^-20 to 2^20", true),
      fallback: 0,
      shown: "0",
    }),
    "top-k": optional({
      placeholder: "K",
      help: "draw among the K most likely tokens (default: all)",
      parse: integer(1, LARGEST),
    }),
    "top-p": optional({
      placeholder: "P",
      help: "draw among the fewest tokens that have this share of the probability together (default: all)",
      parse: number(Number.MIN_VALUE, 1, "a number above 0 and at most 1"),
    }),
    seed: value({ placeholder: "S", help: "seed of the draws", parse: u64, fallback: 0n, shown: "0" }),
    "verify-with": optional({
      placeholder: "wasm",
      help: "compute the logits again by a full forward pass on this backend (wasm, the reference), and compare bits",
      parse: oneOf(["wasm"]),
    }),
  },
  async run({ session, values, inputs: [path = ""] }) {
    const { json, threads } = session.general;
    const tokenizer = await loadTokenizer(path);
    const prompt = promptTokens(tokenizer, values.prompt, values.chat);
    const recipe = MODEL_RECIPES.find(({ name }) => name === values.recipe);
    const load = (backend: Backend): Promise<CausalLM> =>
      loadCausalLM(backend, path, {
        weights: values.weights,
        ...(recipe ? { recipe: recipe.create() } : {}),
      });
    const backend = await session.backend();
    using model = await load(backend);
    const { temperature, seed, "top-k": topK, "top-p": topP, "verify-with": verifyWith } = values;
    const generation = await generateText(model, tokenizer, prompt, {
      ...{ temperature, seed, topK, topP, maxNewTokens: values["max-tokens"], cacheFormat: values.cache },
      keepsLogits: verifyWith !== undefined,
      write: (text) => {
        if (!json) session.io.stdout.write(printableLines(text));
      },
    });
    if (!json) session.io.stdout.write("\n");
    const verification = verifyWith && {
      backend: verifyWith,
      differing: await onReference(backend, threads, async (reference) => {
        using referenceModel = await load(reference);
        return differingLogits(referenceModel, prompt, generation, values.cache);
      }),
    };
    const { text, tokens, logitsSha256, tokensPerSecond } = generation;
    const ok = !verification || verification.differing === 0;
    const report = {
      ...{ ok, text, tokens, promptTokens: Array.from(prompt), logitsSha256, tokensPerSecond },
      ...(values.cache ? { cache: { format: values.cache, scales: model.cacheScales ?? null } } : {}),
      ...{ backend: backend.name, ...(verification ? { verified: verification } : {}) },
    };
    const lines = [
      `${tokens.length} tokens after ${prompt.length}, ${tokensPerSecond.toFixed(1)} tokens/s, prompt included`,
      `logits: SHA-256 ${logitsSha256}`,
      ...(values.cache ? [cacheLine(values.cache, model)] : []),
      ...(verification
        ? [
            `${verification.backend}: the logits of ${verification.differing} of ${tokens.length} tokens differ`,
          ]
        : []),
    ];
    if (ok) session.summary(report, lines);
    else session.result(report, lines);
    return ok ? 0 : 1;
  },
});

/** Returns a line about the scales of the cache's codes. */
const cacheLine = (format: string, { cacheScales }: CausalLM): string =>
  `cache: ${format}, ${cacheScales ? "scales of the checkpoint" : "scales 1, because the checkpoint has none"}`;

function promptTokens(tokenizer: Tokenizer, text: string, isChat: boolean): Int32Array {
  if (!isChat) return tokenizer.encode(text);
  const conversation = tokenizer.applyChatTemplate([{ role: "user", content: text }]);
  return tokenizer.encode(conversation, { addSpecialTokens: false });
}

/** Calls `body` with a reference backend that has the datapath of another backend. */
async function onReference<T>(
  { datapath }: Backend,
  threads: number | undefined,
  body: (reference: Backend) => Promise<T>,
): Promise<T> {
  const reference = await openBackend("wasm", { datapath, ...(threads === undefined ? {} : { threads }) });
  try {
    return await body(reference);
  } finally {
    await reference.dispose();
  }
}
