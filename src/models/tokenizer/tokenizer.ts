/** A tokenizer: from text to tokens and back. */
import { Tokenizer as HuggingFaceTokenizer } from "@huggingface/tokenizers";
import { guardReceivers } from "../../brand.js";
import { ArgumentError, FileError, LockstepError, messageOf } from "../../errors.js";
import { isObject, type JsonObject } from "../../io/header/header.js";
import { boolean, describe, integer, optionsOf, ownList, text as textDomain } from "../../options.js";
import {
  type ChatMessage,
  type ChatTemplateOptions,
  checkChatTemplate,
  render,
  requireMessages,
} from "./chat.js";
import { DecodeStream, type DecodingRule, decodingRule, type StreamParts } from "./decoder.js";
import { DEFAULT_TEMPLATE, type TokenizerDefinition } from "./definition.js";
import { exactPreTokenizer, refusal, requireNormalizer, requirePostProcessor } from "./pre-tokenizer.js";

/** Options of `Tokenizer.encode`. All fields are optional. */
export interface EncodeOptions {
  /** Whether to add the tokens that the tokenizer puts before and after a text. Default true. */
  readonly addSpecialTokens?: boolean | undefined;
}

/** Options of `Tokenizer.decode` and `Tokenizer.decodeStream`. All fields are optional. */
export interface DecodeOptions {
  /** Whether to leave out special tokens, such as those of a chat template. Default false. */
  readonly skipSpecialTokens?: boolean | undefined;
}

const checkEncode = optionsOf<EncodeOptions>({ addSpecialTokens: boolean });
const checkDecode = optionsOf<DecodeOptions>({ skipSpecialTokens: boolean });

/** The largest number of tokens that `decode` takes. */
const MAX_TOKENS = 2 ** 28;
/** The bound of token ids. The time to open a tokenizer grows with its largest id, and no model has so many tokens. */
const MAX_VOCABULARY = 2 ** 24;
/** A token that no vocabulary has. The library returns it for text for which the vocabulary has no token. */
const ABSENT = "\uffff absent";
const anyId = integer(0, 2 ** 31 - 1);
const NO_BYTES = new Uint8Array();
const LONE_SURROGATE = /\p{Surrogate}/u;

/** The parts of the library's tokenizer that are used. Its own declarations do not resolve under `nodenext`. */
interface LibraryTokenizer {
  encode(
    text: string,
    options: { readonly add_special_tokens: boolean },
  ): { readonly ids: readonly number[]; readonly tokens: readonly string[] };
  id_to_token(id: number): string | undefined;
  get_vocab(): ReadonlyMap<string | undefined, number>;
  get_added_tokens_decoder(): ReadonlyMap<number, { readonly content: string; readonly special: boolean }>;
}

interface Token {
  readonly bytes: Uint8Array;
  readonly isSpecial: boolean;
}

/**
 * The tokenizer of a language model, as `loadTokenizer` returns it. For byte-level BPE without a normalizer,
 * `decode(encode(text, { addSpecialTokens: false }))` is `text`.
 */
export class Tokenizer {
  /** The file or folder that the tokenizer was read from. */
  readonly path: string;
  /** The largest id of a token, plus 1. Models may have more logits. */
  readonly vocabularySize: number;
  /** The id of the beginning-of-text token; undefined if there is none. */
  readonly bosTokenId: number | undefined;
  /** The tokens that end a generation, in ascending order. */
  readonly eosTokenIds: readonly number[];
  readonly #library: LibraryTokenizer;
  readonly #tokens: ReadonlyMap<number, Token>;
  readonly #rule: DecodingRule;
  readonly #templates: ReadonlyMap<string, string>;

