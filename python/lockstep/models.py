"""Text of language models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._arrays import command_words
from ._process import SERVER


@dataclass(frozen=True)
class Generation:
    """A generated text. `print` shows the text."""

    text: str
    """The text after the prompt, without special tokens."""
    tokens: Sequence[int]
    """The generated tokens, with the one that ended the text."""
    prompt_tokens: Sequence[int]
    """The tokens of the prompt."""
    logits_sha256: str
    """The SHA-256 of the float32 logits that the tokens were chosen from, little-endian, in order."""
    tokens_per_second: float
    """The speed, prompt included."""
    backend: str
    """The backend that computed."""
    differing: int | None
    """With `verify_with`, the number of tokens whose logits have other bits there."""

    def __str__(self) -> str:
        return self.text


def generate(model: str | os.PathLike[str], prompt: str, **options: Any) -> Generation:
    """Continues a prompt by a language model: a folder with config.json, safetensors files and a tokenizer, or a GGUF file.

    `options` are those of `lockstep generate`, with underscores: max_tokens=64, chat=True, temperature=0.8, top_k=40, top_p=0.9,
    seed=1, recipe="mxfp8", backend="cuda", verify_with="wasm". The same options give the same tokens and the same hash on every
    backend. The model is loaded for each call.

    Raises `LockstepError` for a model that cannot be read, a prompt that has no tokens or too many, and invalid options.
    """
    words = command_words({"prompt": prompt, **options})
    result = SERVER.run(["generate", os.path.abspath(model), *words]).message["result"]
    return Generation(
        text=result["text"],
        tokens=result["tokens"],
        prompt_tokens=result["promptTokens"],
        logits_sha256=result["logitsSha256"],
        tokens_per_second=result["tokensPerSecond"],
        backend=result["backend"],
        differing=result.get("verified", {}).get("differing"),
    )
