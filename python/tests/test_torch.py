"""PyTorch inside `reference` and `record`: bits of a GPU on a CPU, and runs that replay. PyTorch itself is optional."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import lockstep

torch = pytest.importorskip("torch", reason="torch is not installed; its modes were not tried")

import torch_runs  # noqa: E402 - it needs PyTorch
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402 - it needs PyTorch

import lockstep.torch as modes  # noqa: E402 - it needs PyTorch
from lockstep._digest import DeviceDigests, digest_of  # noqa: E402 - it needs PyTorch
from lockstep._run_files import bytes_of  # noqa: E402 - it needs PyTorch

VECTORS = Path(__file__).parents[2] / "conformance/vectors"
# the version of PyTorch that the models describe
MODELLED = torch.__version__.startswith("2.11.")


def replayed(folder, *options):
    words = [sys.executable, "-m", "lockstep", "replay", str(folder), "--json", *options]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    return answer.returncode, json.loads(answer.stdout)


def same_bits(tensor, array):
    own = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
    assert own == np.ascontiguousarray(array).tobytes()


def test_nothing_is_imported_without_it():
    code = "import sys, lockstep; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_product_has_the_bits_of_the_reference():
    a, b = torch.randn(16, 256).bfloat16(), torch.randn(256, 24).bfloat16()
    with modes.reference("h200") as mode:
        product = a @ b
    expected = lockstep.gemm(a, b.t().contiguous(), datapath="hopper", out_dtype="bf16").d
    same_bits(product, expected.view(ml_dtypes.bfloat16))
    (row,) = mode.operators()
    assert (row.name, row.count, row.status) == ("aten::mm", 1, "same" if MODELLED else "unverified")


def test_operators_without_a_model_run_as_they_do_and_are_listed():
    x = torch.randn(4, 8)
    with modes.reference() as mode:
        result = x.sinc()
    assert torch.equal(result, x.sinc())
    assert [(row.name, row.status) for row in mode.operators()] == [("aten::sinc", "not modelled")]
    assert str(mode) == "aten::sinc      1  not modelled: the table has no such operator"


def test_views_alias_and_strides_are_kept():
    x = torch.zeros(3, 4)
    with modes.reference():
        x.t()[1].add_(1)
        y = x.t().to(torch.bfloat16)
    assert x[:, 1].tolist() == [1, 1, 1] and y.stride() == x.t().to(torch.bfloat16).stride()


def test_an_operator_in_place_reads_its_operands_first():
    x = torch.tensor([1.0, 2.0])
    with modes.reference():
        assert x.mul_(x) is x
    assert x.tolist() == [1, 4]


def test_operators_that_return_nothing_have_the_tensors_that_they_write(tmp_path):
    inputs = [torch.randn(8), torch.randn(3, 5)]
    lists = [[each.clone() for each in inputs] for _ in range(4)]
    steps = [torch.tensor(3.0) for _ in inputs]
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.01, "eps": 1e-8, "amsgrad": False, "maximize": False}
    with modes.reference() as mode, modes.record(tmp_path / "run"):
        torch._foreach_mul_(lists[2], 0.3)
        torch._fused_adamw_(*lists[:3], [each.abs() for each in inputs], [], steps, **numbers)
    assert [row.name for row in mode.operators() if row.status == "not modelled"] == []
    for scaled, each in zip(lists[2], inputs, strict=True):
        assert not torch.equal(scaled, each)
    status, report = replayed(tmp_path / "run")
    assert (status, report["differs"], report["notModelled"]) == (0, 0, 0)
    operations = [each["lockstep"] for each in json.loads((tmp_path / "run" / "log.json").read_text())["logs"]]
    assert {each["schema"]: len(each["outputs"]) for each in operations} == {"aten::_foreach_mul_.Scalar": 2, "aten::abs": 1, "aten::_fused_adamw_": 8}


@pytest.mark.parametrize("program", [torch_runs.moves, torch_runs.roundings])
def test_what_pytorch_computes_on_a_cpu_has_the_bits_of_the_models(program, tmp_path):
    run = program()
    with modes.record(tmp_path / "run"):
        run()
    _, report = replayed(tmp_path / "run")
    # a CPU rounds a cube in f16 once; a GPU also rounds the square
    assert {each["schema"] for each in report["verdicts"] if each["verdict"] == "differs"} <= {"aten::pow.Tensor_Scalar"}
    assert report["same"] > 0.9 * report["operations"]


def test_a_block_replays_as_the_same_and_a_fault_is_named(tmp_path):
    run = torch_runs.block()
    with modes.reference("h200") as mode, modes.record(tmp_path / "run"):
        run()
    status, report = replayed(tmp_path / "run")
    assert (status, report["differs"]) == (0, 0)
    listed = {row.name for row in mode.operators() if row.status == "not modelled"}
    assert listed == {each["schema"] for each in report["reasons"]}
    log = json.loads((tmp_path / "run" / "log.json").read_text())
    operations = [each["lockstep"] for each in log["logs"]]
    index = next(i for i, each in enumerate(operations) if each["schema"] == "aten::mm")
    (output,) = operations[index]["outputs"]
    # exchanges elements with another tensor of the run
    others = [each for operation in operations for each in operation["outputs"] if each["dtype"] == output["dtype"]]
    wrong = next(each for each in others if np.prod(each["shape"]) == np.prod(output["shape"]) and each["sha256"] != output["sha256"])
    operations[index]["outputs"] = [{**wrong, "shape": output["shape"]}]
    (tmp_path / "run" / "log.json").write_text(json.dumps(log))
    status, report = replayed(tmp_path / "run")
    assert (status, report["first"], report["differs"]) == (1, index, 1)


@pytest.mark.parametrize("outputs", ["sample", "hash"])
def test_samples_and_hashes_are_judged_too(outputs, tmp_path):
    a, b = torch.randn(8, 64).bfloat16(), torch.randn(64, 8).bfloat16()
    with modes.reference(), modes.record(tmp_path / "right", outputs=outputs, samples=10):
        a @ b
    assert replayed(tmp_path / "right")[0] == 0
    # a product of the CPU, whose sums are in another order; large products that cancel make its rounding errors visible in bf16
    large, small = torch.randn(64, 2048) * 2**14, torch.randn(64, 2048)
    x = torch.cat([large, small, -large], 1).bfloat16()
    y = torch.cat([large, small, large], 1).bfloat16().t()
    with modes.record(tmp_path / "wrong", outputs=outputs, samples=4096):
        torch.mm(x, y)
    status, report = replayed(tmp_path / "wrong")
    assert (status, report["first"]) == (1, 0)
    difference = report["verdicts"][0]["differences"][0]
    assert ("first" in difference) == (outputs == "sample")


def test_each_operation_has_its_own_sample_also_of_equal_outputs(tmp_path):
    x = torch.randn(100)
    with modes.record(tmp_path / "run", outputs="sample", samples=8):
        outputs = [x.neg(), x.neg(), x.neg().reshape(10, 10).clone(), x.abs(), x.neg()]
    assert replayed(tmp_path / "run")[0] == 0
    data = (tmp_path / "run" / "tensors.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    logs = [each["lockstep"] for each in json.loads((tmp_path / "run" / "log.json").read_text())["logs"]]
    sampled = {str(indices): indices for each in logs for output in each["outputs"] if (indices := output.get("sample", {}).get("indices"))}
    assert len(sampled) > 3
    for each in logs:
        for output in each["outputs"]:
            sample = output.get("sample")
            if sample is None:
                continue
            begin, end = header[sample["tensor"]]["data_offsets"]
            values = np.frombuffer(data[8 + size :][begin:end], np.float32)
            (whole,) = {str(bits): bits for y in outputs if hashlib.sha256(bits := bytes_of(y)).hexdigest() == output["sha256"]}.values()
            assert values.tolist() == np.frombuffer(whole, np.float32)[sample["indices"]].tolist()


def test_digests_are_of_bytes_and_places():
    tensors = [torch.randn(9001), torch.randn(7, 3).bfloat16(), torch.randn(33).half()[1:], torch.tensor(3.5), torch.zeros(0), torch.randn(8, 8).t()]
    digests = DeviceDigests()
    for x in tensors:
        digests.add(x)
    assert digests.read() == [digest_of(bytes_of(x)) for x in tensors]


def test_a_sum_that_is_not_in_row_major_order_has_no_model(tmp_path):
    x = torch.randn(8, 4)
    with modes.reference() as mode, modes.record(tmp_path / "run"):
        x.sum(0)
        x.t().sum(0)
    assert [(row.name, row.status) for row in mode.operators() if "sum" in row.name] == [
        ("aten::sum.dim_IntList", "same" if MODELLED else "unverified"),
        ("aten::sum.dim_IntList", "not modelled"),
    ]
    status, report = replayed(tmp_path / "run")
    assert (status, [each["verdict"] for each in report["verdicts"]]) == (0, ["same", "same", "not modelled"])


class Generator:
    """A stand-in for a CUDA generator, of which this machine may have none."""

    def __init__(self, offset):
        self.device = torch.device("cuda")
        self._offset = offset

    def initial_seed(self):
        return 2**64 - 1

    def get_offset(self):
        if self._offset is None:
            raise RuntimeError("a graph is captured")
        return self._offset


def test_an_operator_that_draws_has_the_state_of_its_generator():
    rand, add = torch.ops.aten.rand.generator, torch.ops.aten.add.Tensor
    assert modes.generator_state(rand, [[3]], {"generator": Generator(8)}) == {"seed": str(2**64 - 1), "offset": 8}
    assert modes.generator_state(rand, [[3]], {"generator": Generator(None)}) is None
    assert modes.generator_state(rand, [[3]], {"generator": torch.Generator()}) is None
    assert modes.generator_state(add, [torch.ones(1), 1], {}) is None
    assert modes.generator_state(torch.ops.aten.rand.default, [[3]], {}) is None


def test_the_state_of_the_generator_is_judged(monkeypatch, tmp_path):
    monkeypatch.setattr(modes, "_cuda_generator", lambda args, kwargs: Generator(4))
    x = torch.ones(64)
    with modes.record(tmp_path / "run"):
        torch.ops.aten.native_dropout(x, 0.5, True)
    (entry,) = json.loads((tmp_path / "run" / "log.json").read_text())["logs"]
    assert entry["lockstep"]["generator"] == {"seed": str(2**64 - 1), "offset": 4}
    # a CPU draws other numbers than a GPU with this state
    _, report = replayed(tmp_path / "run")
    assert [each["verdict"] for each in report["verdicts"]] == ["differs"]


def test_dropout_is_judged_by_its_mask_without_a_generator(tmp_path):
    x = torch.randn(64)
    with modes.record(tmp_path / "run"):
        torch.ops.aten.native_dropout(x, 0.5, True)
    _, report = replayed(tmp_path / "run")
    (verdict,) = report["verdicts"]
    assert (verdict["verdict"], verdict["unverified"]) == ("same", True)


class Doubled(torch.Tensor):
    """A tensor whose class runs its operators itself, as torchao's Float8TrainingTensor does: it stands for twice the stored one."""

    @staticmethod
    def __new__(cls, stored):
        return torch.Tensor._make_wrapper_subclass(cls, stored.shape, dtype=stored.dtype)

    def __init__(self, stored):
        self.stored = stored

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = [each.stored * 2 if isinstance(each, Doubled) else each for each in args]
        return func(*plain, **(kwargs or {}))