  static {
    guardReceivers(this, (x) => typeof x === "object" && x !== null && #library in x);
  }

  private constructor(definition: TokenizerDefinition) {
    const { path, tokenizer, bosTokenId, eosTokenIds, chatTemplates, unusedTokenIds } = definition;
    this.path = path;
    this.bosTokenId = bosTokenId;
    this.eosTokenIds = Object.freeze([...eosTokenIds]);
    this.#rule = decodingRule(tokenizer.decoder);
    this.#library = opened(path, tokenizer);
    this.#tokens = tokensOf(this.#library, this.#rule, unusedTokenIds);
    this.vocabularySize = [...this.#tokens.keys()].reduce((size, id) => Math.max(size, id + 1), 0);
    this.#templates = chatTemplates;
    for (const id of [...eosTokenIds, ...(bosTokenId === undefined ? [] : [bosTokenId])])
      if (!this.#tokens.has(id))
        throw new FileError(`${path}: the token ${id}, which begins or ends texts, is not in the vocabulary`);
  }

  /** @internal */
  static of(definition: TokenizerDefinition): Tokenizer {
    return new Tokenizer(definition);
  }

  /** Names of the chat templates. */
  get chatTemplates(): readonly string[] {
    return [...this.#templates.keys()];
  }

  /**
   * Returns the ids of the tokens of a text. Tokens that were added to the vocabulary, such as `<|im_start|>`, are found in the
   * text.
   *
   * @throws `ArgumentError` for anything but a string, a string with a lone surrogate, which is no text, an invalid option, and a
   * text with a character for which the vocabulary has no token.
   */
  encode(text: string, options: EncodeOptions = {}): Int32Array {
    textDomain("encode", "text", text);
    const { addSpecialTokens = true } = checkEncode("encode", options);
    if (LONE_SURROGATE.test(text))
      throw new ArgumentError(
        "encode: text has a lone surrogate; give a well-formed string (toWellFormed())",
      );
    const { ids, tokens } = this.#library.encode(text, { add_special_tokens: addSpecialTokens });
    if (tokens.includes(ABSENT))
      throw new ArgumentError(
        `encode: the vocabulary of ${this.path} has no token for ${this.#firstAbsent(text)}; leave it out`,
      );
    return Int32Array.from(ids);
  }

  #firstAbsent(text: string): string {
    const isAbsent = (character: string): boolean =>
      this.#library.encode(character, { add_special_tokens: false }).tokens.includes(ABSENT);
    const absent = [...new Set(text)].find(isAbsent) ?? "";
    return `U+${(absent.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
  }

  /**
   * Returns the text of tokens. Bytes that are no UTF-8 become U+FFFD. Spaces stay as they are, also before punctuation. An id
   * without a token has no text: a model may have more logits than its tokenizer has tokens, and may choose such an id.
   *
   * @throws `ArgumentError` for anything but a list or an `Int32Array` of whole numbers from 0 to 2^31 - 1, and for an invalid
   * option.
   */
  decode(ids: ArrayLike<number>, options: DecodeOptions = {}): string {
    const stream = DecodeStream.of(this.#streamParts("decode", options));
    const idList =
      ids instanceof Int32Array
        ? ids
        : ownList("decode", "ids", ids, (id) => id, "a list of ids", MAX_TOKENS);
    const texts = Array.from(idList, (id) => stream.step(id as number));
    return texts.join("") + stream.end();
  }

  /**
   * Returns a stream that decodes tokens one by one. Its results, joined, are the result of `decode` for all tokens.
   *
   * @throws `ArgumentError` for an invalid option.
   */
  decodeStream(options: DecodeOptions = {}): DecodeStream {
    return DecodeStream.of(this.#streamParts("decodeStream", options));
  }

  #streamParts(caller: string, options: DecodeOptions): StreamParts {
    const { skipSpecialTokens = false } = checkDecode(caller, options);
    const bytesOf = (id: number): Uint8Array => {
      anyId(caller, "an id", id);
      const token = this.#tokens.get(id);
      return !token || (skipSpecialTokens && token.isSpecial) ? NO_BYTES : token.bytes;
    };
    return { bytesOf, strippedSpaces: this.#rule.strippedSpaces };
  }

  /**
   * Writes a conversation by a chat template of the model, as text. Encode the text without special tokens, because the template
   * writes them.
   *
   * @throws `ArgumentError` for anything but a list of messages, for messages that the template refuses, an invalid option and a
   * name that no template has, `FileError` if the model has no chat template or one that cannot be parsed.
   */
  applyChatTemplate(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): string {
    const ownMessages = requireMessages("applyChatTemplate", messages);
    const {
      addGenerationPrompt = true,
      template = DEFAULT_TEMPLATE,
      variables = {},
    } = checkChatTemplate("applyChatTemplate", options);
    if (this.#templates.size === 0)
      throw new FileError(`${this.path}: the model has no chat template; write the prompt as it expects it`);
    const source = this.#templates.get(template);
    if (source === undefined)
      throw new ArgumentError(
        `applyChatTemplate: template ${describe(template)} is none of the model's; there are ${this.chatTemplates.join(", ")}`,
      );
    return render(this.path, source, {
      ...{ bos_token: this.#contentOf(this.bosTokenId), eos_token: this.#contentOf(this.eosTokenIds[0]) },
      ...variables,
      messages: ownMessages,
      add_generation_prompt: addGenerationPrompt,
    });
  }

  #contentOf(id: number | undefined): string {
    return (id === undefined ? undefined : this.#library.id_to_token(id)) ?? "";
  }
}

/** Opens a tokenizer of the library. Throws `UnsupportedError` for unsupported parts, `FileError` for invalid ones. */
function opened(path: string, tokenizer: JsonObject): LibraryTokenizer {
  const { model, normalizer = null, post_processor: postProcessor = null, added_tokens: added } = tokenizer;
  if (!isObject(model) || (model.type ?? "BPE") !== "BPE")
    throw refusal(`${path}: a model of the type ${isObject(model) ? String(model.type) : "undefined"}`);
  requireNormalizer(normalizer);
  requirePostProcessor(postProcessor);
  requireVocabulary(path, model.vocab);
  requireAddedTokens(path, added);
  if (!Array.isArray(model.merges)) throw new FileError(`${path}: the tokenizer has no list of merges`);
  const exact = {
    ...tokenizer,
    normalizer,
    pre_tokenizer: exactPreTokenizer(tokenizer.pre_tokenizer, normalizer),
    post_processor: postProcessor,
    added_tokens: Array.isArray(added) ? added : [],
    model: { ...model, type: "BPE", unk_token: model.unk_token ?? ABSENT },
  };
  try {
    return new HuggingFaceTokenizer(exact, {});
  } catch (cause) {
    if (cause instanceof LockstepError) throw cause;
    throw new FileError(`${path}: the tokenizer cannot be used: ${messageOf(cause)}`, { cause });
  }
}

const isId = (id: unknown): boolean =>
  Number.isSafeInteger(id) && Number(id) >= 0 && Number(id) < MAX_VOCABULARY;

function requireVocabulary(path: string, vocabulary: unknown): void {
  if (!isObject(vocabulary) || !Object.values(vocabulary).every(isId))
    throw new FileError(
      `${path}: the vocabulary of the tokenizer must have a whole number below ${MAX_VOCABULARY} for each token`,
    );
}

function requireAddedTokens(path: string, added: unknown): void {
  if (!Array.isArray(added)) return;
  const wrong = added.findIndex(
    (each) => !isObject(each) || typeof each.content !== "string" || !isId(each.id),
  );
  if (wrong >= 0)
    throw new FileError(
      `${path}: added_tokens[${wrong}] must have a content, a string, and an id, a whole number below ${MAX_VOCABULARY}`,
    );
}

function tokensOf(
  library: LibraryTokenizer,
  { bytes }: DecodingRule,
  unused: ReadonlySet<number> = new Set(),
): ReadonlyMap<number, Token> {
  const encoder = new TextEncoder();
  const added = library.get_added_tokens_decoder();
  const tokens = new Map<number, Token>();
  for (const [token, id] of library.get_vocab())
    if (token !== undefined)
      tokens.set(id, { bytes: unused.has(id) ? NO_BYTES : bytes(token), isSpecial: false });
  for (const [id, { content, special }] of added)
    tokens.set(id, { bytes: encoder.encode(content), isSpecial: special });
  return tokens;
}
