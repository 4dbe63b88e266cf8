"""The examples of docs/python.md run as written, and find the mistakes that they are meant to find."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "python.md"


@pytest.mark.filterwarnings("ignore")
def test_the_examples_run(capsys):
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert printed.startswith("float8_e8m0fnu 0.")
    assert "to_e4m3 is not mxfp8" in printed
