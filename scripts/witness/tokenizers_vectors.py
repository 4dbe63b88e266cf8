"""Records the results of the Rust library of tokenizers (pip install tokenizers==0.23.3 gguf==0.19.0) as test vectors.

scripts/fetch-model && python3 scripts/witness/tokenizers_vectors.py, which writes conformance/vectors/tokenizers.json
"""

import hashlib
import json
import os
import random
import unicodedata
from collections import Counter
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "conformance" / "vectors" / "tokenizers.json"
MODELS = Path(os.environ.get("LOCKSTEP_MODELS", ROOT / ".models"))
MODEL = MODELS / "SmolLM2-135M-Instruct" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTROL = 3

SENTENCES = [
    "",
    " ",
    "The capital of France is",
    "Hello, world! It's 2024, isn't it? We'll see: I'd say THEY'VE won, DON'T they'RE.",
    "def f(x):\n    return x ** 2  # squares\n\n\nprint(f(12345.678e-9))\t\r\n",
    "  leading and trailing  \n \n  ",
    "a  b   c    d\n\n\ne\r\n\r\nf\u00a0g\u2003h\u3000i\u0085j\ufeffk\u200bl\u2028m",
    "Fußgängerübergänge naïve café e\u0301 ﬁ ﬀ Å Å Ω",
    "日本語のテキスト。カタカナ、ひらがな。漢字123中文 한국어 텍스트",
    "Привет, мир! שלום עולם مرحبا بالعالم ١٢٣ हिन्दी १२३ ไทย ๑๒๓",
    "²³¹½¼ⅷⅫ①②③ 〇一二 𝟘𝟙𝟚 𝕳𝖊𝖑𝖑𝖔",
    "👍🏽👨‍👩‍👧‍👦🇫🇷 😀😃 zwj\u200d ǅungla ǅ",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|<|im_end|>><|endoftext|> <|endoftext|>\u00a0<|endoftext|>",
    "{\"a\": [1, 22, 333, 4444, 55555], 'b': ~x^2 + |y| <= $3.50 && c != d}",
    "camelCaseWords HTTPServer XMLHttpRequest iPhone's O'REILLY'S l'été d'Artagnan",
    "http://example.com/a/b?c=d&e=f#g /usr/lib//x\n/// end/\n/",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 6,
    "word " * 60,
    "0123456789" * 7,
]
# characters of every class that patterns distinguish
CLASSES = [
    "abcxyz", "ABCXYZ", "0123456789", " ", " ", "\n", "\r", "\t", "'", "'s't're've'm'll'd", "'S'T'RE", ".,;:!?", "$+<=>^~|`",
    "éßñü", "ÉÑÜ", "ǅǈ", "ʰʱ", "漢字かなカナ", "한국", "אב", "٣४", "²½Ⅷ", "\u0301\u0300", "😀👍", "\u00a0\u2003\u0085",
    "\u200b\ufeff", "𝟘𝟙", "_-/", "\u1885\u00b7\u0345",
]


def texts():
    draw = random.Random(1)
    drawn = [
        "".join(draw.choice(draw.choice(CLASSES)) for _ in range(draw.randrange(1, 40))) for _ in range(150)
    ]
    # Python, the library and JavaScript support different versions of Unicode, so only characters of version 13 and before are
    # drawn
    while len(drawn) < 200:
        text = "".join(chr(draw.randrange(0x20, draw.choice([0x250, 0x3000, 0x1F700]))) for _ in range(12))
        if not any(unicodedata.category(c) in ("Cn", "Cs", "Co") for c in text):
            drawn.append(text)
    return SENTENCES + drawn


def split(*patterns):
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(splits)


CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
    r"|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# the pre-tokenizers in the tokenizer.json of models whose GGUF files have these names
