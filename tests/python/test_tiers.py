"""stemma.Tiers below a stemma.Pool: what the pool has no room for comes back byte for byte, or is computed anew."""

import gc
import pathlib
import socket
import threading

import numpy
import pytest

import stemma

PAGES, PAGE_SIZE = 16, 4
PROMPT = numpy.arange(100, 125, dtype=numpy.int32)  # six pages and a token


class Engine:
    """A pool, tiers and a cache; the rows of a token are its number."""

    def __init__(self, write_policy="write-through", **tiers):
        self.pool = stemma.Pool(layers=2, pages=PAGES, page_size=PAGE_SIZE, heads=1, head_dim=8)
        self.tiers = stemma.Tiers(self.pool, **{"host_bytes": 1 << 20, **tiers})
        self.cache = stemma.Cache(
            pages=PAGES, page_size=PAGE_SIZE, tiers=self.tiers, write_policy=write_policy, load_wait_us=60_000_000
        )

    def compute(self, prompt):
        with self.cache.begin(prompt) as sequence:
            assert sequence.reserve(len(prompt))
            slots = slots_of(sequence, len(prompt))
            rows = numpy.repeat(prompt.astype(numpy.float32), 8).reshape(-1, 1, 8)
            for layer in range(2):
                self.pool.store(layer, slots, rows, rows)
            sequence.finish(prompt)

    def lose_the_device(self):
        self.cache.settle()
        self.cache.evict(PAGES)
        assert self.cache.stats()["cached_tokens"] == 0

    def cached_after_promotion(self, prompt):
        promotion = self.cache.promote(prompt)
        if promotion is not None:
            with promotion:
                while promotion.worth_waiting:
                    self.cache.wait_transfers(1_000_000)
        with self.cache.begin(prompt) as sequence:
            cached = sequence.cached_tokens
            slots = slots_of(sequence, cached)
            for part in (self.pool.k(1), self.pool.v(1)):
                rows = numpy.asarray(part).reshape(-1, 8)[slots]
                assert (rows == prompt[:cached, None]).all()
            return cached


