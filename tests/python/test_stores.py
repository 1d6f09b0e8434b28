"""stemma.PageStore: what comes back is what was put, or nothing."""

import ctypes
import subprocess
import sys
import textwrap
import threading

import numpy
import pytest

import stemma


@pytest.fixture(params=["memory", "disk", "remote"])
def store(request, tmp_path):
    if request.param == "memory":
        opened = stemma.PageStore.memory(value_bytes=5000, bytes_max=1 << 20)
    elif request.param == "remote":
        opened = stemma.PageStore.remote(request.getfixturevalue("redis"), value_bytes=5000, secret="of tests")
        opened.clear()
    else:
        opened = stemma.PageStore.disk(str(tmp_path), value_bytes=5000, bytes_max=4 << 20)
    yield opened
    opened.close()


@pytest.mark.parametrize("value", [b"", b"x", bytes(range(256)) * 19, b"y" * 5000])
def test_a_value_comes_back(store, value):
    assert store.get("name") is None
    assert store.put("name", value)
    assert store.get("name") == store.get(b"name") == value


def test_buffers_are_values(store):
    numbers = numpy.arange(100, dtype=numpy.float32)
    assert store.put("numbers", numbers)
    assert numpy.frombuffer(store.get("numbers"), numpy.float32).tolist() == numbers.tolist()


