"""What a child of fork() inherits: of no use there, no harm to its parent, and let go of without a wait."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import numpy
import pytest

import stemma
from stemma._stores import open_store

MODEL = pathlib.Path(__file__).parents[2] / "models/scribe-3m"
PROMPT = list(range(1, 10))


def in_child(work, meanwhile=lambda: None):
    """What a child ended with: 0, where `work` returned and all that it still had was dropped. `meanwhile` is its parent's."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        answer = 1
        try:
            work()
            answer = 0
        finally:
            os._exit(answer)
    meanwhile()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def disk(tmp_path):
    return stemma.PageStore.disk(str(tmp_path / "disk"), value_bytes=4096, bytes_max=64 << 20)


def share(tmp_path, name="disk", bytes_max=1 << 22):
    """As connectors of engines have a disk store: opened once a process."""
    return open_store({"directory": str(tmp_path / name), "value_bytes": 4096, "bytes_max": bytes_max})


def tiered():
    pool = stemma.Pool(layers=1, pages=8, page_size=4, heads=1, head_dim=8)
    tiers = stemma.Tiers(pool, host_bytes=1 << 20)
    return stemma.Cache(pages=8, page_size=4, tiers=tiers, write_policy="write-through")


def engine():
    return stemma.LLM(str(MODEL), kv_bytes=1 << 24, threads=2)


def refuses(call):
    with pytest.raises(stemma.UnsupportedError, match="forked"):
        call()


def test_a_disk_store_is_the_parents_still(tmp_path):
    stores = [disk(tmp_path)]
    assert stores[0].put("one", b"1")

    def child():
        refuses(lambda: stores[0].get("one"))
        refuses(lambda: stores[0].put("two", b"wrong"))
        stores[0].close()
        stores.clear()

    assert in_child(child) == 0
    assert stores[0].put("two", b"2")
    assert [stores[0].get(name) for name in ("one", "two")] == [b"1", b"2"]
    stores[0].close()
    assert disk(tmp_path).get("two") == b"2"


# Of the lock of shares, too, others may be amid a use.
def test_a_share_is_let_go_of_whatever_others_are_opening(tmp_path):
    shares = [share(tmp_path), share(tmp_path)]
    assert shares[0].put("one", b"1")
    opening, over = threading.Event(), threading.Event()

    class Waits:
        def __index__(self):
            opening.set()
            over.wait()
            return 1 << 22

    other = threading.Thread(target=lambda: share(tmp_path, "other", Waits()).close())
    other.start()
    opening.wait()

    def child():
        refuses(lambda: shares[0].get("one"))
        shares[0].close()
        shares.clear()

    try:
        assert in_child(child) == 0
    finally:
        over.set()
        other.join()
    assert shares[0].get("one") == b"1"
    shares.pop().close()
    assert shares[0].get("one") == b"1"


def test_a_child_opens_a_directory_that_its_parent_has_closed(tmp_path):
    shares, (ready, go) = [share(tmp_path)], os.pipe()
    assert shares[0].put("one", b"1")

    def child():
        os.read(ready, 1)
        own, second = share(tmp_path), share(tmp_path)
        assert own.get("one") == b"1" and own.put("two", b"2")
        shares.pop().close()  # is the parent's
        own.close()
        assert second.get("two") == b"2"

    def close():
        shares[0].close()
        os.write(go, b"1")

    assert in_child(child, meanwhile=close) == 0
    assert share(tmp_path).get("two") == b"2"


def test_a_store_in_memory_is_a_childs_own():
    store = stemma.PageStore.memory(value_bytes=4096, bytes_max=1 << 20)
    assert store.put("one", b"1")

    def child():
        assert store.get("one") == b"1" and store.put("one", b"2")
        store.close()
        with pytest.raises(stemma.InvalidArgumentError, match="closed"):
            store.get("one")

    assert in_child(child) == 0
    assert store.get("one") == b"1"


