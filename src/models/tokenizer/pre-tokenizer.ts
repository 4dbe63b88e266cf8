/**
 * Rewrites pre-tokenizers of tokenizer.json so that the JavaScript library computes the same pieces as the Rust library. It gives
 * `\d` and `\s` the JavaScript meaning in two pre-tokenizers; these become splits by patterns, which it translates from the
 * syntax of Oniguruma. A pre-tokenizer for which it would still compute other pieces is refused.
 */
import { UnsupportedError } from "../../errors.js";
import { isObject, type JsonObject } from "../../io/header/header.js";
import { GPT2, splitBy } from "./patterns.js";

/** Returns an equivalent pre-tokenizer. Throws `UnsupportedError` for those that are not supported, by name. */
export function exactPreTokenizer(preTokenizer: unknown, normalizer: unknown): JsonObject | null {
  if (preTokenizer === null || preTokenizer === undefined) return null;
  const config = isObject(preTokenizer) ? preTokenizer : {};
  switch (config.type) {
    case "Sequence": {
      const parts = Array.isArray(config.pretokenizers) ? config.pretokenizers : [];
      return { ...config, pretokenizers: parts.map((part) => exactPreTokenizer(part, normalizer)) };
    }
    case "Digits":
      return splitBy(config.individual_digits === true ? "\\p{N}" : "\\p{N}+");
    case "ByteLevel":
      // the space precedes the text as a whole, so the patterns cannot be a separate step before it
      return config.use_regex === false || config.add_prefix_space === true
        ? config
        : { type: "Sequence", pretokenizers: [splitBy(GPT2), { ...config, use_regex: false }] };
    case "Split":
      return exactSplit(config, normalizer);
    case "Metaspace":
      if (config.split === false) return config;
      throw refusal("the pre-tokenizer Metaspace that splits at spaces");
    default:
      throw refusal(`the pre-tokenizer ${String(config.type)}`);
  }
}

function exactSplit(config: JsonObject, normalizer: unknown): JsonObject {
  const { behavior, pattern } = config;
  // matches and the text between matches both become pieces, so inverting the pattern changes nothing
  if (behavior === "Isolated") return { ...config, invert: false };
  if (behavior === "Removed") return config;
  if (isObject(pattern) && typeof pattern.String === "string" && isReplaced(pattern.String, normalizer))
    return { ...config, behavior: "Isolated", invert: false };
  throw refusal(`the pre-tokenizer Split with the behavior ${String(behavior)}`);
}

/**
 * Whether a normalizer replaces every occurrence of a character, so that a split at the character never finds one. Around a
 * replaced string of several characters, the string may arise again: without each "ab", "aabb" is "ab".
 */
function isReplaced(text: string, normalizer: unknown): boolean {
  if (!isObject(normalizer)) return false;
  const { type, normalizers, pattern, content } = normalizer;
  if (type === "Sequence" && Array.isArray(normalizers)) return isReplaced(text, normalizers.at(-1));
  const isOfText = isObject(pattern) && pattern.String === text && [...text].length === 1;
  return type === "Replace" && isOfText && typeof content === "string" && !content.includes(text);
}

const NORMALIZERS = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Prepend", "Replace", "Strip"];
const POST_PROCESSORS = ["ByteLevel", "TemplateProcessing"];

/** The largest factor by which replacements may lengthen a text. A space that becomes another character has the factor 1. */
const MAX_GROWTH = 1024;

/** Throws `UnsupportedError` for a normalizer that is not supported, by name, or that could lengthen a text without bound. */
export function requireNormalizer(normalizer: unknown): void {
  requireKnown(normalizer, "the normalizer", "normalizers", NORMALIZERS);
  requireBoundedGrowth("the normalizer", normalizer, "normalizers");
}

/** Throws `UnsupportedError` if the replacements of a sequence, whose parts are in its field `list`, could exhaust memory. */
export function requireBoundedGrowth(label: string, component: unknown, list: string): void {
  if (growthOf(component, list) > MAX_GROWTH)
    throw refusal(`${label} whose replacements can lengthen a text more than ${MAX_GROWTH} times`);
}

/** The largest factor by which replacements lengthen a text. */
function growthOf(component: unknown, list: string): number {
  if (!isObject(component)) return 1;
  const { type, pattern, content, [list]: parts } = component;
  if (type === "Sequence" && Array.isArray(parts))
    return parts.reduce((product: number, part) => product * growthOf(part, list), 1);
  if (type !== "Replace" || typeof content !== "string") return 1;
  const text = isObject(pattern) && typeof pattern.String === "string" ? pattern.String : "";
  // an expression can match the empty string between any two characters
  return text === "" ? content.length + 1 : Math.max(1, content.length / text.length);
}

/**
 * Throws `UnsupportedError` for a post-processor that is not supported, by name, or a template with other parts than tokens and
 * the text.
 */
export function requirePostProcessor(postProcessor: unknown): void {
  requireKnown(postProcessor, "the post-processor", "processors", POST_PROCESSORS);
  requireTemplates(postProcessor);
}

function requireTemplates(postProcessor: unknown): void {
  if (!isObject(postProcessor)) return;
  const { type, processors, single } = postProcessor;
  if (type === "Sequence" && Array.isArray(processors)) processors.forEach(requireTemplates);
  if (type !== "TemplateProcessing") return;
  if (!Array.isArray(single) || !single.every(isTemplatePart))
    throw refusal("the post-processor TemplateProcessing without a list of tokens and sequences, single,");
}

/** Whether a part of a template is a token, or the text. Only pairs of texts have another sequence. */
function isTemplatePart(part: unknown): boolean {
  if (!isObject(part)) return false;
  const { SpecialToken: token, Sequence: sequence } = part;
  if (token !== undefined) return isObject(token) && typeof token.id === "string";
  return isObject(sequence) && sequence.id === "A";
}

function requireKnown(component: unknown, what: string, list: string, supported: readonly string[]): void {
  if (component === null || component === undefined) return;
  const config = isObject(component) ? component : {};
  const parts = config[list];
  if (config.type === "Sequence" && Array.isArray(parts)) {
    for (const part of parts) requireKnown(part, what, list, supported);
    return;
  }
  if (typeof config.type !== "string" || !supported.includes(config.type))
    throw refusal(`${what} ${String(config.type)}; there are ${supported.join(", ")}, and sequences`);
}

/** The error for a part of tokenizer.json that is not supported. */
export function refusal(what: string): UnsupportedError {
  return new UnsupportedError("loadTokenizer", `${what} is not supported`);
}