PRE_TOKENIZERS = {
    "default": split(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": split(GPT2),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split(GPT2)]),
    "llama-bpe": split(GPT4 % r"\p{N}{1,3}"),
    "qwen2": split(GPT4 % r"\p{N}"),
    "tekken": split(CASED % ("", "", r"\p{N}")),
    "gpt-4o": split(CASED % (CONTRACTIONS + "?", CONTRACTIONS + "?", r"\p{N}{1,3}")),
    "deepseek-v3": split(r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK),
}


def encodings(tokenizer, inputs):
    """The ids of each text with special tokens, and its text again if it differs."""
    result = []
    for text in inputs:
        ids = tokenizer.encode(text).ids
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        result.append({"ids": ids} if decoded == text else {"ids": ids, "decoded": decoded})
    return result


def smollm2():
    """SmolLM2's tokenizer, from the GGUF file's vocabulary and merges, with the pre-tokenizer of its tokenizer.json."""
    fields = GGUFReader(MODEL).fields
    tokens, types, merges = (
        fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type", "merges")
    )
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    )
    return tokenizer


def merges_of(pieces, count):
    """The merges that byte-pair encoding learns from pieces. Equally frequent pairs come in a fixed order.

    The library's trainer breaks ties at random.
    """
    words = [list(piece) for piece in pieces]
    merges = []
    for _ in range(count):
        pairs = Counter(pair for word in words for pair in pairwise(word))
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append((left, right))
        for word in words:
            for i in range(len(word) - 1, 0, -1):
                if word[i - 1 : i + 1] == [left, right]:
                    word[i - 1 : i + 1] = [left + right]
    return merges


def vocabulary_of(tokens, merges):
    return {token: i for i, token in enumerate([*tokens, *(left + right for left, right in merges)])}


def byte_level():
    """Byte-level BPE with a normalizer, a token before each text, and added tokens that take the spaces around them."""
    pre_tokenizer = pre_tokenizers.Sequence(
        [split(GPT4 % r"\p{N}{1,3}"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    normalizer = normalizers.NFC()
    pieces = [
        piece for text in texts() for piece, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))
    ]
    merges = merges_of(pieces, 150)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = vocabulary_of(["<|begin|>", "<|endoftext|>", *alphabet], merges)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.add_tokens([AddedToken("word", lstrip=True, rstrip=True, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", 0)]
    )
    return tokenizer


def byte_tokens():
    """BPE in which each character without a token becomes byte tokens, as in models from sentencepiece."""
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pieces = [normalizer.normalize_str(text) for text in texts()]
    merges = merges_of(pieces, 100)
    characters = sorted({character for pair in merges for part in pair for character in part})
    special = ["<unk>", "<s>", "</s>"]
    vocabulary = vocabulary_of([*special, *(f"<0x{byte:02X}>" for byte in range(256)), *characters], merges)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


def main():
    inputs = texts()
    pieces = {
        name: [
            [end - start for _, (start, end) in pre_tokenizer.pre_tokenize_str(text)] if text else []
            for text in inputs
        ]
        for name, pre_tokenizer in PRE_TOKENIZERS.items()
    }
    small = [
        {"name": name, "tokenizer": json.loads(tokenizer.to_str()), "encodings": encodings(tokenizer, inputs)}
        for name, tokenizer in (("byte-level", byte_level()), ("byte-tokens", byte_tokens()))
    ]
    origin = {
        "project": "tokenizers",
        "version": version("tokenizers"),
        "how": "scripts/witness/tokenizers_vectors.py: pieces are lengths in characters of what pre-tokenizers split texts into",
    }
    smollm2_file = {"sha256": hashlib.sha256(MODEL.read_bytes()).hexdigest()}
    record = {
        "origin": origin,
        "texts": inputs,
        "pieces": pieces,
        "smollm2": {**smollm2_file, "encodings": encodings(smollm2(), inputs)},
        "small": small,
    }
    lines = ",\n".join(f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in record.items())
    OUT.write_text("{" + lines + "}\n")


if __name__ == "__main__":
    main()
