"""Records whole layers of TransformerEngine, kernel by kernel, for the tests that compare Lockstep with them.

python3 scripts/witness/te_layers.py FOLDER [RECIPE ...], on a machine with an H100 or H200, torch and TransformerEngine.

FOLDER/te-layers-RECIPE.json.gz gets the cases of one recipe: transformer layers as in Llama and in GPT with unfused attention,
and LayerNormLinear and LayerNormMLP, all on ordinary random inputs (te_draws.py). A case runs some iterations, each with its
own parameters and inputs, and the last one is recorded: `calls` has each call of TransformerEngine's extension and of its
compiled functions in order, with arguments and results, and the arguments, results and gradients of each module. A tensor is
recorded once, in `tensors`, under the first half of the SHA-256 of its bits: its bits in base64, row-major.
"""

import base64
import gzip
import hashlib
import json
import os
import re
import sys
import traceback

import te_environment  # noqa: F401

# unfused attention: its steps are kernels of TransformerEngine and products of PyTorch
os.environ.update(NVTE_FLASH_ATTN="0", NVTE_FUSED_ATTN="0")

import torch  # noqa: E402


def compiles():
    """Whether torch.compile works here. TransformerEngine compiles some functions with it, such as bias plus gelu."""
    try:
        return torch.compile(lambda x: x * 2 + 1)(torch.ones(8, device="cuda"))[0].item() == 3
    except Exception as error:  # for example without a C compiler
        print(f"te_layers: torch.compile: {error}", file=sys.stderr, flush=True)
        return False


COMPILED = compiles()
os.environ["NVTE_TORCH_COMPILE"] = str(int(COMPILED))

import te_vectors  # noqa: E402
import transformer_engine.pytorch as te  # noqa: E402
import transformer_engine_torch as tex  # noqa: E402
from te_vectors import LOGGED, NAMES, RECIPES, attempt, on_gpu, redraw  # noqa: E402
from transformer_engine.pytorch import cpp_extensions, transformer  # noqa: E402
from transformer_engine.pytorch.module import layernorm_mlp  # noqa: E402

RECORDED = ["bf16", "delayed", "current", "block"]
# larger arguments are workspaces
LARGEST = 1 << 22


