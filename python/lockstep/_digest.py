"""Digests of tensors: 64 bits that depend on the bytes and their positions, computed on the tensor's device without a
synchronization.

The bytes, in row-major order and padded with zeros, are 32-bit words w. In arithmetic modulo 2^32, t = w + i * 9E3779B1 for
word i, then t ^= t >> 16, t *= 7FEB352D, t ^= t >> 15. The digest is the sum of all t, followed by the sum of all t * (2 i +
1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

try:
    import triton
    import triton.language as tl
except ImportError:  # builds of PyTorch for a CPU have none
    triton = None

_MASK = 0xFFFFFFFF
_BLOCK = 4096
_SLOTS = 1024


def digest_of(data: bytes) -> str:
    """The digest of bytes, in hexadecimal."""
    words = np.frombuffer(data + bytes(-len(data) % 4), "<u4")
    places = np.arange(len(words), dtype=np.uint32)
    t = words + places * np.uint32(0x9E3779B1)
    t ^= t >> np.uint32(16)
    t *= np.uint32(0x7FEB352D)
    t ^= t >> np.uint32(15)
    sums = t.sum(dtype=np.uint64), (t * (2 * places + np.uint32(1))).sum(dtype=np.uint64)
    return "".join(f"{int(each) & _MASK:08x}" for each in sums)


if triton is not None:

    @triton.jit(do_not_specialize=["slot", "count"])
    def _add_digest(words, sums, slot, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803 - Triton's way
        place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = place < count
        i = place.to(tl.uint32)
        t = tl.load(words + place, mask=inside, other=0).to(tl.uint32, bitcast=True)
        t += i * 0x9E3779B1
        t ^= t >> 16
        t *= 0x7FEB352D
        t ^= t >> 15
        t = tl.where(inside, t, 0)
        tl.atomic_add(sums + 2 * slot, tl.sum(t.to(tl.int64), 0))
        tl.atomic_add(sums + 2 * slot + 1, tl.sum((t * (2 * i + 1)).to(tl.int64), 0))


def _words_of(x: torch.Tensor) -> torch.Tensor:
    """The words of a tensor as I32. Copies only tensors with gaps, an odd length or an odd address."""
    flat = x.detach().contiguous().reshape(-1).view(torch.uint8)
    rest = -flat.numel() % 4
    if rest:
        return torch.nn.functional.pad(flat, (0, rest)).view(torch.int32)
    return (flat.clone() if flat.data_ptr() % 4 else flat).view(torch.int32)


def _sums_of(words: torch.Tensor) -> torch.Tensor:
    """The two sums by PyTorch's operators, as I64."""
    places = torch.arange(words.numel(), device=words.device)
    t = (words.to(torch.int64) + places * 0x9E3779B1) & _MASK
    t ^= t >> 16
    t = t * 0x7FEB352D & _MASK
    t ^= t >> 15
    return torch.stack([t.sum() & _MASK, (t * ((2 * places + 1) & _MASK) & _MASK).sum() & _MASK])


class DeviceDigests:
    """The digests of tensors on devices. `add` only enqueues work; `read` waits for all of it."""

    def __init__(self) -> None:
        # by device: blocks of pairs of sums; the last block has free pairs
        self._blocks: dict[torch.device, list[torch.Tensor]] = {}
        self._counts: dict[torch.device, int] = {}
        self._places: list[tuple[torch.device, int]] = []

    def add(self, x: torch.Tensor) -> int:
        """Enqueues the digest of a tensor, and returns its number."""
        device = x.device
        count = self._counts.get(device, 0)
        blocks = self._blocks.setdefault(device, [])
        slot = count % _SLOTS
        if slot == 0:
            with _disable_current_modes():
                blocks.append(torch.zeros(_SLOTS, 2, dtype=torch.int64, device=device))
        self._counts[device] = count + 1
        self._places.append((device, count))
        size = x.numel() * x.element_size()
        if size == 0:
            return len(self._places) - 1
        if triton is None or not x.is_cuda:
            with _disable_current_modes():
                blocks[-1][slot].copy_(_sums_of(_words_of(x)))
        elif size % 4 or x.data_ptr() % 4 or not x.is_contiguous():
            with _disable_current_modes():
                self._launch(_words_of(x), blocks[-1], slot, -(-size // 4))
        else:
            self._launch(triton.reinterpret(x, tl.int32), blocks[-1], slot, size // 4)
        return len(self._places) - 1

    def _launch(self, words: Any, block: torch.Tensor, slot: int, count: int) -> None:
        grid = (-(-count // _BLOCK),)
        if block.device.index == torch.cuda.current_device():
            _add_digest[grid](words, block, slot, count, BLOCK=_BLOCK)
            return
        with torch.cuda.device(block.device):
            _add_digest[grid](words, block, slot, count, BLOCK=_BLOCK)

    def read(self) -> list[str]:
        """The digests in hexadecimal, by their numbers."""
        hosts = {device: [pair for block in blocks for pair in block.cpu().tolist()] for device, blocks in self._blocks.items()}
        return ["".join(f"{each & _MASK:08x}" for each in hosts[device][number]) for device, number in self._places]
