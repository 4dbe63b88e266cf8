"""Language models: Python returns what the command line returns, and tokens follow from logits."""

import io
import json
import subprocess

import numpy as np
import pytest

import lockstep
from lockstep._frames import write_frame
from lockstep._process import node, program

LETTERS = "abcdefghijklmnopqrstuvwxyz"
HIDDEN = 32


@pytest.fixture
def model(tmp_path):
    """A tiny Llama of random weights whose tokens are letters."""
    draw = np.random.default_rng(1)
    config = {
        "model_type": "llama",
        "vocab_size": len(LETTERS),
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }
    matrices = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
    matrices += ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    shapes = {f"model.layers.0.{name}.weight": (HIDDEN, HIDDEN) for name in matrices}
    shapes["model.embed_tokens.weight"] = (len(LETTERS), HIDDEN)
    for name in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"):
        shapes[f"model.{name}.weight"] = (HIDDEN,)
    file = io.BytesIO()
    write_frame(file, None, {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()})
    # a frame is the length of a safetensors file, and the file
    (tmp_path / "model.safetensors").write_bytes(file.getvalue()[8:])
    tokenizer = {
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(LETTERS)}, "merges": []},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return tmp_path


def test_the_text_is_that_of_its_tokens_and_is_repeated(model):
    first = lockstep.generate(model, "abc", max_tokens=5)
    assert first.prompt_tokens == [0, 1, 2] and len(first.tokens) == 5
    assert str(first) == first.text == "".join(LETTERS[token] for token in first.tokens)
    assert len(first.logits_sha256) == 64 and first.backend == "wasm" and first.differing is None
    again = lockstep.generate(str(model), "abc", max_tokens=5, verify_with="wasm")
    assert (again.tokens, again.logits_sha256, again.differing) == (first.tokens, first.logits_sha256, 0)


def test_a_seed_determines_drawn_tokens(model):
    drawn = [lockstep.generate(model, "abc", max_tokens=8, temperature=9.0, seed=seed).tokens for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_model_that_is_missing_and_a_prompt_without_tokens_are_errors(model, tmp_path):
    for path, prompt, code in [(tmp_path / "none", "abc", "FILE"), (model, "A", "ARGUMENT"), (model, "a" * 32, "ARGUMENT")]:
        with pytest.raises(lockstep.LockstepError) as caught:
            lockstep.generate(path, prompt)
        assert caught.value.code == code


def test_perplexity_is_that_of_the_command_line_with_every_form_under_every_recipe(model, tmp_path):
    text = "abcabdacbzzyxw" * 2
    (tmp_path / "text").write_text(text)
    words = ["perplexity", str(model), "--text", str(tmp_path / "text"), "--forms", "as-stored,ct-mxfp4", "--recipes", "none,mxfp8"]
    printed = json.loads(subprocess.run([node(), str(program()), *words, "--context", "16", "--json"], check=True, capture_output=True).stdout)
    got = lockstep.perplexity(model, text, forms=["as-stored", "ct-mxfp4"], recipes=("none", "mxfp8"), context=16)
    assert float(got) == got.perplexity == printed["original"]["perplexity"] > 1
    assert (got.scored_tokens, got.context, got.stride) == (26, 16, 16)
    assert [(each.form, each.recipe) for each in got.variants] == [("as-stored", "mxfp8"), ("ct-mxfp4", "none"), ("ct-mxfp4", "mxfp8")]
    for each, expected in zip(got.variants, printed["variants"], strict=True):
        assert [each.perplexity, each.mean_kl, each.top1_agreement, each.bits_per_weight, each.layer_errors] == [
            expected[key] for key in ("perplexity", "meanKl", "top1Agreement", "bitsPerWeight", "layerErrors")
        ]
    assert got.picture.startswith("<svg ") and got.picture.count("<polyline ") == 1
    one = lockstep.perplexity(model, text, forms="ct-mxfp4", context=16)
    assert (one.perplexity, one.variants) == (got.perplexity, [got.variants[1]])


def test_perplexity_refuses_what_it_cannot_measure(model):
    for text, options in [("a", {}), ("abc", {"forms": "int3"}), ("abc", {"context": 33}), ("A", {})]:
        with pytest.raises(lockstep.LockstepError) as caught:
            lockstep.perplexity(model, text, **options)
        assert caught.value.code == "ARGUMENT"