def deaf(array):
    """An object with the array's buffer, strides and all, whatever is asked for, as some of pybind11 have it."""
    get_buffer = ctypes.pythonapi.PyObject_GetBuffer
    give = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)(
        lambda _, out, flags: get_buffer(ctypes.py_object(array), ctypes.c_void_p(out), 0x18)  # PyBUF_STRIDES
    )

    class Slot(ctypes.Structure):
        _fields_ = [("number", ctypes.c_int), ("function", ctypes.c_void_p)]

    class Spec(ctypes.Structure):
        _fields_ = [("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int),
                    ("flags", ctypes.c_uint), ("slots", ctypes.POINTER(Slot))]

    slots = (Slot * 2)(Slot(1, ctypes.cast(give, ctypes.c_void_p)), Slot(0, None))  # Py_bf_getbuffer
    make = ctypes.pythonapi.PyType_FromSpec
    make.restype = ctypes.py_object
    kind = make(ctypes.byref(Spec(b"deaf.Deaf", object.__basicsize__, 0, 0, slots)))
    kind.give = give  # kept with it
    return kind()


def test_a_value_in_pieces_is_refused(store):
    numbers = numpy.arange(100, dtype=numpy.float32).reshape(10, 10)
    assert store.put("whole", deaf(numbers)) and store.get("whole") == numbers.tobytes()
    for value in (numbers[:, :5], deaf(numbers[:, :5])):
        with pytest.raises((BufferError, ValueError)):
            store.put("part", value)
    assert store.get("part") is None


def test_a_value_that_is_too_long_is_not_stored(store):
    assert not store.put("name", b"y" * 5001)
    assert store.get("name") is None


def test_the_first_value_of_a_name_stays(store):
    assert store.put("name", b"first") and store.put("name", b"second")
    assert store.get("name") == b"first"


def test_names_are_asked_for_from_the_first_on(store):
    for name in ("a", "b", "d"):
        store.put(name, b"1")
    assert store.exists(["a", "b", "c", "d"]) == 2
    assert store.exists(["c", "a"]) == 0 and store.exists([]) == 0


def test_a_removed_value_is_gone(store):
    store.put("name", b"1")
    assert store.remove("name") and not store.remove("name")
    assert store.get("name") is None
    assert store.put("name", b"2") and store.get("name") == b"2"


def test_clearing_removes_all(store):
    store.put("a", b"1")
    store.put("b", b"2")
    store.clear()
    assert store.get("a") is store.get("b") is None and store.exists(["a"]) == 0
    assert store.put("a", b"3") and store.get("a") == b"3"


def test_what_is_full_forgets_the_oldest():
    store = stemma.PageStore.memory(value_bytes=4000, bytes_max=10 * 8192)
    for at in range(12):
        assert store.put(str(at), b"x")
    assert store.get("0") is None and store.get("11") == b"x" and store.stats()["values"] == 10


def test_a_disk_store_is_found_again(tmp_path):
    for life in range(2):
        store = stemma.PageStore.disk(str(tmp_path), value_bytes=5000, bytes_max=4 << 20)
        assert store.get("name") == (b"kept" if life == 1 else None)
        store.put("name", b"kept")
        store.close()


# Python calls handlers of signals and its collector wherever a store is being opened or closed, in the thread that does so.
SHARES = """
import gc, os, signal, stemma
from stemma._stores import open_store

class Amid:
    # Does something while a directory is opened.
    def __init__(self, work):
        self.work = work
    def __index__(self):
        work, self.work = self.work, lambda: None
        work()
        return 1 << 22

def share(name, bytes_max=1 << 22):
    directory = os.path.join({folder!r}, name)
    return open_store({{"directory": directory, "value_bytes": 4096, "bytes_max": bytes_max}})

def opens_alone(name):
    # Whether it is closed: what is open is refused.
    return stemma.PageStore.disk(os.path.join({folder!r}, name), value_bytes=4096, bytes_max=1 << 22).put("name", b"1")

def raise_term():
    signal.raise_signal(signal.SIGTERM)

signal.alarm(20)
"""


def run_of_shares(tmp_path, code):
    program = SHARES.format(folder=str(tmp_path)) + textwrap.dedent(code) + "\nprint('goes on')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "goes on\n", "")


def test_a_handler_of_signals_closes_a_share_while_another_is_opened(tmp_path):
    run_of_shares(
        tmp_path,
        """
        first = share("first")
        signal.signal(signal.SIGTERM, lambda *_: first.close())
        second = share("second", Amid(raise_term))
        assert second.put("name", b"1")
        assert opens_alone("first")
        """,
    )


def test_the_collector_drops_a_share_while_another_is_opened(tmp_path):
    run_of_shares(
        tmp_path,
        """
        class Engine:
            def __init__(self):
                self.itself, self.store = self, share("first")

        gc.disable()
        Engine()
        second = share("second", Amid(gc.collect))
        assert second.put("name", b"1")
        assert opens_alone("first")
        """,
    )


def test_what_handlers_of_signals_close_amid_calls_of_shares_is_nobodys(tmp_path):
    run_of_shares(
        tmp_path,
        """
        import sys

        # Before each line of what is opened or closed, the share that another one of its directory has.
        for at in range(40):
            held, lines = [share("first")], 0

            def trace(frame, event, _):
                global lines
                if frame.f_globals["__name__"] != "stemma._stores":
                    return None
                if event == "line":
                    lines += 1
                    if lines == at:
                        sys.settrace(None)
                        held.pop().close()
                return trace

            sys.settrace(trace)
            second = share("first")
            sys.settrace(None)
            assert second.put("name", b"1")
            sys.settrace(trace)
            second.close()
            sys.settrace(None)
            assert lines < 39
        """,
    )


def test_a_remote_store_is_everybodys(redis):
    mine, yours = (stemma.PageStore.remote(redis, value_bytes=100, secret="ours") for _ in range(2))
    assert mine.put("name", b"shared") and yours.get("name") == b"shared"
    assert stemma.PageStore.remote(redis, value_bytes=100, secret="another").get("name") is None
    other_size = stemma.PageStore.remote(redis, value_bytes=200, secret="ours")
    assert other_size.get("name") is None
    other_size.clear()
    assert yours.get("name") == b"shared"


def test_a_server_that_is_down_is_a_miss():
    store = stemma.PageStore.remote("redis://127.0.0.1:1", value_bytes=100, deadline_us=100_000)
    assert store.get("name") is None and not store.put("name", b"1")
    assert store.exists(["name"]) == 0 and not store.remove("name")
    with pytest.raises(stemma.Error):
        stemma.PageStore.remote("ftp://127.0.0.1", value_bytes=100)


def test_a_closed_store_says_so(store):
    store.close()
    with pytest.raises(stemma.InvalidArgumentError, match="closed"):
        store.get("name")


def test_a_store_is_closed_while_other_threads_use_it():
    def use(store, ready):
        ready.wait()
        with pytest.raises(stemma.InvalidArgumentError, match="closed"):
            while True:
                store.exists(["one"])

    for _ in range(200):
        store, ready = stemma.PageStore.memory(value_bytes=64, bytes_max=1 << 16), threading.Barrier(3)
        threads = [threading.Thread(target=use, args=(store, ready)) for _ in range(2)]
        for thread in threads:
            thread.start()
        ready.wait()
        store.close()
        for thread in threads:
            thread.join()


def test_wrong_sizes_are_named(tmp_path):
    with pytest.raises(stemma.InvalidArgumentError, match="value_bytes"):
        stemma.PageStore.memory(value_bytes=0, bytes_max=1)
    with pytest.raises(stemma.InvalidArgumentError):
        stemma.PageStore.disk(str(tmp_path), value_bytes=1, bytes_max=1)


def test_room_for_no_value_is_refused_and_for_one_is_enough(tmp_path):
    for open_store, value_bytes in [
        (stemma.PageStore.memory, 10),
        (lambda **more: stemma.PageStore.disk(str(tmp_path), **more), 1 << 20),
    ]:
        with pytest.raises(stemma.InvalidArgumentError, match="^bytes_max: one value takes") as refused:
            open_store(value_bytes=value_bytes, bytes_max=1000)
        least = int(str(refused.value).split()[4])
        with pytest.raises(stemma.InvalidArgumentError, match="^bytes_max: "):
            open_store(value_bytes=value_bytes, bytes_max=least - 1)
        store = open_store(value_bytes=value_bytes, bytes_max=least)
        assert store.put("name", bytes(value_bytes)) and store.get("name") == bytes(value_bytes)
    for value_bytes in ((1 << 48) + 1, (1 << 63) - 1):
        with pytest.raises(stemma.InvalidArgumentError, match="^value_bytes: "):
            stemma.PageStore.remote("redis://127.0.0.1:1", value_bytes=value_bytes)


def test_a_deadline_that_means_for_ever_is_not_over_at_once(tmp_path):
    store = stemma.PageStore.disk(str(tmp_path), value_bytes=100, bytes_max=4 << 20, deadline_us=(1 << 63) - 1)
    assert store.put("name", b"value")
    assert store.get("name") == b"value"
    store.close()


def test_a_key_names_all_tokens_up_to_its_page():
    keys = stemma.page_keys(range(11), 4, bytes(32))
    assert len(keys) == 2 and all(len(key) == 32 for key in keys)
    assert stemma.page_keys(range(8), 4, bytes(32)) == keys
    other = stemma.page_keys([9, *range(1, 8)], 4, bytes(32))
    assert other[0] != keys[0] and other[1] != keys[1]
    assert stemma.page_keys(range(8), 4, b"\1" + bytes(31))[0] != keys[0]
    with pytest.raises(stemma.InvalidArgumentError, match="32 bytes"):
        stemma.page_keys([1], 1, b"")