def test_a_cache_over_tiers_is_let_go_of():
    caches = [tiered()]
    caches.append(caches[0].namespace(tenant="ada"))
    caches.append(caches[0].begin(PROMPT))
    caches[-1].reserve(9)

    def child():
        refuses(lambda: caches[0].probe(PROMPT))
        refuses(lambda: caches[-1].commit(PROMPT))
        caches[-1].close()
        caches.clear()

    assert in_child(child) == 0
    caches[-1].finish(PROMPT)
    caches[0].settle()
    assert caches[0].evict(8) == 2 and caches[0].promote(PROMPT) is not None


def test_tiers_get_no_cache_in_a_child():
    pool = stemma.Pool(layers=1, pages=8, page_size=4, heads=1, head_dim=8)
    tiers = stemma.Tiers(pool, host_bytes=1 << 20)
    assert in_child(lambda: refuses(lambda: stemma.Cache(pages=8, page_size=4, tiers=tiers))) == 0
    stemma.Cache(pages=8, page_size=4, tiers=tiers)


def test_a_cache_without_tiers_is_a_childs_own():
    cache = stemma.Cache(pages=8, page_size=4)

    def child():
        with cache.begin(PROMPT) as sequence:
            sequence.reserve(9)
            sequence.finish(PROMPT)
        assert cache.probe(PROMPT) == 8

    assert in_child(child) == 0
    assert cache.probe(PROMPT) == 0


@pytest.mark.parametrize("kind", ["cache", "index", "store"])
def test_what_is_a_childs_own_is_not_amid_a_call_there(kind):
    text = numpy.arange(1 << 18, dtype=numpy.int32)
    if kind == "cache":
        cache = stemma.Cache(pages=1, context_tokens_max=1 << 18)
        held = [cache.begin(text)]
        call, ask = (lambda: cache.probe(text)), cache.stats
    elif kind == "index":
        index = stemma._stemma.SlotIndex(page_size=1)
        held = [index.insert(text, text)]
        call, ask = (lambda: index.match(text)), index.usage
    else:
        store, held = stemma.PageStore.memory(value_bytes=1 << 20, bytes_max=1 << 24), []
        call, ask = (lambda: store.put("name", bytes(1 << 20))), store.stats
    stop = threading.Event()

    def repeat():
        while not stop.is_set():
            call()

    threads = [threading.Thread(target=repeat) for _ in range(3)]
    for thread in threads:
        thread.start()

    def child():
        ask()
        held.clear()

    try:
        assert [in_child(child) for _ in range(10)] == [0] * 10
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.skipif(not MODEL.exists(), reason="the model is not here")
def test_an_engine_is_let_go_of():
    engines = [engine()]
    engines[0].generate(["Once"], {"max_tokens": 2})

    def child():
        refuses(lambda: engines[0].generate(["Once"], {"max_tokens": 2}))
        engines[0].close()
        engines.clear()

    assert in_child(child) == 0
    assert engines[0].generate(["Once"], {"max_tokens": 2})[0].outputs[0].token_ids


@pytest.mark.parametrize(
    "opened",
    [
        "stemma.Tiers(pool, host_bytes=1 << 20)",
        "stemma.Cache(pages=8, page_size=4, tiers=stemma.Tiers(pool, host_bytes=1 << 20))",
        "stemma.PageStore.disk(directory, value_bytes=4096, bytes_max=64 << 20)",
        f"stemma.LLM({str(MODEL)!r}, kv_bytes=1 << 24, threads=2)",
    ],
    ids=["tiers", "cache", "store", "engine"],
)
def test_a_child_ends_as_python_does(opened, tmp_path):
    program = f"""
import os, signal, sys, stemma
pool = stemma.Pool(layers=1, pages=8, page_size=4, heads=1, head_dim=8)
directory = {str(tmp_path / "disk")!r}
held = {opened}
child = os.fork()
if child == 0:
    signal.alarm(20)
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