def slots_of(sequence, tokens):
    places = numpy.arange(tokens)
    return numpy.asarray(sequence.pages)[places // PAGE_SIZE] * PAGE_SIZE + places % PAGE_SIZE


def test_what_the_device_lost_comes_back_from_host_memory():
    engine = Engine()
    engine.compute(PROMPT)
    engine.lose_the_device()
    engine.compute(PROMPT + 1000)  # over the pages that were free
    assert engine.cached_after_promotion(PROMPT) == 24
    engine.cache.audit()


def test_a_disk_keeps_pages_beyond_a_life(tmp_path):
    for computed in (0, 24):
        engine = Engine(disk_directory=str(tmp_path / "pages"), disk_bytes=1 << 24)
        assert engine.cached_after_promotion(PROMPT) == computed
        engine.compute(PROMPT)
        engine.cache.settle()
        del engine
        gc.collect()


def test_host_memory_survives_in_a_file(tmp_path):
    digest = stemma.Cache(pages=1).namespace(model="fake").digest
    for computed in (0, 24):
        engine = Engine(host_file=str(tmp_path / "host"), digest=digest)
        assert engine.cached_after_promotion(PROMPT) == computed
        engine.compute(PROMPT)
        engine.cache.settle()
        del engine
        gc.collect()


def test_pages_that_are_used_once_stay_above_unless_asked():
    engine = Engine(write_policy="write-through-selective")
    engine.compute(PROMPT)
    while engine.cache.wait_transfers(1_000_000):
        pass
    engine.cache.evict(PAGES)
    assert engine.cached_after_promotion(PROMPT) == 0


def test_there_is_nothing_to_promote_where_nothing_is_below():
    engine = Engine()
    assert engine.cache.promote(PROMPT) is None
    assert stemma.Cache(pages=4).promote(PROMPT) is None
    assert not engine.cache.wait_transfers(1_000_000)
    assert not engine.cache.poll_transfers()


def test_what_comes_up_is_left_alone_while_a_step_is_in_flight():
    engine = Engine()
    engine.compute(PROMPT)
    engine.lose_the_device()
    promotion = engine.cache.promote(PROMPT)
    step = engine.cache.begin_step()
    assert engine.cache.wait_transfers(1_000_000)
    assert not engine.cache.poll_transfers() and promotion.worth_waiting
    assert engine.cache.begin(PROMPT).cached_tokens == 0
    engine.cache.retire_step(step)
    while promotion.worth_waiting:
        engine.cache.wait_transfers(1_000_000)
    assert engine.cache.begin(PROMPT).cached_tokens == 24
    promotion.release()
    engine.cache.audit()


def test_a_promotion_is_released_once():
    engine = Engine()
    engine.compute(PROMPT)
    engine.lose_the_device()
    promotion = engine.cache.promote(PROMPT)
    promotion.release()
    promotion.release()
    assert not promotion.worth_waiting
    # What is forgotten with its cache lets go by itself.
    kept = engine.cache.promote(PROMPT)
    del engine
    gc.collect()
    assert kept is None or kept.worth_waiting in (True, False)


def lent_engine():
    """An engine that reads pages which are on their way: (engine, promotion, sequence)."""
    engine = Engine()
    engine.compute(PROMPT)
    engine.lose_the_device()
    promotion, sequence = engine.cache.promote(PROMPT), engine.cache.begin(PROMPT)
    assert sequence.cached_tokens == 0 and sequence.lend(PROMPT, promotion) == 24
    return engine, promotion, sequence


def test_a_step_reads_each_layer_of_lent_pages_when_it_has_come():
    engine, promotion, sequence = lent_engine()
    assert sequence.reserve(len(PROMPT))
    step, slots = engine.cache.begin_step(), slots_of(sequence, 24)
    for layer in range(2):
        assert engine.cache.wait_layer(layer)
        for part in (engine.pool.k(layer), engine.pool.v(layer)):
            assert (numpy.asarray(part).reshape(-1, 8)[slots] == PROMPT[:24, None]).all()
    engine.cache.retire_step(step)
    promotion.release()
    assert engine.cache.end_loans() and engine.cache.end_loans(), "ended twice is ended"
    sequence.commit(PROMPT[:24])
    assert sequence.published_tokens == 24
    sequence.finish(PROMPT)
    engine.cache.audit()


def test_what_lent_pages_do_not_allow_is_refused():
    engine, promotion, sequence = lent_engine()
    for wrong in (
        lambda: sequence.lend(PROMPT, promotion),
        lambda: sequence.commit(PROMPT[:24]),
        lambda: sequence.finish(PROMPT[:24]),
        lambda: sequence.advance(0),
        lambda: engine.cache.wait_layer(2),
        lambda: engine.cache.wait_layer(0, stream=1),
        lambda: engine.cache.wait_transfers(1),
        engine.cache.poll_transfers,
        engine.cache.settle,
        engine.cache.audit,
    ):
        with pytest.raises(stemma.InvalidArgumentError):
            wrong()
    engine.cache.begin_step()
    with pytest.raises(stemma.InvalidArgumentError, match="in flight"):
        engine.cache.end_loans()


def test_only_what_begin_found_is_gone_on_from_by_lent_pages():
    engine = Engine()
    engine.compute(PROMPT)
    engine.lose_the_device()
    promotion, sequence = engine.cache.promote(PROMPT), engine.cache.begin(PROMPT)
    with pytest.raises(stemma.InvalidArgumentError, match="another Cache"):
        stemma.Cache(pages=4, page_size=PAGE_SIZE).begin(PROMPT).lend(PROMPT, promotion)
    with pytest.raises(stemma.InvalidArgumentError, match="tokens"):
        sequence.lend([], promotion)
    assert sequence.lend(PROMPT + 1, promotion) == 0, "another text"
    assert sequence.reserve(4)
    with pytest.raises(stemma.InvalidArgumentError, match="more than begin found"):
        sequence.lend(PROMPT, promotion)
    promotion.release()
    with pytest.raises(stemma.InvalidArgumentError, match="released"):
        engine.cache.begin(PROMPT).lend(PROMPT, promotion)


def test_a_sequence_may_be_closed_and_a_cache_forgotten_while_pages_are_lent():
    engine, promotion, sequence = lent_engine()
    sequence.close()
    assert engine.cache.end_loans()
    engine, promotion, sequence = lent_engine()
    del engine, promotion, sequence
    gc.collect()


def test_namespaces_do_not_meet_in_lower_tiers():
    engine = Engine()
    engine.compute(PROMPT)
    engine.lose_the_device()
    assert engine.cache.promote(PROMPT, engine.cache.namespace(tenant="b")) is None


def test_pages_freed_in_a_step_are_given_out_when_it_has_retired():
    cache = stemma.Cache(pages=4, page_size=PAGE_SIZE)
    sequence, other = cache.begin(PROMPT), cache.begin(PROMPT)
    assert sequence.reserve(16)
    step = cache.begin_step()
    sequence.close()
    assert not other.reserve(4)
    cache.retire_step(step)
    assert other.reserve(4)


def test_steps_retire_in_their_order_and_nothing_is_evicted_meanwhile():
    engine = Engine()
    first, second = engine.cache.begin_step(), engine.cache.begin_step()
    engine.compute(PROMPT)
    for wrong in (
        lambda: engine.cache.evict(1),
        engine.cache.settle,
        engine.cache.reset,
        lambda: engine.cache.retire_step(second),
    ):
        with pytest.raises(stemma.InvalidArgumentError):
            wrong()
    engine.cache.retire_step(first)
    engine.cache.retire_step(second)
    with pytest.raises(stemma.InvalidArgumentError):
        engine.cache.retire_step(second)
    engine.cache.settle()
    assert engine.cache.evict(1) == 1


def test_a_cache_may_be_forgotten_with_steps_in_flight():
    engine = Engine()
    engine.cache.begin_step()
    del engine
    gc.collect()


def test_steps_in_flight_are_bounded():
    cache = stemma.Cache(pages=4)
    with pytest.raises(stemma.InvalidArgumentError, match="in flight"):
        for _ in range(100):
            cache.begin_step()


# Nothing interrupts it, and a server that is down confirms no purge.
def test_settle_is_bounded_unless_it_is_told_otherwise():
    assert "us_max: int = 30000000" in stemma.Cache.settle.__doc__


def test_metrics_tell_what_moved():
    engine = Engine()
    engine.compute(PROMPT)
    engine.cache.settle()
    assert any(name.startswith("stemma_") and value > 0 for name, value in engine.cache.metrics().items())


def test_tiers_are_of_one_cache_and_its_pool():
    engine = Engine()
    with pytest.raises(stemma.InvalidArgumentError, match="another Cache"):
        stemma.Cache(pages=PAGES, page_size=PAGE_SIZE, tiers=engine.tiers)
    tiers = stemma.Tiers(engine.pool, host_bytes=1 << 20)
    with pytest.raises(stemma.InvalidArgumentError, match="pages, page_size"):
        stemma.Cache(pages=PAGES + 1, page_size=PAGE_SIZE, tiers=tiers)
    with pytest.raises(stemma.NotFoundError, match="write"):
        stemma.Cache(pages=PAGES, page_size=PAGE_SIZE, tiers=tiers, write_policy="sometimes")
    assert stemma.Cache(pages=PAGES, page_size=PAGE_SIZE, tiers=tiers).promote(PROMPT) is None


def test_wrong_tiers_are_named():
    pool = stemma.Pool(layers=2, pages=PAGES, page_size=PAGE_SIZE, heads=1, head_dim=8)
    for wrong, what in (
        ({"host_bytes": 1}, "host"),
        ({"host_bytes": 1 << 20, "codec": "int3"}, "codec"),
        ({"host_bytes": 1 << 20, "digest": b"short"}, "digest"),
        ({"host_bytes": 1 << 20, "remote": "ftp://x"}, ""),
    ):
        with pytest.raises(stemma.Error, match=what):
            stemma.Tiers(pool, **wrong)
    packed = stemma.Pool(layers=2, pages=PAGES, page_size=PAGE_SIZE, heads=1, head_dim=8, dtype="int8")
    for device, windowed in ((packed, None), (pool, packed)):
        with pytest.raises(stemma.InvalidArgumentError, match="codec"):
            stemma.Tiers(device, host_bytes=1 << 20, codec="int8", windowed_pool=windowed)


def test_a_pool_copies_pages():
    pool = stemma.Pool(layers=2, pages=4, page_size=2, heads=1, head_dim=4)
    rows = numpy.full((2, 1, 4), 5, dtype=numpy.float32)
    pool.store(1, [2, 3], rows, rows)
    pool.copy_page(1, 3)
    assert (numpy.asarray(pool.view())[:, 1, 3] == 5).all() and not numpy.asarray(pool.view())[:, 0].any()
    with pytest.raises(stemma.InvalidArgumentError):
        pool.copy_page(0, 4)


def test_a_pool_on_a_gpu_is_asked_for_by_name():
    shape = {"layers": 2, "pages": 4, "page_size": 2, "heads": 1, "head_dim": 4}
    with pytest.raises(stemma.InvalidArgumentError, match="device"):
        stemma.Pool(**shape, device="tpu")
    # No machine has so many: without CUDA it says so, with it that there is none of that number.
    with pytest.raises((stemma.UnsupportedError, stemma.NotFoundError)):
        stemma.Pool(**shape, device="cuda:4096")
    with pytest.raises(stemma.InvalidArgumentError, match="no GPU"):
        stemma.Pool(**shape).record_use(0)


def test_a_pool_on_a_gpu_is_torchs_memory_too():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    pool = stemma.Pool(layers=2, pages=4, page_size=2, heads=1, head_dim=4, dtype="bf16", device="cuda:0")
    assert pool.k(0).__dlpack_device__() == (2, 0)
    stream = torch.cuda.current_stream().cuda_stream
    rows = torch.arange(8, dtype=torch.bfloat16, device="cuda:0").reshape(2, 1, 4)
    pool.store(1, torch.tensor([5, -1], device="cuda:0"), rows, rows, stream=stream)
    pool.copy_page(2, 0, stream=stream)
    pool.record_use(stream)
    view = torch.from_dlpack(pool.view())
    assert torch.equal(view[:, 1, 0, 1], rows[:1].expand(2, 1, 4)) and torch.equal(view[:, 1, 2], view[:, 1, 0])
    with pytest.raises(BufferError):
        memoryview(pool.k(0))


def test_the_stub_of_a_life_over_tiers_is_the_documentations():
    text = (pathlib.Path(__file__).parents[2] / "docs/PYTHON.md").read_text()
    code = text.split("## Lower tiers")[1].split("```python\n")[1].split("```")[0]
    exec(compile(code, "docs/PYTHON.md", "exec"), {})


def test_other_threads_run_while_a_cache_that_is_dropped_waits_for_a_store(set_switch_interval):
    asked, dropping, ends = threading.Event(), threading.Event(), []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():  # never an answer
        connection, _ = listener.accept()
        connection.recv(1)
        asked.set()
        dropping.wait()
        ends.append("server")
        listener.close()
        connection.close()

    server = threading.Thread(target=serve)
    server.start()
    engines = [Engine(remote=f"redis://127.0.0.1:{listener.getsockname()[1]}")]
    engines[0].cache.purge("ada")
    engines[0].cache.poll_transfers()
    asked.wait()
    set_switch_interval(60)  # from here on the other thread runs only where it is let
    dropping.set()
    engines.clear()
    ends.append("cache")
    server.join()
    assert ends == ["server", "cache"]


def test_of_two_threads_that_open_a_cache_over_tiers_one_has_them():
    pool = stemma.Pool(layers=1, pages=1 << 16, page_size=PAGE_SIZE, heads=1, head_dim=8)
    tiers, caches, refused = stemma.Tiers(pool, host_bytes=1 << 20), [], []

    def open_cache():
        try:
            caches.append(stemma.Cache(pages=1 << 16, page_size=PAGE_SIZE, tiers=tiers))
        except stemma.InvalidArgumentError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=open_cache) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(caches) == 1 and refused == ["tiers: another Cache has them"]


def test_tiers_are_free_again_where_a_cache_was_not_opened():
    pool = stemma.Pool(layers=1, pages=8, page_size=PAGE_SIZE, heads=1, head_dim=8)
    tiers = stemma.Tiers(pool, host_bytes=1 << 20)
    with pytest.raises(stemma.NotFoundError):
        stemma.Cache(pages=8, page_size=PAGE_SIZE, tiers=tiers, host_eviction="none such")
    stemma.Cache(pages=8, page_size=PAGE_SIZE, tiers=tiers)