def test_of_a_class_of_tensors_the_operators_that_it_runs_are_recorded(tmp_path):
    x, y = Doubled(torch.full((2, 3), 1.5)), torch.ones(2, 3)
    with modes.reference("h200") as mode, modes.record(tmp_path / "run"):
        z = x + y
    assert z.tolist() == [[4.0] * 3] * 2
    assert [row.name for row in mode.operators()] == ["aten::mul.Tensor", "aten::add.Tensor"]
    assert [row.status for row in mode.operators()] == ["same", "same"] or torch.__version__[:4] != "2.11"
    logs = json.loads((tmp_path / "run" / "log.json").read_text())["logs"]
    assert [entry["lockstep"]["schema"] for entry in logs] == ["aten::mul.Tensor", "aten::add.Tensor"]


def test_an_operator_without_tensors_is_left_out(tmp_path):
    with modes.record(tmp_path / "run"), torch.profiler.record_function("region"):
        torch.ones(3).sum().item()
    logs = json.loads((tmp_path / "run" / "log.json").read_text())["logs"]
    assert [each["lockstep"]["schema"] for each in logs] == ["aten::ones", "aten::sum"]


def test_a_run_of_digests_has_no_tensors_but_of_chosen_operations(tmp_path):
    x, w = torch.randn(8, 64).bfloat16(), torch.randn(32, 64).bfloat16()

    def program():
        y = x @ w.t()
        return (y + 1).clone().add_(1)

    for name, options in {"all": {}, "digests": {"outputs": "digest"}, "one": {"outputs": "digest", "operations": [1]}}.items():
        with modes.reference(), modes.record(tmp_path / name, **options):
            program()
    logs = {name: [each["lockstep"] for each in json.loads((tmp_path / name / "log.json").read_text())["logs"]] for name in ("all", "digests", "one")}
    digests = {name: [output.get("digest") for each in log for output in each["outputs"]] for name, log in logs.items()}
    # the view w.t() has no digest
    assert digests["digests"] == [None, *digests["all"][1:]]
    assert [("tensor" in output) for each in logs["one"] for output in each["outputs"]] == [False, True, False, False, False]
    assert not any("tensor" in output for each in logs["digests"] for output in each["outputs"])
    status, report = replayed(tmp_path / "one", "--against", tmp_path / "all")
    assert (status, report["against"]) == (0, {"compared": 4, "different": 0})
    assert [each["verdict"] for each in report["verdicts"]].count("same") == 1
    x[0, 0] = 1000
    with modes.reference(), modes.record(tmp_path / "other", outputs="digest"):
        program()
    status, report = replayed(tmp_path / "other", "--against", tmp_path / "digests")
    assert (status, report["against"]["first"]["schema"], report["against"]["different"]) == (1, "aten::mm", 4)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda folder: modes.record(folder, operations=[1]), "outputs is 'whole'"),
        (lambda folder: modes.reference("h20"), "chip is 'h20'"),
        (lambda folder: modes.record(folder, outputs="all"), "outputs is 'all'"),
        (lambda folder: modes.record(folder, samples=0), "samples is 0"),
    ],
)
def test_wrong_arguments_are_told_what_is_needed(call, said, tmp_path):
    with pytest.raises(lockstep.LockstepError, match=said):
        call(tmp_path / "run")


