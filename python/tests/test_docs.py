"""The examples of docs/python.md and docs/test-my-kernel.md run as written, and print what the pages show."""

import re
from pathlib import Path

import pytest

import lockstep

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def blocks_of(page: str, language: str) -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (DOCS / page).read_text(), re.S | re.M)
    return [text for name, text in blocks if name == language]


@pytest.mark.filterwarnings("ignore")
def test_the_examples_run(capsys):
    names: dict = {}
    for block in blocks_of("python.md", "python"):
        exec(compile(block, "python.md", "exec"), names)
    assert capsys.readouterr().out.startswith("float8_e4m3fn float8_e8m0fnu (32, 2)\n0.")


def test_the_kernel_of_the_tutorial_holds_and_its_mistake_is_named():
    kernel, _, mistake, _ = blocks_of("test-my-kernel.md", "python")
    names: dict = {}
    exec(compile(kernel, "test-my-kernel.md", "exec"), names)
    assert lockstep.assert_kernel(names["quantize"], "mxfp8") == 100
    exec(compile(mistake, "test-my-kernel.md", "exec"), names)
    with pytest.raises(lockstep.KernelMismatch) as raised:
        lockstep.assert_kernel(names["quantize"], "mxfp8")
    assert str(raised.value).strip() == blocks_of("test-my-kernel.md", "")[1].strip()
    assert lockstep.assert_kernel(names["quantize"], dialect="ocp-mxfp8") == 100
    with pytest.raises(lockstep.KernelMismatch, match=r"not by multiplyFromNormal \(x / max\(s, 2\^-126\)\)"):
        lockstep.assert_kernel(names["quantize"], dialect="torchao-mxfp8-floor")


def test_the_product_of_the_tutorial_is_accepted():
    *_, product = blocks_of("test-my-kernel.md", "python")
    names: dict = {}
    exec(compile(product, "test-my-kernel.md", "exec"), names)
    names["test_matmul"](lambda kernel, **options: lockstep.assert_kernel(kernel, runs=24, **options))
