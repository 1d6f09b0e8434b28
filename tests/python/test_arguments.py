"""A wrong argument is an exception, whatever it is: it never ends the process."""

import os
import pathlib
import subprocess
import sys

import pytest

import stemma
from stemma import _stemma

MODEL = pathlib.Path(__file__).parents[2] / "models/scribe-3m"


def cache_of(**more):
    return stemma.Cache(**{"pages": 4, "page_size": 3, "context_tokens_max": 10, **more})


def behind(cache, tokens):
    return cache.namespace_behind(cache.namespace(model="m"), tokens, tenant="a")


def pool_of(**more):
    return stemma.Pool(**{"layers": 1, "pages": 1, "page_size": 1, "heads": 1, "head_dim": 8, **more})


def memory_of(**more):
    return stemma.PageStore.memory(**{"value_bytes": 8, "bytes_max": 1 << 20, **more})


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: cache_of(pages=2**40),
        lambda: cache_of(pages=-1),
        lambda: cache_of(page_size=2**62),
        lambda: cache_of(context_tokens_max=2**62),
        lambda: cache_of(requests_max=2**40),
        lambda: cache_of(requests_max=0),
        lambda: cache_of().begin(range(11)),
        lambda: cache_of().probe(range(11)),
        lambda: cache_of().promote(range(11)),
        lambda: cache_of().want(range(11)),
        lambda: behind(cache_of(), range(12)),
        lambda: cache_of().begin([1]).reserve(-5),
        lambda: cache_of().begin([1]).commit([1]),
        lambda: cache_of().evict(-1),
        lambda: cache_of().namespace(a=1.5),
        lambda: _stemma.SlotIndex(page_size=0),
        lambda: _stemma.SlotIndex(tokens_max=2**50),
        lambda: _stemma.SlotIndex(tokens_max=2**31 - 1),
        lambda: _stemma.SlotIndex(events_pages_max=-1),
        lambda: _stemma.SlotIndex().match([1], _stemma.SlotIndex().namespace()),
        lambda: _stemma.SlotIndex().insert([1, 2], [1]),
        lambda: _stemma.SlotIndex().evict(-1),
        lambda: _stemma.SlotIndex().match([]).slots(1),
        lambda: _stemma.SlotIndex().match([]).unlock(),
        lambda: pool_of(layers=2**40, pages=2**20),
        lambda: pool_of(pages=2**40),
        lambda: pool_of(layers=0).k(0),
        lambda: pool_of(kind="mla", latent_dim=9),
        lambda: pool_of().k(-1),
        lambda: memory_of(value_bytes=0),
        lambda: memory_of(value_bytes=2**62).put("a", b""),
        lambda: memory_of(bytes_max=0),
        lambda: stemma.page_keys([1], 0, bytes(32)),
        lambda: cache_of().begin([2**100]),
        lambda: cache_of().begin([1, -(2**100)]),
        lambda: stemma.LLM(MODEL, threads=0),
        lambda: stemma.LLM(MODEL, kv_bytes=-1),
        lambda: stemma.LLM(MODEL, page_size=0),
        lambda: stemma.LLM(MODEL, page_size=2**40),
        lambda: stemma.LLM(MODEL, requests_max=0),
        lambda: stemma.LLM(MODEL, waiting_max=0),
        lambda: stemma.LLM(MODEL, waiting_max=2**63 - 1),
        lambda: stemma.LLM(MODEL, waiting_max=2**40),
        lambda: stemma.LLM(MODEL, kv_dtype="x"),
        lambda: stemma.replay("/dev/null", capacity_pages=2**40),
        lambda: stemma.replay("/dev/null", capacity_pages=4, page_tokens=-1),
        lambda: stemma.replay([], capacity_pages=4),
    ],
)
def test_what_is_out_of_range_is_refused(wrong):
    with pytest.raises(stemma.Error):
        wrong()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: cache_of(pages="4"),
        lambda: cache_of(pages=2**70),
        lambda: cache_of().begin(None),
        lambda: cache_of().begin([1], "namespace"),
        lambda: cache_of().begin(["a"]),
        lambda: stemma.Sequence(),
        lambda: _stemma.SlotIndex().match([1], 99),
        lambda: memory_of().put("a", "text"),
        lambda: memory_of().get(5),
        lambda: stemma.LLM(MODEL, threads="many"),
        lambda: _stemma.Engine(str(MODEL), {"kv_bytes": 8 << 20}).run([{}]),
    ],
)
def test_what_is_of_a_wrong_type_is_refused(wrong):
    with pytest.raises((TypeError, ValueError, RuntimeError, KeyError)):
        wrong()


