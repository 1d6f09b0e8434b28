"""A connector of the shape of LMCache's RemoteConnector over a stemma.PageStore.

Keys are anything whose to_string() or str() names it. Memory objects are what the backend's allocator gives: `metadata`
(shape, dtype, fmt), and `tensor` of one group of layers. Of several groups (shapes, dtypes), and of what a serde made
of a chunk (dtype None), it is `byte_array`. What is stored of one is its bytes behind a short header that says what
they are, so that one value is one read.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
from typing import Any, Iterator, Optional

import torch

from . import _stemma

try:
    from lmcache.v1.memory_management import MemoryFormat
    from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector
except ImportError:
    MemoryFormat = None

    class RemoteConnector:
        """Stands for LMCache's, where that is not installed."""


_HEADER = struct.Struct("<I")
_NAMES_MAX = 65536
_PING = "stemma ping"  # no chunk has this name


def _name(key: Any) -> str:
    return key.to_string() if hasattr(key, "to_string") else str(key)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _groups_of(metadata: Any) -> tuple[list, list]:
    """Shapes and dtypes of its groups of layers; a dtype is None where there are only bytes."""
    shapes, dtypes = getattr(metadata, "shapes", None), getattr(metadata, "dtypes", None)
    return (shapes, dtypes) if shapes and dtypes else ([metadata.shape], [metadata.dtype])


def _with_bytes(memory_obj: Optional[Any], body: memoryview) -> Optional[Any]:
    if memory_obj is not None:
        memoryview(memory_obj.byte_array).cast("B")[: len(body)] = body
    return memory_obj


class StemmaRemoteConnector(RemoteConnector):
    """Stores chunks of KV. `backend` allocates what get returns: allocate(shape, dtype, fmt) -> memory object."""

    def __init__(self, store: _stemma.PageStore, backend: Any):
        self._store, self._backend = store, backend
        self._names: dict[str, None] = {}  # that this process stored, in their order

    async def exists(self, key: Any) -> bool:
        return await asyncio.to_thread(self.exists_sync, key)

    def exists_sync(self, key: Any) -> bool:
        return self._store.exists([_name(key)]) == 1

    async def get(self, key: Any) -> Optional[Any]:
        """A memory object with the chunk; None: it is not there, or there is no memory for it."""
        value = await asyncio.to_thread(self._store.get, _name(key))
        return None if value is None else self._unpack(value)

    async def put(self, key: Any, memory_obj: Any) -> None:
        """Stores a chunk. Where there is no room it is not stored, as in any cache."""
        value = self._pack(memory_obj)
        if await asyncio.to_thread(self._store.put, _name(key), value):
            self._names[_name(key)] = None
            if len(self._names) > _NAMES_MAX:
                del self._names[next(iter(self._names))]

    async def list(self) -> list[str]:
        """Names that this process stored and that are still there, of the last _NAMES_MAX."""
        names = tuple(self._names)  # others may be stored meanwhile
        return await asyncio.to_thread(lambda: [name for name in names if self._store.exists([name]) == 1])

    async def close(self) -> None:
        await asyncio.to_thread(self._store.close)

    def support_ping(self) -> bool:
        return True

    async def ping(self) -> int:
        """0: it answers, with a value that is there for that."""
        return 0 if await asyncio.to_thread(self._answers) else 1

    def _answers(self) -> bool:
        return self._store.get(_PING) is not None or self._store.put(_PING, b"")

    def support_batched_get(self) -> bool:
        return True

    support_batched_put = support_batched_contains = support_batched_async_contains = support_batched_get
    support_batched_get_non_blocking = support_batched_get

    async def batched_get(self, keys: list[Any]) -> list[Optional[Any]]:
        """One entry a key, None where it is missing: positions are kept."""
        values = await asyncio.to_thread(lambda: [self._store.get(_name(key)) for key in keys])
        return [None if value is None else self._unpack(value) for value in values]

    async def batched_get_non_blocking(self, lookup_id: str, keys: list[Any]) -> list[Any]:
        """The chunks of the leading run that is there: none behind a gap, so that places are never mistaken."""
        values = await asyncio.to_thread(lambda: list(self._leading(keys)))
        return list(itertools.takewhile(lambda chunk: chunk is not None, map(self._unpack, values)))

    def _leading(self, keys: list[Any]) -> Iterator[bytes]:
        for key in keys:
            value = self._store.get(_name(key))
            if value is None:
                return
            yield value

    async def batched_put(self, keys: list[Any], memory_objs: list[Any]) -> None:
        for key, memory_obj in zip(keys, memory_objs):
            await self.put(key, memory_obj)

    def batched_contains(self, keys: list[Any]) -> int:
        """How many keys, from the first one on, are there."""
        return self._store.exists([_name(key) for key in keys])

    async def batched_async_contains(self, lookup_id: str, keys: list[Any], pin: bool = False) -> int:
        return await asyncio.to_thread(self.batched_contains, keys)

    def remove_sync(self, key: Any) -> bool:
        self._names.pop(_name(key), None)
        return self._store.remove(_name(key))

    def _pack(self, memory_obj: Any) -> bytes:
        metadata = memory_obj.metadata
        shapes, dtypes = _groups_of(metadata)
        if None in dtypes:
            body = memoryview(memory_obj.byte_array).cast("B")
            about = {"shape": [len(body), 0, 0, 0], "dtype": None}  # as LMCache has it of bytes
        elif len(shapes) > 1:
            size = sum(shape.numel() * torch.empty((), dtype=dtype).element_size() for shape, dtype in zip(shapes, dtypes))
            body = memoryview(memory_obj.byte_array).cast("B")[:size]  # it may lie in more
            about = {"shapes": [list(shape) for shape in shapes], "dtypes": list(map(_dtype_name, dtypes))}
        else:
            body = memory_obj.tensor.contiguous().cpu().view(torch.uint8).flatten().numpy()
            about = {"shape": list(metadata.shape), "dtype": _dtype_name(metadata.dtype)}
        fmt = getattr(metadata, "fmt", None)
        about["fmt"] = getattr(fmt, "value", fmt)
        header = json.dumps(about).encode()
        return b"".join((_HEADER.pack(len(header)), header, body))

    def _unpack(self, value: bytes) -> Optional[Any]:
        (length,) = _HEADER.unpack_from(value)
        about = json.loads(value[_HEADER.size : _HEADER.size + length])
        body = memoryview(value)[_HEADER.size + length :]
        fmt = self._format(about["fmt"])
        if "shapes" in about:
            shapes = [torch.Size(shape) for shape in about["shapes"]]
            dtypes = [getattr(torch, dtype) for dtype in about["dtypes"]]
            return _with_bytes(self._backend.allocate(shapes, dtypes, fmt), body)
        shape = torch.Size(about["shape"])
        if about["dtype"] is None:
            return _with_bytes(self._backend.allocate(shape, None, fmt), body)
        dtype = getattr(torch, about["dtype"])
        memory_obj = self._backend.allocate(shape, dtype, fmt)
        if memory_obj is None:
            return None
        memory_obj.tensor.copy_(torch.frombuffer(bytearray(body), dtype=dtype).view(shape))
        return memory_obj

    def _format(self, value: Any) -> Any:
        """The name of a layout in the backend's own enumeration of them, or in LMCache's."""
        kinds = getattr(self._backend, "formats", MemoryFormat)
        return value if kinds is None or value is None else kinds(value)
