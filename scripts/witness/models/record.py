"""Writes small language models with random weights to conformance/vectors/models/NAME/, with the results of transformers.

Each folder holds config.json and model.safetensors as the published models of that family have them, and witness.safetensors:

* tokens, i32 [T]: a prompt.
* logits.f32, f32 [T, V]: the logits of the prompt, on a CPU in f32 with eager attention.
* logits.f64, f64 [T, V]: the same logits in f64. The modules compute norms, softmax, angles and routers in f32 for every dtype of
  the model; here every f32 in them is replaced by f64. The difference to logits.f32 is the rounding error of f32.
* greedy, i32 [N]: the tokens with the largest logits that follow the prompt, of the f32 model.

The weights are normal draws rounded to bf16, large enough that every part of a model changes its logits. The folder is loaded
by `from_pretrained`, so transformers also reads the quantized forms. The arguments select the folders; default: all.

    pip install torch==2.15.0 transformers==5.23.0 accelerate==1.15.0
    python scripts/witness/models/record.py [NAME...]
"""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from double import doubles
from families import FAMILIES

ROOT = Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "models"
SEED = 20251
PROMPT, NEW = 24, 12


def draw(made, scales):
    """Draws each weight. The last pattern of `scales` that is part of a weight's name gives its mean and standard deviation."""
    torch.manual_seed(SEED)
    with torch.no_grad():
        for name, weight in sorted({**dict(made.named_parameters()), **dict(made.named_buffers())}.items()):
            if name.endswith(("inv_freq", "embed_scale")):
                continue
            mean, deviation = next((value for part, value in reversed(scales.items()) if part in name), (0, 0.3))
            weight.copy_((mean + deviation * torch.randn(weight.shape)).to(torch.bfloat16))


def published(path, family):
    """Rewrites a folder that transformers saved into the form of the family's published models."""
    config = json.loads((path / "config.json").read_text())
    for name in ("transformers_version", "dtype", "_name_or_path"):
        config.pop(name, None)
    config["torch_dtype"] = "bfloat16"
    (path / "config.json").write_text(json.dumps(family.config(config), indent=1, sort_keys=True) + "\n")
    for each in path.iterdir():
        if each.name not in ("config.json", "model.safetensors"):
            each.unlink()
    if family.store:
        family.store(path)


def load(path, family, dtype):
    made = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="eager", experts_implementation="eager", **family.loading()).eval()
    angles = {str(each.dtype) for name, each in made.named_buffers() if name.endswith("inv_freq")}
    made.to(dtype)
    if family.loaded:
        family.loaded(made, path)
    wrong = ({str(each.dtype) for each in made.parameters()} | angles) - {str(dtype)}
    assert not wrong, wrong
    return made


def record(name, family):
    path = ROOT / name
    shutil.rmtree(path, ignore_errors=True)
    made = family.model(family.settings).to(torch.bfloat16)
    draw(made, family.scales)
    made.save_pretrained(path)
    published(path, family)
    torch.manual_seed(SEED + 1)
    vocabulary = made.config.vocab_size
    tokens = torch.randint(0, vocabulary, (1, PROMPT))
    with torch.no_grad():
        single = load(path, family, torch.float32)
        f32 = single(tokens).logits[0]
        more = single.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW, use_cache=False)
        with doubles():
            double = load(path, family, torch.float64)
            f64 = double(tokens).logits[0]
            check = double(more).logits[0]
    assert f32.dtype == torch.float32 and f64.dtype == torch.float64
    error = (f32.double() - f64).abs().max().item()
    top = check[PROMPT - 1 : -1].topk(2).values
    gap = (top[:, 0] - top[:, 1]).min().item()
    assert check[PROMPT - 1 : -1].argmax(-1).tolist() == more[0, PROMPT:].tolist(), "the greedy tokens are not those of f64"
    print(f"{name}: largest logit {f64.abs().max().item():.3g}, error of f32 {error:.2e}, smallest gap of greedy tokens {gap:.2e}")
    save_file(
        {"tokens": tokens[0].int(), "logits.f32": f32.contiguous(), "logits.f64": f64.contiguous(), "greedy": more[0, PROMPT:].int()},
        path / "witness.safetensors",
        {"torch": torch.__version__, "transformers": sys.modules["transformers"].__version__},
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or FAMILIES:
        record(name, FAMILIES[name])