def test_a_recorded_folder_is_not_overwritten_and_the_order_of_modes_is_checked(tmp_path):
    with modes.record(tmp_path / "run"):
        torch.zeros(2)
    with pytest.raises(lockstep.LockstepError, match="has a recorded run"), modes.record(tmp_path / "run"):
        pass
    with modes.record(tmp_path / "other"), pytest.raises(lockstep.LockstepError, match="enter reference first"), modes.reference():
        pass
    assert sorted(os.listdir(tmp_path / "run")) == ["contract.json", "log.json", "tensors.safetensors"]


def test_the_contract_has_what_decides_bits(tmp_path):
    with modes.reference("h200"), modes.record(tmp_path / "run"):
        torch.ones(2) * 3
    contract = json.loads((tmp_path / "run" / "contract.json").read_text())
    assert (contract["chip"], contract["computed_by"]) == ("h200", "reference")
    assert contract["versions"]["torch"] == torch.__version__
    words = [sys.executable, "-m", "lockstep", "contract", "check", str(tmp_path / "run")]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_logs_are_those_of_the_debug_mode(tmp_path):
    debug = pytest.importorskip("torch.utils._debug_mode").DebugMode
    if not hasattr(debug, "load_logs"):
        pytest.skip("this version of PyTorch has no DebugMode.load_logs; its reader was not tried")
    with modes.record(tmp_path / "run"):
        torch.ones(2) * 3
    assert [str(each).split("(")[0] for each in debug.load_logs(tmp_path / "run" / "log.json")] == ["aten::ones", "aten::mul.Tensor"]


