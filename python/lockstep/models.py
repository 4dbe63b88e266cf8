"""Text and perplexity of language models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ._arrays import command_words
from ._process import SERVER


@dataclass(frozen=True)
class Generation:
    """A generated text. `print` shows the text."""

    text: str
    """The text after the prompt, without special tokens."""
    tokens: Sequence[int]
    """The generated tokens, including the end token."""
    prompt_tokens: Sequence[int]
    """The tokens of the prompt."""
    logits_sha256: str
    """The SHA-256 of the float32 logits that the tokens were chosen from, little-endian, in order."""
    tokens_per_second: float
    """The speed, prompt included."""
    backend: str
    """The backend that computed."""
    differing: int | None
    """With `verify_with`: the number of tokens whose logits have other bits on that backend."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ComparedModel:
    """A form of the weights under a recipe, compared with the original model."""

    form: str
    """The form of the weights, "as-stored" or a name of `lockstep convert --to`."""
    recipe: str
    """The recipe of the linear layers, or "none"."""
    perplexity: float
    """exp of the mean negative log-likelihood of the scored tokens."""
    bits_per_weight: float
    """The bits of all codes and scales of the matrices of decoder layers over the number of their elements."""
    mean_kl: float
    """The mean KL divergence from the distribution of the original, in nats."""
    top1_agreement: float
    """The share of scored tokens for which both models have the same likeliest token."""
    layer_errors: Sequence[float]
    """The relative root mean square error of the weights that the form changed, for each layer."""


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of a language model on a text, and of variants with other forms of the weights and other recipes. `float`
    gives the perplexity.
    """

    perplexity: float
    """exp of the mean negative log-likelihood of the scored tokens, of the model as it is stored."""
    bits_per_weight: float
    """The bits of all codes and scales of the matrices of decoder layers over the number of their elements."""
    scored_tokens: int
    """The number of scored tokens."""
    context: int
    """The largest number of tokens of a window."""
    stride: int
    """The number of tokens from one window to the next."""
    variants: Sequence[ComparedModel]
    """One for each form under each recipe, without the original."""
    picture: str = field(repr=False)
    """The error of the weights of each layer as an SVG picture, a curve for each form."""

    def __float__(self) -> float:
        return self.perplexity

    def _repr_svg_(self) -> str:
        return self.picture


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


def perplexity(
    model: str | os.PathLike[str],
    text: str,
    *,
    forms: str | Sequence[str] | None = None,
    recipes: str | Sequence[str] | None = None,
    **options: Any,
) -> Perplexity:
    """Measures the perplexity of a language model, as `generate` takes it, on a text, and of variants with other weights and
    recipes.

    `forms` and `recipes` are one name or several: forms=["ct-nvfp4", "as-stored"], recipes=("none", "mxfp8"). Each form is
    compared under each recipe. The other `options` are those of `lockstep perplexity`, with underscores: context=512,
    stride=256, tokens=4096, backend="cuda". The model is loaded for each call, and again for each form and recipe.

    Raises `LockstepError` for a model that cannot be read, a text of fewer than two tokens, logits that are NaN or infinite,
    and invalid options.
    """
    lists = {"forms": forms, "recipes": recipes}
    named = {key: names if names is None or isinstance(names, str) else ",".join(names) for key, names in lists.items()}
    words = command_words({"text": "text", "picture": "picture", **named, **options})
    frame = SERVER.run(["perplexity", os.path.abspath(model), *words], metadata={"text": text})
    result = frame.message["result"]
    return Perplexity(
        perplexity=result["original"]["perplexity"],
        bits_per_weight=result["original"]["bitsPerWeight"],
        scored_tokens=result["scoredTokens"],
        context=result["context"],
        stride=result["stride"],
        variants=[
            ComparedModel(
                form=each["form"],
                recipe=each["recipe"],
                perplexity=each["perplexity"],
                bits_per_weight=each["bitsPerWeight"],
                mean_kl=each["meanKl"],
                top1_agreement=each["top1Agreement"],
                layer_errors=each["layerErrors"],
            )
            for each in result["variants"]
        ],
        picture=frame.metadata["picture"],
    )
