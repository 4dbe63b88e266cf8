"""Generated text: Python returns what the command line returns, and its tokens follow from logits."""

import io
import json

import numpy as np
import pytest

import lockstep
from lockstep._frames import write_frame

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
