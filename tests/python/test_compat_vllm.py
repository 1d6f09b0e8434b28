"""stemma.compat_vllm keeps the contract of a vLLM connector: driven as vLLM drives one, by a stand-in of it."""

import json
import os
import subprocess
import sys
import types
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")

import stemma  # noqa: E402
from stemma._stores import open_store  # noqa: E402
from stemma.compat_vllm import PageMoves, StemmaConnector, StemmaConnectorMetadata  # noqa: E402

PAGE, LAYERS, PAGES = 4, ["layer.0", "layer.1"], 16


class Engine:
    """As much of vLLM as a connector meets: pages of requests, caches of layers, and steps over them."""

    def __init__(self, store, cache=None, **options):
        config = types.SimpleNamespace(cache_config=types.SimpleNamespace(block_size=PAGE, **(cache or {})))
        options = {"namespace": bytes(32), **options}
        self.config = config
        self.scheduler = StemmaConnector(config, "scheduler", store=store, **options)
        self.worker = StemmaConnector(config, "worker", store=store, **options)
        self.caches = {name: torch.zeros((2, PAGES, PAGE, 2, 3)) for name in LAYERS}
        self.worker.register_kv_caches(self.caches)
        self.free = list(range(PAGES))

    def admit(self, request_id, tokens, own=(), **more):
        """`own` pages hold the begin of it already: vLLM's own cache. The request says so only once it runs."""
        request = types.SimpleNamespace(request_id=request_id, prompt_token_ids=tokens, num_computed_tokens=0, **more)
        cached = len(own) * PAGE
        found, is_async = self.scheduler.get_num_new_matched_tokens(request, cached)
        assert not is_async
        assert self.scheduler.get_num_new_matched_tokens(request, cached) == (found, False), "asking changes nothing"
        request.pages = [*own, *(self.free.pop(0) for _ in range(-(-len(tokens) // PAGE) - len(own)))]
        self.scheduler.update_state_after_alloc(request, ([*request.pages],), found)
        request.external, request.computed = found, cached + found
        return request

    def step(self, request, first, last, is_replayed=False):
        """Loads, computes tokens first ... last-1 as numbers that say what they are, and saves.

        A step that replays a full CUDA graph runs nothing of Python between the layers.
        """
        new = types.SimpleNamespace(req_id=request.request_id, block_ids=(request.pages,), num_computed_tokens=first)
        is_new = first == request.computed
        cached = types.SimpleNamespace(req_ids=[], new_block_ids=[], num_computed_tokens=[])
        if not is_new:
            cached = types.SimpleNamespace(
                req_ids=[request.request_id], new_block_ids=[None], num_computed_tokens=[first]
            )
        output = types.SimpleNamespace(
            scheduled_new_reqs=[new] if is_new else [],
            scheduled_cached_reqs=cached,
            num_scheduled_tokens={request.request_id: last - first},
        )
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(output))
        self.worker.start_load_kv()
        failed = self.worker.get_block_ids_with_load_errors()
        for at, name in enumerate(LAYERS):
            if not is_replayed:
                self.worker.wait_for_layer_load(name)
            for token in range(first, last):
                page = self.caches[name][:, request.pages[token // PAGE]]
                page[:, token % PAGE] = 1000 * at + request.prompt_token_ids[token]
            if not is_replayed:
                self.worker.save_kv_layer(name, self.caches[name], None)
        self.worker.wait_for_save()
        self.worker.clear_connector_metadata()
        assert self.worker.get_finished(set()) == (None, None)
        return failed

    def holds(self, request, tokens):
        return all(
            (self.caches[name][:, request.pages[t // PAGE], t % PAGE] == 1000 * at + request.prompt_token_ids[t]).all()
            for at, name in enumerate(LAYERS)
            for t in range(tokens)
        )


@pytest.fixture
def store():
    return stemma.PageStore.memory(value_bytes=1 << 10, bytes_max=1 << 20)


def test_what_one_engine_computed_another_loads(store):
    first, tokens = Engine(store), list(range(100, 110))
    request = first.admit("a", tokens)
    assert request.external == 0
    assert first.step(request, 0, 10) == set()
    assert first.scheduler.request_finished(request, request.pages) == (False, None)

    second = Engine(store)
    request = second.admit("b", tokens[:9] + [7])
    assert request.external == 8
    second.step(request, 8, 10)
    assert second.holds(request, 10)


def test_what_the_engine_has_itself_is_gone_on_from(store):
    tokens = list(range(100, 113))
    first = Engine(store)
    first.step(first.admit("a", tokens), 0, 13)

    second = Engine(store)
    begin = second.admit("b", tokens[:4])
    second.step(begin, 0, 4)
    request = second.admit("c", tokens, own=begin.pages)
    assert request.external == 8 and request.num_computed_tokens == 0
    assert second.step(request, 12, 13) == set()
    assert second.holds(request, 13)


# The next prompt of a conversation repeats the answer, whose pages the engine has; no prompt had them before.
def test_of_what_the_engine_has_itself_the_store_gets_what_it_lacks(store):
    engine, tokens = Engine(store), list(range(100, 113))
    turn = engine.admit("a", tokens[:6])
    engine.step(turn, 0, 6)
    turn.prompt_token_ids = tokens[:8]  # it answers with two tokens
    for at, name in enumerate(LAYERS):
        engine.caches[name][:, turn.pages[1], 2:] = 1000 * at + torch.tensor([106.0, 107.0])[:, None, None]
    assert engine.holds(turn, 8)
    engine.step(engine.admit("b", tokens, own=turn.pages), 8, 13)

    other = Engine(store)
    request = other.admit("c", tokens)
    assert request.external == 12
    other.step(request, 12, 13)
    assert other.holds(request, 13)


def test_the_last_token_is_always_computed(store):
    engine = Engine(store)
    engine.step(engine.admit("a", list(range(8))), 0, 8)
    assert engine.admit("b", list(range(8))).external == 4
    assert engine.admit("c", list(range(9))).external == 8


def test_chunks_save_the_pages_that_they_fill(store):
    engine, tokens = Engine(store), list(range(50, 62))
    request = engine.admit("a", tokens)
    engine.step(request, 0, 6)
    assert Engine(store).admit("b", tokens).external == 4
    engine.step(request, 6, 12)
    assert Engine(store).admit("b", tokens + [1]).external == 12


def test_a_page_that_is_lost_is_reported_with_all_behind_it(store):
    engine, tokens = Engine(store), list(range(13))
    engine.step(engine.admit("a", tokens), 0, 13)
    other = Engine(store)
    request = other.admit("b", tokens)
    assert request.external == 12
    key = stemma.page_keys(tokens, PAGE, bytes(32))[1]
    assert store.remove(engine.worker._name(key, LAYERS[1]))
    assert other.step(request, 12, 13) == set(request.pages[1:3])
    assert other.worker.get_block_ids_with_load_errors() == set()


def is_saved(engine, key):
    names = [engine.worker._name(key, name) for name in LAYERS]
    return engine.worker._store.exists(names + [engine.worker._marker(key, 0)]) > 0


# What a step computes behind pages that did not come is wrong, and vLLM computes it again.
def test_nothing_is_saved_that_was_computed_behind_a_load_that_failed(store):
    engine, tokens = Engine(store), list(range(18))
    engine.step(engine.admit("a", tokens[:13]), 0, 13)
    other, keys = Engine(store), stemma.page_keys(tokens, PAGE, bytes(32))
    request = other.admit("b", tokens)
    assert request.external == 12
    assert store.remove(engine.worker._name(keys[1], LAYERS[1]))
    assert other.step(request, 12, 17) == set(request.pages[1:3])
    assert not is_saved(other, keys[3])
    assert other.step(request, 17, 18) == set(), "planned before the first one's failure was known"
    assert not is_saved(other, keys[3])


def test_what_was_computed_behind_a_load_is_saved_by_the_next_step(store):
    engine, tokens = Engine(store), list(range(18))
    engine.step(engine.admit("a", tokens[:13]), 0, 13)
    other, key = Engine(store), stemma.page_keys(tokens, PAGE, bytes(32))[3]
    request = other.admit("b", tokens)
    assert other.step(request, 12, 17) == set() and not is_saved(other, key)
    assert other.step(request, 17, 18) == set() and is_saved(other, key)


# As vLLM does where it only decodes, which is when most of what was computed behind a load is saved.
def test_a_step_that_replays_a_graph_saves_its_pages(store):
    engine, tokens = Engine(store), list(range(18))
    engine.step(engine.admit("a", tokens[:13]), 0, 13)
    other = Engine(store)
    request = other.admit("b", tokens)
    other.step(request, 12, 17)
    other.step(request, 17, 18, is_replayed=True)
    third = Engine(store)
    request = third.admit("c", tokens)
    assert request.external == 16
    third.step(request, 16, 18)
    assert third.holds(request, 18)


class Slow:
    """A store of which every question takes ten milliseconds of a clock of its own."""

    def __init__(self, store):
        self._store, self.now, self.questions = store, 0.0, 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def exists(self, names):
        self.now, self.questions = self.now + 0.01, self.questions + 1
        return self._store.exists(names)


# vLLM asks of one that waits for room in every step, and all that run wait for the answer.
def test_of_a_long_prompt_that_waits_a_store_is_not_asked_in_every_step(store, monkeypatch):
    slow = Slow(store)
    monkeypatch.setattr("stemma.compat_vllm.time", types.SimpleNamespace(monotonic=lambda: slow.now))
    scheduler = StemmaConnector(Engine(store).config, "scheduler", store=slow, namespace=bytes(32))
    request = types.SimpleNamespace(request_id="a", prompt_token_ids=[1] * 256 * PAGE + [1])
    for _ in range(100):  # steps of ten milliseconds
        scheduler.get_num_new_matched_tokens(request, 0)
        slow.now += 0.01
    assert 4 <= slow.questions <= 6
    # What is asked is another question.
    for asking in (lambda: scheduler.get_num_new_matched_tokens(request, PAGE), scheduler.reset_cache):
        before = slow.questions
        asking()
        scheduler.get_num_new_matched_tokens(request, 0)
        assert slow.questions > before


# Files of an adapter may change meanwhile.
@pytest.mark.parametrize("pages, has_adapter", [(255, False), (256, True)])
def test_of_a_short_prompt_or_an_adapter_a_store_is_asked_in_every_step(store, tmp_path, pages, has_adapter):
    slow = Slow(store)
    scheduler = StemmaConnector(Engine(store).config, "scheduler", store=slow, namespace=bytes(32))
    lora = adapter(tmp_path / "poet", b"weights") if has_adapter else None
    request = types.SimpleNamespace(request_id="a", prompt_token_ids=[1] * pages * PAGE + [1], lora_request=lora)
    for _ in range(3):
        scheduler.get_num_new_matched_tokens(request, 0)
    assert slow.questions == 3


class Refusing:
    """A store that has no room for one of the layers."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, name, value):
        return LAYERS[1].encode() not in name and self._store.put(name, value)


def test_a_page_is_found_only_when_every_layer_is_saved(store):
    engine, tokens = Engine(store), list(range(8))
    engine.worker._store = Refusing(store)
    engine.step(engine.admit("a", tokens), 0, 8)
    assert store.stats()["values"] > 0
    assert Engine(store).admit("b", tokens + [1]).external == 0


def test_namespaces_share_nothing(store):
    tokens = list(range(9))
    engine = Engine(store, namespace=b"\1" * 32)
    engine.step(engine.admit("a", tokens), 0, 9)
    assert Engine(store).admit("b", tokens).external == 0
    assert Engine(store, namespace=b"\1" * 32).admit("b", tokens).external == 8


def adapter(path, weights, config=b"{}", **more):
    path.mkdir(exist_ok=True)
    (path / "adapter_config.json").write_bytes(config)
    (path / "adapter_model.safetensors").write_bytes(weights)
    return types.SimpleNamespace(lora_name="poet", lora_path=str(path), **more)


def test_salts_and_adapters_share_nothing(store, tmp_path):
    tokens, engine = list(range(9)), Engine(store)
    lora = adapter(tmp_path / "poet", b"weights")
    engine.step(engine.admit("a", tokens, cache_salt="x", lora_request=lora), 0, 9)
    assert Engine(store).admit("b", tokens).external == 0
    assert Engine(store).admit("b", tokens, cache_salt="x").external == 0
    assert Engine(store).admit("b", tokens, lora_request=lora).external == 0
    assert Engine(store).admit("b", tokens, cache_salt="x", lora_request=lora).external == 8


@pytest.mark.parametrize("trained", [(b"weights two", b"{}"), (b"weights", b'{"r": 2}')])
def test_an_adapter_that_was_trained_anew_finds_nothing_of_the_old_one(store, tmp_path, trained):
    tokens, engine = list(range(9)), Engine(store)
    lora = adapter(tmp_path / "poet", b"weights")
    engine.step(engine.admit("a", tokens, lora_request=lora), 0, 9)
    assert Engine(store).admit("b", tokens, lora_request=lora).external == 8
    adapter(tmp_path / "poet", *trained)
    again = Engine(store)
    request = again.admit("b", tokens, lora_request=lora)
    assert request.external == 0
    again.step(request, 0, 9)
    assert Engine(store).admit("c", tokens, lora_request=lora).external == 8
    adapter(tmp_path / "poet", b"weights")
    assert Engine(store).admit("c", tokens, lora_request=lora).external == 8


# The engine may have the old weights still, or read the new ones.
def test_an_adapter_that_changes_under_the_engine_is_not_cached_until_it_is_loaded_anew(store, tmp_path):
    tokens, engine = list(range(9)), Engine(store)
    engine.step(engine.admit("a", tokens, lora_request=adapter(tmp_path / "poet", b"weights", lora_int_id=1)), 0, 9)
    values = store.stats()["values"]
    changed = engine.admit("b", tokens, lora_request=adapter(tmp_path / "poet", b"weights two", lora_int_id=1))
    assert changed.external == 0
    engine.step(changed, 0, 9)
    assert store.stats()["values"] == values
    lora = adapter(tmp_path / "poet", b"weights two", lora_int_id=2)
    engine.step(engine.admit("c", tokens, lora_request=lora), 0, 9)
    assert engine.admit("d", tokens, lora_request=lora).external == 8


def test_requests_of_an_adapter_that_cannot_be_read_are_not_cached(store, tmp_path):
    tokens, engine = list(range(9)), Engine(store)
    (tmp_path / "empty").mkdir()
    for path in (str(tmp_path / "none"), str(tmp_path / "empty"), "somebody/poet", None):
        lora = types.SimpleNamespace(lora_name="poet", lora_path=path)
        engine.step(engine.admit("a", tokens, lora_request=lora), 0, 9)
        assert engine.admit("b", tokens, lora_request=lora).external == 0
        engine.free = list(range(PAGES))
    assert store.stats()["values"] == 0


def test_what_was_found_is_loaded_also_where_the_adapter_goes_meanwhile(store, tmp_path):
    tokens, engine = list(range(9)), Engine(store)
    lora = adapter(tmp_path / "poet", b"weights")
    engine.step(engine.admit("a", tokens, lora_request=lora), 0, 9)
    request = types.SimpleNamespace(request_id="b", prompt_token_ids=tokens, lora_request=lora)
    found, _ = engine.scheduler.get_num_new_matched_tokens(request, 0)
    (tmp_path / "poet" / "adapter_model.safetensors").unlink()
    engine.scheduler.update_state_after_alloc(request, ([4, 5, 6],), found)
    (load,) = planned(engine.scheduler, "b", [4, 5, 6], 8, 1, True).loads
    assert len(load.keys) == len(load.block_ids) == 2


# As one that is to be told how likely each token of its prompt was: of pages that are loaded nobody would know.
def test_a_request_that_is_to_read_no_cache_loads_nothing_and_is_saved(store):
    tokens, engine = list(range(9)), Engine(store)
    engine.step(engine.admit("a", tokens[:5]), 0, 5)
    other = Engine(store)
    request = other.admit("b", tokens, skip_reading_prefix_cache=True)
    assert request.external == 0
    other.step(request, 0, 9)
    assert Engine(store).admit("c", tokens).external == 8


def test_prompts_with_images_are_not_cached(store):
    tokens, engine = list(range(9)), Engine(store)
    engine.step(engine.admit("a", tokens, mm_features=["image"]), 0, 9)
    assert Engine(store).admit("b", tokens).external == 0 and store.stats()["values"] == 0


def test_a_request_that_was_preempted_has_its_pages_anew(store):
    engine, tokens = Engine(store), list(range(50, 62))
    request = engine.admit("a", tokens)
    engine.step(request, 0, 6)
    request.pages = [9, 10, 11]
    output = types.SimpleNamespace(
        scheduled_new_reqs=[],
        scheduled_cached_reqs=types.SimpleNamespace(
            req_ids=["a"], new_block_ids=[([9, 10, 11],)], num_computed_tokens=[0], resumed_req_ids={"a"}
        ),
        num_scheduled_tokens={"a": 12},
    )
    (save,) = engine.scheduler.build_connector_meta(output).saves
    assert save.block_ids == [10, 11]


def test_both_halves_of_one_process_share_the_disk_of_the_configuration(tmp_path):
    extra = {"directory": str(tmp_path), "value_bytes": 1024, "bytes_max": 4 << 20, "namespace": "00" * 32}
    config = types.SimpleNamespace(
        cache_config=types.SimpleNamespace(block_size=PAGE),
        kv_transfer_config=types.SimpleNamespace(kv_connector_extra_config=extra),
    )
    request = types.SimpleNamespace(request_id="a", prompt_token_ids=[1] * 9)
    for found in 0, 8:  # also after a restart
        halves = [StemmaConnector(config, role) for role in ("scheduler", "worker")]
        assert halves[0].get_num_new_matched_tokens(request, 0) == (found, False)
        pages = PageMoves("a", stemma.page_keys([1] * 9, PAGE, bytes(32)), [0, 1])
        halves[1].register_kv_caches({"layer": torch.zeros((2, PAGES, PAGE, 1, 3))})
        halves[1].bind_connector_metadata(StemmaConnectorMetadata(saves=[pages]))
        halves[1].save_kv_layer("layer", halves[1]._layers["layer"])
        halves[1].wait_for_save()
        halves[1].shutdown()
        assert halves[0].get_num_new_matched_tokens(request, 0) == (8, False)
        halves[0].shutdown()
        with pytest.raises(stemma.InvalidArgumentError, match="closed"):
            halves[0].get_num_new_matched_tokens(request, 0)
    first = StemmaConnector(config, "worker")
    extra["value_bytes"] = 2048
    with pytest.raises(stemma.InvalidArgumentError, match="value_bytes"):
        StemmaConnector(config, "scheduler")
    first.shutdown()


def test_scheduler_and_worker_of_different_processes_share_redis(redis):
    stores = [stemma.PageStore.remote(redis, value_bytes=1024, secret="vllm") for _ in range(2)]
    first = Engine(stores[0])
    first.worker._store = stores[1]
    tokens = list(range(50, 59))
    first.step(first.admit("a", tokens), 0, 9)
    extra = {"remote": redis, "secret": "vllm", "value_bytes": 1024, "namespace": "00" * 32}
    config = types.SimpleNamespace(
        cache_config=types.SimpleNamespace(block_size=PAGE),
        kv_transfer_config=types.SimpleNamespace(kv_connector_extra_config=extra),
    )
    request = types.SimpleNamespace(request_id="b", prompt_token_ids=tokens)
    assert StemmaConnector(config, "scheduler").get_num_new_matched_tokens(request, 0) == (8, False)


# As with new weights: what the old ones computed would be read with them.
def test_a_reset_empties_the_store_and_nothing_of_before_is_saved_behind_it(store):
    engine, tokens = Engine(store), list(range(13))
    engine.step(engine.admit("a", tokens[:9]), 0, 9)
    goes_on = engine.admit("b", tokens[::-1])
    engine.step(goes_on, 0, 6)
    assert engine.scheduler.reset_cache() is True and store.stats()["values"] == 0
    engine.step(goes_on, 6, 13)
    assert store.stats()["values"] == 0
    assert engine.admit("c", tokens[:9]).external == 0


@pytest.mark.parametrize("stages, is_async, held", [(1, True, 1), (2, True, 2), (4, False, 3)])
def test_what_steps_under_way_save_behind_a_reset_is_never_found(store, stages, is_async, held):
    config = types.SimpleNamespace(
        cache_config=types.SimpleNamespace(block_size=PAGE),
        parallel_config=types.SimpleNamespace(rank=0, world_size=1, pipeline_parallel_size=stages),
        scheduler_config=types.SimpleNamespace(async_scheduling=is_async),
    )
    engine, tokens = Engine(store), list(range(9))
    engine.scheduler = StemmaConnector(config, "scheduler", store=store, namespace=bytes(32))
    under_way = planned_first(engine, "a", tokens)
    assert under_way.saves and engine.scheduler.reset_cache() is True
    engine.worker.bind_connector_metadata(under_way)
    for step in range(held):
        assert not planned_first(engine, f"b{step}", tokens).saves
        if step == 0:
            engine.worker.wait_for_save()
            assert store.stats()["values"] > 0
    assert planned_first(engine, "c", tokens).saves and store.stats()["values"] == 0


def planned_first(engine, request_id, tokens):
    """The first step of a request of which nothing is found."""
    request = types.SimpleNamespace(request_id=request_id, prompt_token_ids=tokens)
    assert engine.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
    engine.scheduler.update_state_after_alloc(request, ([0, 1, 2],), 0)
    return planned(engine.scheduler, request_id, [0, 1, 2], 0, len(tokens), True)


def test_a_reset_of_a_server_is_one_of_all_its_users(redis):
    stores = [stemma.PageStore.remote(redis, value_bytes=1024, secret="reset") for _ in range(2)]
    engine, tokens = Engine(stores[0]), list(range(9))
    engine.step(engine.admit("a", tokens), 0, 9)
    assert Engine(stores[1]).admit("b", tokens).external == 8
    assert engine.scheduler.reset_cache() is True
    assert Engine(stores[1]).admit("c", tokens).external == 0


class Cleared:
    """A store that is emptied in parts."""

    def __init__(self, parts, error=stemma.errors.DeadlineError):
        self.parts, self.error = parts, error

    def clear(self):
        self.parts -= 1
        if self.parts > 0:
            raise self.error("values may be left")


def test_a_store_with_more_than_one_call_removes_is_emptied_all_the_same():
    config = types.SimpleNamespace(cache_config=types.SimpleNamespace(block_size=PAGE))
    store = Cleared(parts=5)
    assert StemmaConnector(config, "scheduler", store=store, namespace=bytes(32)).reset_cache() is True
    assert store.parts == 0
    failing = Cleared(parts=5, error=stemma.errors.IoError)
    assert StemmaConnector(config, "scheduler", store=failing, namespace=bytes(32)).reset_cache() is False
    assert failing.parts == 4


def test_a_reset_that_did_not_reach_its_server_is_none():
    down = stemma.PageStore.remote("redis://127.0.0.1:1", value_bytes=1024, deadline_us=100_000)
    assert Engine(down).scheduler.reset_cache() is False


# All requests of an engine wait while its scheduler asks a server that hangs.
@pytest.mark.parametrize("said, deadline_us", [({}, 250_000), ({"deadline_us": 40_000}, 40_000)])
def test_a_call_of_a_server_is_short(monkeypatch, said, deadline_us):
    given = {}
    kept = types.SimpleNamespace(remote=lambda url, **options: given.update(options))
    monkeypatch.setattr("stemma._stores._stemma", types.SimpleNamespace(PageStore=kept))
    open_store({"remote": "redis://cache:6379", "value_bytes": 1024, **said})
    assert given == {"value_bytes": 1024, "secret": "", "deadline_us": deadline_us}


def test_without_its_server_an_engine_computes():
    down = stemma.PageStore.remote("redis://127.0.0.1:1", value_bytes=1024, deadline_us=100_000)
    engine, tokens = Engine(down), list(range(9))
    request = engine.admit("a", tokens)
    assert request.external == 0 and engine.step(request, 0, 9) == set()
    assert engine.admit("b", tokens, own=request.pages[:2]).external == 0


def test_ranks_have_pages_of_their_own_and_all_must_have_them(store):
    def connector(role, rank):
        config = types.SimpleNamespace(
            cache_config=types.SimpleNamespace(block_size=PAGE),
            parallel_config=types.SimpleNamespace(rank=rank, world_size=2),
        )
        return StemmaConnector(config, role, store=store, namespace=bytes(32))

    tokens = list(range(9))
    pages = PageMoves("a", stemma.page_keys(tokens, PAGE, bytes(32)), [3, 5])
    workers = [connector("worker", rank) for rank in range(2)]
    request, found = types.SimpleNamespace(request_id="b", prompt_token_ids=tokens), []
    for rank, worker in enumerate(workers):
        worker.register_kv_caches({name: torch.full((2, PAGES, PAGE, 1, 3), 1.0 + rank) for name in LAYERS})
        worker.bind_connector_metadata(StemmaConnectorMetadata(saves=[pages]))
        for name in LAYERS:
            worker.save_kv_layer(name, worker._layers[name])
        worker.wait_for_save()
        found.append(connector("scheduler", 0).get_num_new_matched_tokens(request, 0)[0])
    assert found == [0, 8]
    for rank, worker in enumerate(workers):
        caches = {name: torch.zeros((2, PAGES, PAGE, 1, 3)) for name in LAYERS}
        worker.register_kv_caches(caches)
        worker.bind_connector_metadata(StemmaConnectorMetadata(loads=[pages]))
        worker.start_load_kv()
        assert worker.get_block_ids_with_load_errors() == set()
        assert all((cache[:, [3, 5]] == 1 + rank).all() for cache in caches.values())


def planned(scheduler, request_id, pages, computed, tokens, is_new):
    new = types.SimpleNamespace(req_id=request_id, block_ids=(pages,), num_computed_tokens=computed)
    cached = types.SimpleNamespace(req_ids=[request_id], new_block_ids=[None], num_computed_tokens=[computed])
    none = types.SimpleNamespace(req_ids=[], new_block_ids=[], num_computed_tokens=[])
    return scheduler.build_connector_meta(
        types.SimpleNamespace(
            scheduled_new_reqs=[new] if is_new else [],
            scheduled_cached_reqs=none if is_new else cached,
            num_scheduled_tokens={request_id: tokens},
        )
    )


# Only the rank whose load failed knows: the others would save what the step computed behind it, and mark it.
@pytest.mark.parametrize("stages, is_async, held", [(1, False, 1), (1, True, 2), (2, True, 3), (4, False, 4)])
def test_steps_planned_before_the_outcome_of_a_load_save_nothing_on_any_rank(store, stages, is_async, held):
    engine = Engine(store)
    engine.step(engine.admit("a", list(range(9))), 0, 9)
    config = types.SimpleNamespace(
        cache_config=types.SimpleNamespace(block_size=PAGE),
        parallel_config=types.SimpleNamespace(rank=0, world_size=1, pipeline_parallel_size=stages),
        scheduler_config=types.SimpleNamespace(async_scheduling=is_async),
    )
    scheduler = StemmaConnector(config, "scheduler", store=store, namespace=bytes(32))
    request, pages = types.SimpleNamespace(request_id="b", prompt_token_ids=list(range(41))), list(range(11))
    found, _ = scheduler.get_num_new_matched_tokens(request, 0)
    assert found == 8
    scheduler.update_state_after_alloc(request, (pages,), found)
    sharing = types.SimpleNamespace(request_id="c", prompt_token_ids=list(range(41)))
    scheduler.get_num_new_matched_tokens(sharing, 8)
    scheduler.update_state_after_alloc(sharing, ([0, 1, *range(11, 20)],), 0)
    for step in range(6):
        own = planned(scheduler, "b", pages, 8 + 4 * step, 4, step == 0)
        assert bool(own.saves) == (step >= held), step
    # Its loads are long known to be right.
    assert planned(scheduler, "c", [0, 1, *range(11, 20)], 8, 4, True).saves


# As beneath vLLM's MultiConnector, which asks all and has one load. Whether it could, only that one knows.
@pytest.mark.parametrize("is_resumed", [False, True])
def test_what_another_connector_loads_is_not_saved_before_its_outcome_is_known(store, is_resumed):
    scheduler = Engine(store).scheduler
    request, pages = types.SimpleNamespace(request_id="a", prompt_token_ids=list(range(18))), [3, 4, 5, 6, 7]
    assert scheduler.get_num_new_matched_tokens(request, 4) == (0, False)
    scheduler.update_state_after_alloc(request, ([],), 0)
    resumed = types.SimpleNamespace(
        scheduled_new_reqs=[],
        scheduled_cached_reqs=types.SimpleNamespace(
            req_ids=["a"], new_block_ids=[(pages,)], num_computed_tokens=[12], resumed_req_ids={"a"}
        ),
        num_scheduled_tokens={"a": 4},
    )
    first = scheduler.build_connector_meta(resumed) if is_resumed else planned(scheduler, "a", pages, 12, 4, True)
    assert first.saves == []
    # It failed: the engine has no more than it had before, and computes the rest.
    (save,) = planned(scheduler, "a", pages, 4, 5, False).saves
    assert save.block_ids == [3, 4] and save.keys == stemma.page_keys(list(range(8)), PAGE, bytes(32))


class Page(int):
    """Counts how often it is looked up."""

    lookups = 0

    def __hash__(self):
        Page.lookups += 1
        return int.__hash__(self)


# There are thousands of a long context, and hundreds of requests.
def test_a_step_that_only_decodes_looks_at_no_page(store):
    engine = Engine(store)
    engine.step(engine.admit("a", list(range(9))), 0, 9)
    scheduler, pages = Engine(store).scheduler, [Page(page) for page in range(11)]
    request = types.SimpleNamespace(request_id="b", prompt_token_ids=list(range(9)))
    found, _ = scheduler.get_num_new_matched_tokens(request, 0)
    scheduler.update_state_after_alloc(request, (pages,), found)
    planned(scheduler, "b", pages, found, 1, True)
    Page.lookups = 0
    for tokens in range(9, 40):
        assert planned(scheduler, "b", pages, tokens, 1, False).saves == []
    assert Page.lookups == 0


def test_a_request_that_shares_pages_on_their_way_saves_nothing_behind_them(store):
    engine = Engine(store)
    engine.step(engine.admit("a", list(range(9))), 0, 9)
    scheduler = Engine(store).scheduler
    first = types.SimpleNamespace(request_id="b", prompt_token_ids=list(range(17)))
    found, _ = scheduler.get_num_new_matched_tokens(first, 0)
    scheduler.update_state_after_alloc(first, ([0, 1, 2, 3, 4],), found)
    sharing = types.SimpleNamespace(request_id="c", prompt_token_ids=list(range(17)))
    scheduler.get_num_new_matched_tokens(sharing, found)
    scheduler.update_state_after_alloc(sharing, ([0, 1, 5, 6, 7],), 0)
    assert planned(scheduler, "c", [0, 1, 5, 6, 7], 8, 9, True).saves == []


def test_a_page_that_lost_a_part_is_saved_anew(store):
    engine, tokens = Engine(store), list(range(13))
    engine.step(engine.admit("a", tokens), 0, 13)
    keys = stemma.page_keys(tokens, PAGE, bytes(32))
    assert store.remove(engine.worker._name(keys[1], LAYERS[1]))
    other = Engine(store)
    assert other.step(other.admit("b", tokens), 12, 13)
    assert not is_saved(other, keys[1])
    third = Engine(store)
    request = third.admit("c", tokens)
    assert request.external == 4
    assert third.step(request, 4, 12) == set() and third.step(request, 12, 13) == set()
    assert Engine(store).admit("d", tokens).external == 12


def test_prompts_of_embeddings_are_not_cached(store):
    scheduler = Engine(store).scheduler
    request = types.SimpleNamespace(request_id="a", prompt_token_ids=None, prompt_embeds=torch.zeros(8, 4))
    assert scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
    scheduler.update_state_after_alloc(request, ([0, 1],), 0)


def test_without_a_namespace_models_share_nothing(store):
    def connector(**model):
        config = types.SimpleNamespace(
            cache_config=types.SimpleNamespace(block_size=PAGE, cache_dtype="auto"),
            model_config=types.SimpleNamespace(**{"model": "m", "dtype": torch.bfloat16, **model}),
        )
        return StemmaConnector(config, "scheduler", store=store)

    assert connector()._namespace == connector()._namespace != connector(model="n")._namespace
    assert connector()._namespace != connector(dtype=torch.float16)._namespace

    # As --hf-overrides has them: positions of a longer context are other ones.
    def config(**fields):
        return types.SimpleNamespace(to_json_string=lambda: json.dumps(fields))

    stretched = connector(hf_config=config(rope_scaling={"rope_type": "yarn", "factor": 4}))
    assert connector(hf_config=config(rope_scaling=None))._namespace != stretched._namespace


def test_a_namespace_may_be_written_in_json(store):
    assert Engine(store, namespace="0a" * 32).worker._namespace == b"\x0a" * 32
    for wrong in ["0a", "zz" * 32, b"short"]:
        with pytest.raises(stemma.InvalidArgumentError, match="namespace"):
            Engine(store, namespace=wrong)


def test_pages_saved_under_names_without_a_form_are_not_found(store):
    tokens = list(range(9))
    for key in stemma.page_keys(tokens, PAGE, bytes(32)):
        for part in (*LAYERS, "/whole"):
            store.put(key + part.encode(), b"")
    assert Engine(store).admit("a", tokens).external == 0


@pytest.mark.parametrize("form", [((2, PAGES, 2, PAGE, 3), torch.float32), ((2, PAGES, PAGE, 2, 3), torch.int32)])
def test_pages_of_another_form_are_not_loaded_and_stay_for_their_own(store, form):
    tokens, shape, dtype = list(range(9)), *form
    engine = Engine(store)
    engine.step(engine.admit("a", tokens), 0, 9)
    other = Engine(store)
    other.caches = {name: torch.zeros(shape, dtype=dtype) for name in LAYERS}
    other.worker.register_kv_caches(other.caches)
    request = other.admit("b", tokens)
    other.worker.bind_connector_metadata(planned(other.scheduler, "b", request.pages, 8, 1, True))
    other.worker.start_load_kv()
    assert other.worker.get_block_ids_with_load_errors() == set(request.pages[:2])
    assert not any(cache.any() for cache in other.caches.values())
    assert all(is_saved(engine, key) for key in stemma.page_keys(tokens, PAGE, bytes(32)))


# Codes of either kind of 8-bit floats are bytes of a tensor of bytes.
def test_pages_of_another_kind_of_codes_are_not_found(store):
    tokens, engine = list(range(9)), Engine(store, {"cache_dtype": "fp8_e4m3"})
    engine.step(engine.admit("a", tokens), 0, 9)
    assert Engine(store, {"cache_dtype": "fp8_e4m3"}).admit("b", tokens).external == 8
    assert Engine(store, {"cache_dtype": "fp8_e5m2"}).admit("b", tokens).external == 0
    assert Engine(store, {"cache_dtype": "auto"}).admit("b", tokens).external == 0


# They are of the first step of an engine: with another's its pages are other numbers.
def test_codes_whose_scales_an_engine_finds_itself_are_refused(store):
    with pytest.raises(stemma.UnsupportedError, match="calculate_kv_scales"):
        Engine(store, {"cache_dtype": "fp8", "calculate_kv_scales": True})
    Engine(store, {"cache_dtype": "fp8", "calculate_kv_scales": False})
    Engine(store, {"cache_dtype": "auto", "calculate_kv_scales": True})


def test_room_for_no_page_is_refused(tmp_path):
    page_bytes = 2 * PAGE * 3 * 4
    extra = {"directory": str(tmp_path), "bytes_max": 4 << 20, "namespace": "00" * 32}
    config = types.SimpleNamespace(
        cache_config=types.SimpleNamespace(block_size=PAGE),
        kv_transfer_config=types.SimpleNamespace(kv_connector_extra_config=extra),
    )
    for extra["value_bytes"], is_refused in (page_bytes - 1, True), (page_bytes, False):
        worker = StemmaConnector(config, "worker")
        with pytest.raises(stemma.InvalidArgumentError, match="^value_bytes: ") if is_refused else nullcontext():
            worker.register_kv_caches({"layer.0": torch.zeros((2, PAGES, PAGE, 1, 3))})
        worker.shutdown()


def test_caches_of_another_shape_are_refused(store):
    with pytest.raises(stemma.InvalidArgumentError, match="pages_first"):
        Engine(store).worker.register_kv_caches({"layer.0": torch.zeros((PAGES, PAGE, 24))})


# As where a kernel knows smaller ones only: page 3 of the scheduler is then two others of the tensor.
@pytest.mark.parametrize(
    "shape, pages_first",
    [((2, 2 * PAGES, PAGE // 2, 1, 3), False), ((2 * PAGES, 2, PAGE // 2, 1, 3), True), ((2 * PAGES, PAGE // 2, 3), True)],
)
def test_caches_with_pages_of_another_size_are_refused(store, shape, pages_first):
    config = types.SimpleNamespace(cache_config=types.SimpleNamespace(block_size=PAGE))
    worker = StemmaConnector(config, "worker", store=store, namespace=bytes(32), pages_first=pages_first)
    with pytest.raises(stemma.InvalidArgumentError, match="tokens a page"):
        worker.register_kv_caches({"layer.0": torch.zeros(shape)})


# Then the shape of a page does not say it.
@pytest.mark.parametrize("is_first", [False, True])
def test_caches_with_pages_of_another_size_and_as_many_heads_are_refused(store, is_first):
    config = types.SimpleNamespace(cache_config=types.SimpleNamespace(block_size=PAGE))
    pages = types.SimpleNamespace(num_blocks=PAGES)
    worker = StemmaConnector(config, "worker", pages, store=store, namespace=bytes(32), pages_first=is_first)

    def layer(pages, tokens):
        return torch.zeros((pages, 2, tokens, PAGE, 3) if is_first else (2, pages, tokens, PAGE, 3))

    worker.register_kv_caches({"layer.0": layer(PAGES, PAGE)})
    with pytest.raises(stemma.InvalidArgumentError, match=f"has {2 * PAGES} pages where vLLM's scheduler has {PAGES}"):
        worker.register_kv_caches({"layer.0": layer(2 * PAGES, PAGE // 2)})


# A page of vLLM's scheduler has the tokens of as many pages as there are ranks then: under the key of one page's tokens
# would lie what was computed for others.
@pytest.mark.parametrize("kind", ["decode", "prefill"])
def test_ranks_that_share_a_context_are_refused(store, kind):
    def connector(ranks):
        parallel = types.SimpleNamespace(rank=0, world_size=2, **{f"{kind}_context_parallel_size": ranks})
        config = types.SimpleNamespace(
            cache_config=types.SimpleNamespace(block_size=PAGE), parallel_config=parallel
        )
        return StemmaConnector(config, "scheduler", store=store, namespace=bytes(32))

    assert connector(1).shutdown() is None
    with pytest.raises(stemma.UnsupportedError, match=f"{kind}_context_parallel_size"):
        connector(2)


# Newer vLLMs do so unless they are told otherwise; older ones know of nothing but computing.
def test_a_vllm_that_ends_requests_whose_pages_were_lost_is_refused(store):
    def connector(**policy):
        config = types.SimpleNamespace(
            cache_config=types.SimpleNamespace(block_size=PAGE),
            kv_transfer_config=types.SimpleNamespace(kv_connector_extra_config={}, **policy),
        )
        return StemmaConnector(config, "scheduler", store=store, namespace=bytes(32))

    connector(), connector(kv_load_failure_policy="recompute")
    with pytest.raises(stemma.UnsupportedError, match="^kv_load_failure_policy: "):
        connector(kv_load_failure_policy="fail")


def test_hybrid_models_are_refused(store):
    engine = Engine(store)
    request = types.SimpleNamespace(request_id="a", prompt_token_ids=[1] * 8, num_computed_tokens=0)
    with pytest.raises(stemma.InvalidArgumentError, match="hybrid"):
        engine.scheduler.update_state_after_alloc(request, ([1, 2], [3, 4]), 0)


VLLM = """
class KVConnectorMetadata: ...
class KVConnectorBase_V1:
    def __init__(self, vllm_config, role, kv_cache_config):
        self.is_producer = vllm_config.kv_transfer_config.is_kv_producer
    @property
    def requires_kv_delivery(self):  # of newer ones
        return self.is_producer
"""

AS_VLLM_ASKS = """
import sys
from types import SimpleNamespace as Some
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from stemma.compat_vllm import StemmaConnector
extra = {"directory": sys.argv[1], "value_bytes": 256, "bytes_max": 4 << 20}
transfer = Some(kv_connector_extra_config=extra, is_kv_producer=True)
connector = StemmaConnector(Some(cache_config=Some(block_size=4), kv_transfer_config=transfer), "scheduler", None)
assert isinstance(connector, KVConnectorBase_V1) and connector.is_producer
print(connector.requires_kv_delivery)
"""


# Where a producer has to hand over all that it computes, vLLM throws away what is on its way for requests that it preempts.
def test_a_page_that_was_not_saved_is_computed_again(tmp_path):
    module = tmp_path / "vllm/distributed/kv_transfer/kv_connector/v1/base.py"
    module.parent.mkdir(parents=True)
    module.write_text(VLLM)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    words = [sys.executable, "-c", AS_VLLM_ASKS, str(tmp_path / "disk")]
    asked = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True)
    assert asked.stdout == "False\n"
