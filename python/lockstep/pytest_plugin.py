"""The pytest plugin: a fixture that compares kernels with the reference.

    def test_my_kernel(assert_kernel):
        assert_kernel(my_quantizer, "mxfp8")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lockstep")
    group.addoption("--lockstep-runs", type=int, default=100, help="inputs for each kernel (default 100)")
    group.addoption("--lockstep-seed", type=int, default=1, help="seed of the inputs (default 1)")


@pytest.fixture
def assert_kernel(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """As `lockstep.assert_kernel`, with the number of inputs and the seed from the command line."""
    from . import kernels

    chosen = {
        "runs": request.config.getoption("--lockstep-runs"),
        "seed": request.config.getoption("--lockstep-seed"),
    }

    def check(kernel: kernels.Kernel, quantizer: str | None = None, **options: Any) -> kernels.Agreement:
        __tracebackhide__ = True
        return kernels.assert_kernel(kernel, quantizer, **{**chosen, **options})

    return check
