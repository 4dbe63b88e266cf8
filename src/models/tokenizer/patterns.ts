/**
 * The TABLE of pre-tokenizers of GGUF files (`tokenizer.ggml.pre`). A pre-tokenizer splits a text into pieces, which byte-level
 * BPE encodes one by one. Each pattern, in the syntax of Oniguruma, splits the pieces of the pattern before it.
 */

/** A pre-tokenizer, and the defaults of the metadata that it implies. */
export interface PatternRow {
  readonly names: readonly string[];
  readonly patterns: readonly string[];
  /** Whether a beginning-of-text token precedes a text. */
  readonly addsBos: boolean;
  /** Whether a piece that is a token stays whole, even if no merges produce it. */
  readonly ignoresMerges: boolean;
}

const CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d";
const ANY_CASE = `(?i:${CONTRACTIONS})`;
const SPACES = "\\s+(?!\\S)|\\s+";
const LINES = `\\s*[\\r\\n]+|${SPACES}`;
const UPPER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
const LOWER = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
const BEFORE_WORD = "[^\\r\\n\\p{L}\\p{N}]?";

/** The pattern of GPT-2. */
export const GPT2 = `${CONTRACTIONS}| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|${SPACES}`;

/** The pattern of GPT-4 and its descendants. `digits` matches runs of digits. */
const gpt4 = (digits: string): string =>
  `${ANY_CASE}|${BEFORE_WORD}\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${LINES}`;

/** The pattern that splits words at changes from lower to upper case. `contractions` matches contractions after a word. */
const cased = (digits: string, contractions: string): string =>
  [
    `${BEFORE_WORD}${UPPER}*${LOWER}+${contractions}`,
    `${BEFORE_WORD}${UPPER}+${LOWER}*${contractions}`,
    `${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${LINES}`,
  ].join("|");

const DEEPSEEK_V3 = [
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+",
  `[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|${LINES}`,
].join("|");

const row = (
  names: readonly string[],
  patterns: readonly string[],
  traits: Partial<PatternRow> = {},
): PatternRow => ({ names, patterns, addsBos: false, ignoresMerges: false, ...traits });

/** The supported pre-tokenizers. */
export const PATTERN_ROWS: readonly PatternRow[] = [
  row(["default"], ["[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"]),
  row(["gpt-2", "phi-2", "mpt", "olmo"], [GPT2]),
  row(["smollm", "starcoder", "refact", "command-r", "exaone"], ["\\p{N}", GPT2]),
  row(["llama-bpe", "llama3", "llama-v3", "falcon3"], [gpt4("\\p{N}{1,3}")], {
    addsBos: true,
    ignoresMerges: true,
  }),
  row(["qwen2", "deepseek-r1-qwen", "stablelm2"], [gpt4("\\p{N}")]),
  row(["tekken"], [cased("\\p{N}", "")], { addsBos: true, ignoresMerges: true }),
  row(["gpt-4o"], [cased("\\p{N}{1,3}", `${ANY_CASE}?`)]),
  row(["deepseek-v3"], ["\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_V3]),
];

/** The row of a name; undefined if there is none. */
export const patternRow = (name: string): PatternRow | undefined =>
  PATTERN_ROWS.find(({ names }) => names.includes(name));

/** A pre-tokenizer of tokenizer.json that splits at each match of a pattern, and keeps the matches. */
export const splitBy = (pattern: string) =>
  ({ type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false }) as const;

/** A pre-tokenizer of tokenizer.json that writes bytes as characters, and splits nothing. */
export const BYTES_ONLY = {
  type: "ByteLevel",
  add_prefix_space: false,
  trim_offsets: false,
  use_regex: false,
} as const;
