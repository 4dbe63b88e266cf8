"""The errors of this package."""

from __future__ import annotations


class LockstepError(Exception):
    """An input that Lockstep refuses, or a failure of its process. `code` is a constant, such as "SHAPE" or "ARGUMENT"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        # process pools pickle errors; this rebuilds them from both arguments
        return type(self), (self.code, str(self))