@pytest.mark.parametrize(
    "wrong, name",
    [
        (lambda: stemma.LLM(MODEL, kv_dtype="x"), "^kv_dtype: "),
        (lambda: stemma.LLM(MODEL, threads=0), "^threads must be"),
        (lambda: stemma.LLM(MODEL, device="gpu"), "^device must be cpu, cuda or cuda:N"),
        (lambda: stemma.replay("/dev/null", capacity_pages=0), "^capacity_pages must be"),
    ],
)
def test_an_argument_is_named_as_python_knows_it(wrong, name):
    with pytest.raises(stemma.Error, match=name):
        wrong()


def unmade(kind):
    return kind.__new__(kind)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: unmade(stemma.Cache).stats(),
        lambda: unmade(stemma.Cache).begin([1]),
        lambda: unmade(stemma.Pool).total_bytes,
        lambda: unmade(stemma.Pool).k(0),
        lambda: unmade(_stemma.Engine).encode("x"),
        lambda: unmade(_stemma.SlotIndex).usage(),
        lambda: cache_of(tiers=unmade(stemma.Tiers)),
        lambda: stemma.Tiers(unmade(stemma.Pool), host_bytes=1 << 20),
    ],
)
def test_an_object_without_its_init_is_refused(wrong):
    with pytest.raises(stemma.Error, match="before its __init__"):
        wrong()


MADE_BY_OTHERS = [
    stemma.Namespace, stemma.PageList, stemma.PageStore, stemma.Promotion, stemma.Sequence, stemma.TensorPart,
    _stemma.NumberList, _stemma.SlotMatch, _stemma.SlotNamespace,
]  # fmt: skip


@pytest.mark.parametrize("kind", MADE_BY_OTHERS)
def test_what_others_make_is_not_made_without_them(kind):
    class Derived(kind):
        pass

    for one in (kind, Derived):
        for make in (one, lambda: unmade(one), lambda: object.__new__(one), lambda: super(kind, kind).__new__(one)):
            with pytest.raises(TypeError):
                make()


def test_every_class_is_one_or_the_other():
    kinds = {kind for kind in vars(_stemma).values() if isinstance(kind, type)}
    assert kinds - {*MADE_BY_OTHERS} == {stemma.Cache, stemma.Pool, stemma.Tiers, _stemma.Engine, _stemma.SlotIndex}


def test_a_derived_object_is_refused_until_init_has_made_it():
    class Derived(stemma.Cache):
        def __init__(self):
            with pytest.raises(stemma.Error):
                self.stats()
            with pytest.raises(stemma.Error):
                super().__init__(pages=0)
            with pytest.raises(stemma.Error):
                self.stats()
            super().__init__(pages=4)

    assert Derived().stats()["total_pages"] == 4


@pytest.mark.parametrize(
    "wrong, name",
    [
        (lambda: cache_of().namespace(a=2**70), "^a: of a wrong type, or out of its range"),
        (lambda: cache_of().namespace(a="\ud800"), "^a: of a wrong type"),
        (lambda: cache_of(tiers=5), "an argument is of a wrong type"),
        (lambda: cache_of().begin([1], 5), "an argument is of a wrong type"),
        (lambda: stemma.Cache.begin(5, [1]), "an argument is of a wrong type"),
    ],
)
def test_what_does_not_fit_is_refused_as_everything_else(wrong, name):
    with pytest.raises(stemma.InvalidArgumentError, match=name):
        wrong()


# Systems would take each for what it is up to there.
@pytest.mark.parametrize(
    "wrong",
    [
        lambda path: stemma.PageStore.disk(path, value_bytes=8, bytes_max=1 << 20),
        lambda path: stemma.PageStore.remote("redis://127.0.0.1\0:1", value_bytes=8),
        lambda path: stemma.Tiers(pool_of(), host_bytes=1 << 20, host_file=path),
        lambda path: stemma.Tiers(pool_of(), host_bytes=1 << 20, purge_file=path),
        lambda path: stemma.Tiers(pool_of(), host_bytes=1 << 20, disk_directory=path),
        lambda path: stemma.Tiers(pool_of(), host_bytes=1 << 20, remote="redis://127.0.0.1\0:1"),
        lambda path: stemma.LLM(f"{MODEL}\0x"),
        lambda path: stemma.LLM(MODEL, disk_directory=path),
        lambda path: stemma.LLM(MODEL, adapters={"a": path}),
        lambda path: stemma.replay(path, capacity_pages=4),
    ],
)
def test_a_path_with_a_zero_byte_is_refused(wrong, tmp_path):
    with pytest.raises(stemma.InvalidArgumentError, match="zero byte"):
        wrong(f"{tmp_path}/a\0b")
    assert not list(tmp_path.iterdir())


# A range makes its numbers while it is read, and keeps none of them.
def test_a_sequence_that_makes_its_items_is_read():
    numbers = range(1000, 1016)
    assert stemma.page_keys(numbers, 4, bytes(32)) == stemma.page_keys(list(numbers), 4, bytes(32))
    code = "import stemma; stemma.page_keys(range(1000, 5000), 4, bytes(32))"
    environment = {**os.environ, "PYTHONMALLOC": "debug"}  # what was freed is overwritten
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
