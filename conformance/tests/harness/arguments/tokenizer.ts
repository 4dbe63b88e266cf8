/** The files of a small tokenizer. */

/** The contents of `tokenizer.json` of a small tokenizer: the bytes of ASCII letters, and an end-of-text token. */
export const TOKENIZER_JSON = JSON.stringify({
  added_tokens: [{ id: 26, content: "<|end|>", special: true }],
  pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: true },
  decoder: { type: "ByteLevel" },
  model: {
    type: "BPE",
    vocab: Object.fromEntries(Array.from("abcdefghijklmnopqrstuvwxyz", (letter, id) => [letter, id])),
    merges: [],
  },
});
export const TOKENIZER_CONFIG = JSON.stringify({
  eos_token: "<|end|>",
  chat_template: "{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}",
});