def drawn(seed, shape):
    """A float16 tensor of conformance/vectors/torch-operators, of the kind normal."""
    x = (np.arange(np.prod(shape), dtype=np.uint64) + (seed * 0x9E3779B9 & 0xFFFFFFFF)) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * factor & 0xFFFFFFFF
    x = x ^ (x >> 16)
    exponent = 120 + sum((x >> 23 + i) & 1 for i in range(8))
    bits = (x & 0x80000000) | (exponent << 23) | (x & 0x7FFFFF)
    return torch.from_numpy(bits.astype(np.uint32).view(np.float32).reshape(shape)).half()


def recorded_attention(name, operands):
    """The hash of the output of the recorded causal call of an operator of attention with these operands."""
    calls = json.loads((VECTORS / "torch-operators/attention.json").read_text())["calls"]
    (call,) = [
        each
        for each in calls
        if each["schema"] == f"aten::_scaled_dot_product_{name}"
        and each["args"][-1] is True
        and (each["args"][0]["dtype"], each["args"][0]["shape"]) == ("F16", list(operands[0].shape))
    ]
    return call["outputs"][0][2]


def attention(operands, **options):
    return torch.nn.functional.scaled_dot_product_attention(*operands, **options)


@pytest.mark.parametrize("has_cudnn", [True, False])
def test_attention_is_that_of_the_gpu(has_cudnn):
    operands = [drawn(seed, (1, 2, 64, 64)) for seed in (1, 2, 3)]
    kernels = [SDPBackend.FLASH_ATTENTION, *([SDPBackend.CUDNN_ATTENTION] if has_cudnn else [])]
    with modes.reference() as mode, sdpa_kernel(kernels):
        out = attention(operands, is_causal=True)
    name = "cudnn_attention" if has_cudnn else "flash_attention"
    bits = out.contiguous().view(torch.uint8).numpy().tobytes()
    assert hashlib.sha256(bits).hexdigest()[:16] == recorded_attention(name, operands)
    rows = [(row.name, row.count, row.status) for row in mode.operators()]
    assert rows == [(f"aten::_scaled_dot_product_{name}", 1, "same" if MODELLED else "unverified")]


