"""stemma.compat_lmcache keeps the contract of an LMCache remote connector, with a stand-in for LMCache's memory."""

import asyncio
import ctypes
import enum
import itertools
import os
import subprocess
import sys
import threading
import types

import pytest

torch = pytest.importorskip("torch")

import stemma  # noqa: E402
from stemma.compat_lmcache import StemmaRemoteConnector  # noqa: E402


class Format(enum.Enum):
    KV_2LTD = 1
    BINARY_BUFFER = 5


class Backend:
    """Allocates chunks until it is told that there is no memory."""

    formats, is_full, allocations = Format, False, 0

    def allocate(self, shape, dtype, fmt=None):
        self.allocations += 1
        if self.is_full:
            return None
        if fmt is Format.BINARY_BUFFER:
            return BytesChunk(bytearray(shape[0]))
        return GroupsChunk(shape, dtype, fmt) if isinstance(shape, list) else chunk_of(torch.zeros(shape, dtype=dtype), fmt)


def chunk_of(tensor, fmt=Format.KV_2LTD):
    return types.SimpleNamespace(
        tensor=tensor, metadata=types.SimpleNamespace(shape=tensor.shape, dtype=tensor.dtype, fmt=fmt)
    )


class BytesChunk:
    """What a serde makes of a chunk, and what is allocated for that."""

    tensor = None

    def __init__(self, byte_array):
        self.byte_array = byte_array
        shape = torch.Size([len(byte_array), 0, 0, 0])
        self.metadata = types.SimpleNamespace(shape=shape, dtype=None, fmt=Format.BINARY_BUFFER, shapes=None, dtypes=None)


class GroupsChunk:
    """Layers of several shapes and dtypes, one behind another in memory that may be longer."""

    def __init__(self, shapes, dtypes, fmt):
        self.metadata = types.SimpleNamespace(shape=shapes[0], dtype=dtypes[0], fmt=fmt, shapes=shapes, dtypes=dtypes)
        groups = [torch.empty(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes)]
        self.ends = list(itertools.accumulate(group.numel() * group.element_size() for group in groups))
        self.memory = (ctypes.c_ubyte * (self.ends[-1] + 512))()

    @property
    def tensor(self):
        raise RuntimeError("the memory is not of the first group's shape")

    @property
    def byte_array(self):
        return memoryview(self.memory)

    def group(self, index):
        begin = ([0] + self.ends)[index]
        whole = torch.frombuffer(self.memory, dtype=torch.uint8)[begin : self.ends[index]]
        return whole.view(self.metadata.dtypes[index]).view(self.metadata.shapes[index])


class Key:
    def __init__(self, chunk_hash):
        self.chunk_hash = chunk_hash

    def to_string(self):
        return f"vllm@model@2@0@{self.chunk_hash:x}@half"


@pytest.fixture
def backend():
    return Backend()


@pytest.fixture(params=["memory", "disk"])
def connector(request, backend, tmp_path):
    size = {"value_bytes": 8192, "bytes_max": 4 << 20}
    make = stemma.PageStore.memory if request.param == "memory" else stemma.PageStore.disk
    opened = make(**size) if request.param == "memory" else make(str(tmp_path), **size)
    yield StemmaRemoteConnector(opened, backend)
    opened.close()


def run(coroutine):
    return asyncio.run(coroutine)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.uint8])
def test_a_chunk_comes_back(connector, dtype):
    chunk = chunk_of((torch.randn(2, 3, 16, 8) * 10).to(dtype))
    assert run(connector.get(Key(1))) is None and not run(connector.exists(Key(1)))
    run(connector.put(Key(1), chunk))
    assert run(connector.exists(Key(1))) and connector.exists_sync(Key(1))
    back = run(connector.get(Key(1)))
    assert torch.equal(back.tensor, chunk.tensor) and back.tensor.dtype == dtype
    assert back.metadata.shape == chunk.tensor.shape and back.metadata.fmt is Format.KV_2LTD


# As remote_serde "cachegen" gives them.
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_chunk_of_bytes_comes_back(connector, kind):
    run(connector.put(Key(1), BytesChunk(kind(range(256)))))
    back = run(connector.get(Key(1)))
    assert back.byte_array == bytes(range(256)) and back.metadata.fmt is Format.BINARY_BUFFER


def test_a_chunk_of_several_groups_of_layers_comes_back(connector, backend):
    shapes, dtypes = [torch.Size([2, 3, 16, 8]), torch.Size([1, 2, 16, 4])], [torch.bfloat16, torch.uint8]
    chunk = GroupsChunk(shapes, dtypes, Format.KV_2LTD)
    chunk.group(0).normal_()
    chunk.group(1).random_(256)
    run(connector.put(Key(1), chunk))
    back = run(connector.get(Key(1)))
    assert back.metadata.shapes == shapes and back.metadata.dtypes == dtypes and back.metadata.fmt is Format.KV_2LTD
    assert all(torch.equal(back.group(index), chunk.group(index)) for index in (0, 1))
    backend.is_full = True
    assert run(connector.get(Key(1))) is None


def test_a_last_chunk_may_be_shorter(connector):
    run(connector.put(Key(1), chunk_of(torch.ones(2, 3, 5, 8))))
    assert run(connector.get(Key(1))).tensor.shape == (2, 3, 5, 8)


def test_a_chunk_that_is_too_long_is_not_stored(connector):
    run(connector.put(Key(1), chunk_of(torch.ones(8192))))
    assert run(connector.get(Key(1))) is None