class Recorder:
    """The calls of the running case while `active`, and the bits of all tensors of all cases."""

    def __init__(self):
        self.active = False
        self.calls = []
        self.tensors = {}

    def tensor(self, tensor):
        tensor = tensor.detach().contiguous()
        record = {"type": NAMES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.")), "shape": list(tensor.shape)}
        if tensor.numel() * tensor.element_size() > LARGEST:
            return {**record, "workspace": True}
        raw = tensor.view(-1).view(torch.uint8).cpu().numpy().tobytes() if tensor.numel() else b""
        key = hashlib.sha256(raw).hexdigest()[:32]
        self.tensors[key] = base64.b64encode(raw).decode()
        return {**record, "bits": key}

    def value(self, value):
        """A JSON value of an argument or a result."""
        parts = quantized_parts(value)
        if parts:
            tensors = {name.strip("_"): self.value(getattr(value, name)) for name in parts}
            is_stale = getattr(value, "_transpose_invalid", False)
            if is_stale:
                tensors["transpose"] = None
            return {"quantized": type(value).__name__, "format": str(value._fp8_dtype), "tiles": getattr(value, "_is_2D_scaled", None), **tensors}
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if hasattr(value, "rowwise_usage"):
            names = ["dtype", "rowwise_usage", "columnwise_usage", "scale", "amax", "force_pow_2_scales", "amax_epsilon", "block_scaling_dim"]
            fields = {name: self.value(getattr(value, name)) for name in names if hasattr(value, name)}
            return {"quantizer": type(value).__name__, **fields}
        if isinstance(value, (list, tuple)):
            return [self.value(each) for each in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return str(value)

    def call(self, name, run, args, kwargs):
        if not self.active:
            return run(*args, **kwargs)
        given = {"call": name, "arguments": self.value(args)}
        if kwargs:
            given["options"] = {key: self.value(each) for key, each in kwargs.items()}
        # nested calls come after this one
        self.calls.append(given)
        results = run(*args, **kwargs)
        given["results"] = self.value(results)
        # a quantizer's amax, and tensors that the call writes
        after = self.value(args)
        if after != given["arguments"]:
            given["argumentsAfter"] = after
        if name == "generic_gemm":
            given["algorithms"] = LOGGED.new()
        return results


def quantized_parts(value):
    for names in (["_data", "_transpose", "_scale_inv"], te_vectors.PER_BLOCK):
        if all(hasattr(value, name) for name in names):
            return names
    return None


RECORDER = Recorder()


def wrap(module, name, prefix=""):
    run = getattr(module, name)
    setattr(module, name, lambda *args, **kwargs: RECORDER.call(f"{prefix}{name}", run, args, kwargs))


KERNELS = re.compile(
    r"(generic_gemm|quantize|bgrad_quantize|dequantize|fp8_transpose|compute_amax|layernorm_\w+|rmsnorm_\w+|scaled_\w*softmax\w*|fused_\w*rope\w*"
    r"|(d|dbias_d|clamped_|clamped_d)?(q|s)?(gelu|geglu|relu|reglu|silu|swiglu|glu))"
)


def wrap_all():
    for name in dir(tex):
        if KERNELS.fullmatch(name) and callable(getattr(tex, name)):
            wrap(tex, name)
            if hasattr(cpp_extensions, name):
                setattr(cpp_extensions, name, getattr(tex, name))
    for module, names in ((layernorm_mlp, ["bias_gelu_fused", "bgrad_dgelu_fused"]), (transformer, ["bias_dropout_add_fused_train"])):
        for name in names:
            if hasattr(module, name):
                wrap(module, name, "compiled ")


def watch(model):
    """Records each module's arguments, results and their gradients."""

    def gradients_of(record, where, tensors):
        for i, each in enumerate(tensors):
            if isinstance(each, torch.Tensor) and each.requires_grad:
                each.register_hook(lambda grad, key=f"{where} {i}": record["gradients"].update({key: RECORDER.value(grad)}))

    def hook(name):
        def after(module, args, kwargs, results):
            if not RECORDER.active:
                return
            results = results if isinstance(results, tuple) else (results,)
            named = {key: each for key, each in kwargs.items() if isinstance(each, torch.Tensor)}
            record = {"module": name, "class": type(module).__name__, "gradients": {}}
            record["arguments"] = RECORDER.value(args)
            record["options"] = {key: RECORDER.value(each) for key, each in named.items()}
            record["results"] = RECORDER.value(results)
            gradients_of(record, "argument", args)
            gradients_of(record, "result", results)
            for key, each in named.items():
                gradients_of(record, key, [each])
            RECORDER.calls.append(record)

        return after

    for name, module in model.named_modules():
        module.register_forward_hook(hook(name), with_kwargs=True)


LAYERS = {
    "llama": {"heads": 4, "groups": 2, "hidden": 256, "ffn": 384, "normalization": "RMSNorm", "activation": "swiglu", "bias": False, "rope": True},
    "gpt": {"heads": 4, "groups": 4, "hidden": 256, "ffn": 512, "normalization": "LayerNorm", "activation": "gelu", "bias": True, "rope": False},
}


def layer_of(case):
    return te.TransformerLayer(
        *(case["hidden"], case["ffn"], case["heads"]),
        num_gqa_groups=case["groups"],
        hidden_dropout=0.0,
        attention_dropout=0.0,
        normalization=case["normalization"],
        activation=case["activation"],
        bias=case["bias"],
        fuse_qkv_params=True,
        attn_input_format="bshd",
        self_attn_mask_type="causal",
        params_dtype=torch.bfloat16,
        device="cuda",
    )


def module_of(case):
    options = {"bias": case["bias"], "normalization": case["normalization"], "params_dtype": torch.bfloat16, "device": "cuda"}
    if case["module"] == "LayerNormLinear":
        return te.LayerNormLinear(case["in"], case["out"], **options)
    return te.LayerNormMLP(case["in"], case["hidden"], activation=case["activation"], **options)


def cases(recipe):
    seed = 500000
    for name, layer in LAYERS.items():
        seed += 1000
        yield {"module": "TransformerLayer", "name": name, "recipe": recipe, **layer, "shape": [2, 32, layer["hidden"]], "seed": seed}
    sizes = {"in": 128, "out": 192, "shape": [48, 128], "bias": True}
    for normalization in ("LayerNorm", "RMSNorm"):
        seed += 1000
        yield {"module": "LayerNormLinear", "recipe": recipe, **sizes, "normalization": normalization, "seed": seed}
    sizes = {"in": 128, "hidden": 192, "shape": [48, 128], "bias": True, "normalization": "LayerNorm"}
    for activation in ("gelu", "silu", "swiglu", "geglu"):
        seed += 1000
        yield {"module": "LayerNormMLP", "recipe": recipe, **sizes, "activation": activation, "seed": seed}


ITERATIONS = 2


def iterate(model, call, case, recipe, iteration):
    redraw(model, case, iteration)
    base = case["seed"] + 100 * iteration + 50
    x = on_gpu("bell", "bf16", base, case["shape"]).requires_grad_()
    with te.autocast(enabled=recipe is not None, recipe=recipe):
        y = call(x)
    dy = on_gpu("bell", "bf16", base + 1, tuple(y.shape))
    y.backward(dy)
    torch.cuda.synchronize()
    results = {"y": y, "dx": x.grad, **{f"d {name}": parameter.grad for name, parameter in sorted(model.named_parameters())}}
    for parameter in model.parameters():
        parameter.grad = None
    return results


def run(case):
    is_layer = case["module"] == "TransformerLayer"
    model = layer_of(case) if is_layer else module_of(case)
    make = RECIPES[case["recipe"]]
    recipe = make() if make else None
    call = model
    angles = None
    if is_layer and case["rope"]:
        angles = te.RotaryPositionEmbedding(case["hidden"] // case["heads"])(case["shape"][1])
        call = lambda x: model(x, rotary_pos_emb=angles)  # noqa: E731
    RECORDER.calls = []
    LOGGED.new()
    watch(model)
    for iteration in range(ITERATIONS):
        RECORDER.active = iteration == ITERATIONS - 1
        results = iterate(model, call, case, recipe, iteration)
        LOGGED.new()
    RECORDER.active = False
    record = {"iterations": ITERATIONS, "results": {name: RECORDER.value(each) for name, each in results.items()}, "calls": RECORDER.calls}
    if angles is not None:
        record["angles"] = RECORDER.value(angles)
    return record


def attempted(case):
    """The case with its record, or with the reason why it has none; the traceback goes to stderr."""

    def body():
        try:
            return run(case)
        except Exception:
            RECORDER.active = False
            traceback.print_exc()
            raise

    return attempt(case, body)


def main():
    folder, *names = sys.argv[1:]
    wrap_all()
    for recipe in names or RECORDED:
        RECORDER.tensors = {}
        records = [attempted(case) for case in cases(recipe)]
        origin = {**te_vectors.origin(), "how": "python3 scripts/witness/te_layers.py FOLDER"}
        origin["version"] += f", cuDNN {torch.backends.cudnn.version()}, torch.compile {'used' if COMPILED else 'not used'}"
        path = os.path.join(folder, f"te-layers-{recipe}.json.gz")
        with gzip.open(path, "wt", compresslevel=6) as file:
            json.dump({"origin": origin, "layers": records, "tensors": RECORDER.tensors}, file, separators=(",", ":"))
        refused = [f"{case['module']} {case['seed']}: {case['refused']}" for case in records if "refused" in case]
        print(f"{path}: {len(records)} cases, {os.path.getsize(path)} bytes, {len(refused)} refused", flush=True)
        for reason in refused:
            print(f"  {reason}", flush=True)


if __name__ == "__main__":
    main()
