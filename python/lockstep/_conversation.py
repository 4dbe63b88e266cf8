"""The conversation of a kernel with a conformance run in a child process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import LockstepError
from ._frames import Frame, read_frame, write_frame
from ._process import start


class Raised:
    """An exception of the kernel, and the input that raised it."""

    def __init__(self, error: Exception, input: Any) -> None:  # noqa: A002 - it is the kernel's input
        self.error = error
        self.input = input


def converse(
    name: str,
    operations: Mapping[str, Any],
    answer: Callable[[Frame], dict[str, np.ndarray]],
    words: Sequence[str],
) -> Any:
    """Answers the cases of a conformance run with these options. Returns its report, or the kernel's first exception."""
    __tracebackhide__ = True
    process = start("conform", "--subject", "-", *words, "--quiet")
    try:
        while True:
            frame = read_frame(process.stdout)  # type: ignore[arg-type]
            if frame is None:
                raise LockstepError("BACKEND", f"the conformance run ended with status {process.wait()}")
            kind = frame.message["type"]
            if kind == "report":
                return frame.message
            if kind == "hello":
                reply: dict[str, Any] = {"protocol": 1, "name": name, "operations": operations}
                tensors: dict[str, np.ndarray] = {}
            else:
                reply, tensors = {"id": frame.message["id"]}, {}
                try:
                    tensors = answer(frame)
                except Exception as error:  # noqa: BLE001 - whatever the kernel raises is its answer
                    if frame.message["phase"] == "draw":
                        return Raised(error, next(iter(frame.tensors.values())))
                    reply["error"] = f"{type(error).__name__}: {error}"
            write_frame(process.stdin, reply, tensors)  # type: ignore[arg-type]
    finally:
        for stream in (process.stdin, process.stdout):
            try:
                stream.close()  # type: ignore[union-attr]
            except OSError:
                pass  # the process has ended and does not read the rest
        process.kill()
        process.wait()