def test_without_memory_nothing_comes_back(connector, backend):
    run(connector.put(Key(1), chunk_of(torch.ones(4))))
    backend.is_full = True
    assert run(connector.get(Key(1))) is None


def test_what_lies_behind_a_gap_takes_no_memory(connector, backend):
    run(connector.batched_put([Key(1), Key(3), Key(4)], [chunk_of(torch.ones(4))] * 3))
    assert len(run(connector.batched_get_non_blocking("lookup", [Key(i) for i in (1, 2, 3, 4)]))) == 1
    assert backend.allocations == 1


def test_names_are_kept_of_the_last_ones(connector, monkeypatch):
    monkeypatch.setattr("stemma.compat_lmcache._NAMES_MAX", 2)
    for i in (1, 2, 3):
        run(connector.put(Key(i), chunk_of(torch.ones(4))))
    assert run(connector.list()) == [Key(2).to_string(), Key(3).to_string()]


def test_batches_keep_their_positions(connector):
    run(connector.batched_put([Key(1), Key(2), Key(4)], [chunk_of(torch.full((4,), float(i))) for i in (1, 2, 4)]))
    keys = [Key(i) for i in (1, 2, 3, 4)]
    got = run(connector.batched_get(keys))
    assert [None if one is None else one.tensor[0].item() for one in got] == [1, 2, None, 4]
    assert len(run(connector.batched_get_non_blocking("lookup", keys))) == 2
    assert connector.batched_contains(keys) == run(connector.batched_async_contains("lookup", keys)) == 2


def test_what_was_stored_is_listed_and_can_be_removed(connector):
    run(connector.put(Key(1), chunk_of(torch.ones(4))))
    run(connector.put(Key(2), chunk_of(torch.ones(4))))
    assert run(connector.list()) == [Key(1).to_string(), Key(2).to_string()]
    assert connector.remove_sync(Key(1)) and not connector.remove_sync(Key(1))
    assert run(connector.list()) == [Key(2).to_string()]


# All that LMCache has under way waits for its loop.
def test_what_waits_for_the_store_does_not_hold_the_loop(connector):
    threads, store = set(), connector._store

    class Watched:
        def __getattr__(self, name):
            def called(*arguments):
                threads.add(threading.get_ident())
                return getattr(store, name)(*arguments)

            return called

    connector._store = Watched()
    for call in (
        lambda: connector.put(Key(1), chunk_of(torch.ones(4))),
        lambda: connector.get(Key(1)),
        lambda: connector.exists(Key(1)),
        lambda: connector.list(),
        lambda: connector.batched_get([Key(1)]),
        lambda: connector.batched_get_non_blocking("lookup", [Key(1)]),
        lambda: connector.batched_async_contains("lookup", [Key(1)]),
        lambda: connector.ping(),
    ):
        threads.clear()
        run(call())
        assert threads and threading.get_ident() not in threads


def test_it_answers_until_it_is_closed(connector):
    assert connector.support_ping() and run(connector.ping()) == 0
    run(connector.close())
    with pytest.raises(stemma.InvalidArgumentError, match="closed"):
        run(connector.ping())


def test_a_server_that_is_down_does_not_answer(backend, redis):
    for url, code in (redis, 0), ("redis://127.0.0.1:1", 1):
        store = stemma.PageStore.remote(url, value_bytes=100, deadline_us=1_000_000)
        assert run(StemmaRemoteConnector(store, backend).ping()) == code
        store.close()


LMCACHE = {
    "memory_management": """
import enum
class MemoryFormat(enum.Enum):
    UNDEFINED = 0
    KV_2LTD = enum.auto()
""",
    "storage_backend/connector/base_connector": """
from abc import ABC, abstractmethod
class RemoteConnector(ABC):
    async def exists(self, key): ...
    def exists_sync(self, key): ...
    async def get(self, key): ...
    async def put(self, key, memory_obj): ...
    async def list(self): ...
    async def close(self): ...
    for method in (exists, exists_sync, get, put, list, close):
        abstractmethod(method)
    del method
""",
}

# Its local memory knows no enumeration of formats; who reads a chunk compares with LMCache's own.
AS_LMCACHE_USES_IT = """
import asyncio, types
import stemma, torch
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector
from stemma.compat_lmcache import StemmaRemoteConnector

class LocalMemory:
    def allocate(self, shapes, dtypes, fmt=None, eviction=True, busy_loop=True):
        metadata = types.SimpleNamespace(shape=shapes, dtype=dtypes, fmt=fmt)
        return types.SimpleNamespace(tensor=torch.zeros(shapes, dtype=dtypes), metadata=metadata)

connector = StemmaRemoteConnector(stemma.PageStore.memory(value_bytes=8192, bytes_max=1 << 20), LocalMemory())
assert isinstance(connector, RemoteConnector)
chunk = LocalMemory().allocate(torch.Size([2, 3, 16, 8]), torch.float16, MemoryFormat.KV_2LTD)
asyncio.run(connector.put("key", chunk))
assert asyncio.run(connector.get("key")).metadata.fmt is MemoryFormat.KV_2LTD
"""


def test_it_speaks_lmcaches_own_kinds_where_that_is_installed(tmp_path):
    for name, text in LMCACHE.items():
        module = tmp_path / "lmcache" / "v1" / f"{name}.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run([sys.executable, "-c", AS_LMCACHE_USES_IT], env={**os.environ, "PYTHONPATH": path}, check=True)