def test_the_gradient_of_attention_runs_as_on_a_cpu():
    operands = [drawn(seed, (1, 1, 8, 32)).requires_grad_() for seed in (1, 2, 3)]
    with modes.reference() as mode:
        attention(operands).float().sum().backward()
    assert all(each.grad is not None for each in operands)
    assert "aten::_scaled_dot_product_flash_attention_for_cpu_backward" in {row.name for row in mode.operators() if row.status == "not modelled"}


def test_attention_that_flash_attention_refuses_on_a_gpu_is_not_modelled():
    query, key, value = drawn(1, (1, 1, 8, 32)), drawn(2, (1, 1, 16, 32)), drawn(3, (1, 1, 16, 32))
    mask = torch.zeros(8, 16).half()
    with modes.reference() as mode, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        attention((query, key, value), is_causal=True)
        attention((query, key, value), attn_mask=mask)
        attention((query, key, value))
    counts = {(row.name, row.status): row.count for row in mode.operators()}
    assert counts == {
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "not modelled"): 2,
        ("aten::_scaled_dot_product_flash_attention", "same" if MODELLED else "unverified"): 1,
    }


def test_an_operator_of_a_gpu_that_returns_lengths_is_an_error_on_a_cpu():
    operands = [drawn(seed, (1, 1, 8, 32)) for seed in (1, 2, 3)]
    with modes.reference(), pytest.raises(NotImplementedError):
        torch.ops.aten._scaled_dot_product_flash_attention(*operands)
    with modes.reference():
        out, _, _, _ = torch.ops.aten._scaled_dot_product_efficient_attention(*operands, None, True)
    assert out.shape == operands[0].shape
