"""The errors of this package."""


class LockstepError(Exception):
    """An input that Lockstep refuses, or a failure of its process. `code` is a constant, such as "SHAPE" or "ARGUMENT"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
