"""stemma.Pool: the bytes of keys and values in numpy and torch, without a copy."""

import ctypes
import gc
import hashlib
import io
import sys

import numpy
import pytest

import stemma


def pool_of(**more):
    return stemma.Pool(**{"layers": 3, "pages": 5, "page_size": 4, "heads": 2, "head_dim": 8, **more})


@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
def test_what_is_written_to_a_view_is_in_the_pool(layout):
    pool = pool_of(layout=layout)
    view = numpy.asarray(pool.view())
    assert view.shape == (2, 3, 5, 4, 2, 8) and view.dtype == numpy.float32 and not view.flags.owndata
    view[0, 1] = 7
    view[1, 2, 4] = 9
    assert (numpy.asarray(pool.k(1)) == 7).all() and not numpy.asarray(pool.v(1)).any()
    assert (numpy.asarray(pool.v(2))[4] == 9).all() and not numpy.asarray(pool.k(0)).any()


@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
def test_rows_are_stored_in_their_slots(layout):
    pool, random = pool_of(layout=layout), numpy.random.default_rng(1)
    k, v = (random.standard_normal((3, 2, 8), dtype=numpy.float32) for _ in range(2))
    slots = numpy.array([0, 9, 19])
    pool.store(1, slots, k, v)
    pages, offsets = slots // 4, slots % 4
    assert (numpy.asarray(pool.k(1))[pages, offsets] == k).all()
    assert (numpy.asarray(pool.v(1))[pages, offsets] == v).all()
    assert numpy.count_nonzero(numpy.asarray(pool.view())) == 2 * 3 * 16


@pytest.mark.parametrize("dtype, taken", [("f32", "f32"), ("bf16", "bf16 or f32")])
def test_rows_of_another_dtype_are_refused_with_those_that_are_taken(dtype, taken):
    rows = numpy.ones((1, 2, 8), dtype=numpy.float16)
    with pytest.raises(stemma.InvalidArgumentError, match=f"is f16, the pool takes {taken}$"):
        pool_of(dtype=dtype).store(0, [0], rows, rows)


def test_rows_are_rounded_to_the_pools_dtype():
    pool, k = pool_of(dtype="f16"), numpy.full((1, 2, 8), 1 / 3, dtype=numpy.float32)
    pool.store(0, [5], k, k)
    assert (numpy.asarray(pool.k(0))[1, 1] == numpy.float16(1 / 3)).all()


class AsTorchGivesIt:
    """An f32 array through DLPack, the stride of every extent below 2 being 1, as torch writes it."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("dims", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                    ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, array):
        self.array, numbers = array, ctypes.c_int64 * array.ndim
        self.shape = numbers(*array.shape)
        self.strides = numbers(*(1 if n < 2 else stride // 4 for n, stride in zip(array.shape, array.strides)))
        self.tensor = self.Tensor(array.ctypes.data, (ctypes.c_int32 * 2)(1, 0), array.ndim, 2, 32, 1, self.shape, self.strides)

    def __dlpack__(self, **_):
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return capsule(ctypes.addressof(self.tensor), b"dltensor", None)


@pytest.mark.parametrize("rows", [1, 2])
def test_rows_are_stored_whatever_stride_torch_says_of_one(rows):
    pool, k = pool_of(), numpy.arange(rows * 16, dtype=numpy.float32).reshape(rows, 2, 8)
    pool.store(0, numpy.arange(rows), AsTorchGivesIt(k), AsTorchGivesIt(k))
    assert (numpy.asarray(pool.k(0))[0, :rows] == k).all()


def test_nothing_is_stored_unless_all_is_right():
    pool, rows = pool_of(), numpy.ones((2, 2, 8), dtype=numpy.float32)
    for wrong in (
        lambda: pool.store(3, [0, 1], rows, rows),
        lambda: pool.store(0, [0, 20], rows, rows),
        lambda: pool.store(0, [0], rows, rows),
        lambda: pool.store(0, [0, 1], rows[:, :1], rows),
        lambda: pool.store(0, [0, 1], rows.astype(numpy.float64), rows),
        lambda: pool.store(0, [0, 1], rows[:, :, ::-1], rows),
        lambda: pool.store(0, [0, 1], rows),
        lambda: pool.store(0, [0, 1], [1.0], rows),
    ):
        with pytest.raises(stemma.InvalidArgumentError):
            wrong()
    assert not numpy.asarray(pool.view()).any()


def test_a_read_only_view_cannot_be_written():
    view = numpy.asarray(pool_of().k(0, read_only=True))
    assert not view.flags.writeable


def test_a_view_keeps_the_pool_alive():
    views = [take(pool_of(pages=5000).v(1)) for take in (numpy.asarray, numpy.from_dlpack)]
    gc.collect()
    assert not any(view.any() for view in views)
    views[0][...] = 3
    assert (views[0] == 3).all()


def test_a_capsule_that_nobody_takes_is_given_back():
    pool = pool_of()
    owners = sys.getrefcount(pool)
    capsules = [pool.k(0).__dlpack__(max_version=(1, 0)), pool.k(0).__dlpack__()]
    assert ["dltensor_versioned" in repr(capsule) for capsule in capsules] == [True, False]
    assert sys.getrefcount(pool) == owners + 2
    capsules.clear()
    assert sys.getrefcount(pool) == owners


def test_read_only_needs_the_dlpack_that_can_say_so():
    part = pool_of().k(0, read_only=True)
    with pytest.raises(BufferError):
        part.__dlpack__()
    assert part.__dlpack__(max_version=(1, 0)) is not None
    with pytest.raises(BufferError):
        part.__dlpack__(max_version=(1, 0), copy=True)


def test_a_device_that_is_asked_for_is_the_pools_or_refused():
    part = pool_of().k(0)
    cpu, gpu = (1, 0), (2, 0)
    assert part.__dlpack__(dl_device=part.__dlpack_device__()) is not None
    assert part.__dlpack__(dl_device=cpu, copy=False) is not None
    with pytest.raises(BufferError):
        part.__dlpack__(dl_device=gpu)
    with pytest.raises(BufferError):
        part.__dlpack__(max_version=(1, 0), dl_device=gpu)


def test_numpy_takes_it_through_dlpack():
    pool = pool_of(dtype="f16")
    view = numpy.from_dlpack(pool.k(2))
    numpy.asarray(pool.k(2))[1, 2, 1, 5] = 6
    assert view[1, 2, 1, 5] == 6 and view.shape == (5, 4, 2, 8) and pool.k(2).__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("dtype, name", [("f32", "float32"), ("f16", "float16"), ("bf16", "bfloat16")])
def test_torch_takes_it_through_dlpack(dtype, name):
    torch = pytest.importorskip("torch")
    pool = pool_of(dtype=dtype)
    view = torch.from_dlpack(pool.view())
    assert view.dtype == getattr(torch, name) and view.shape == (2, 3, 5, 4, 2, 8)
    rows = torch.arange(32, dtype=view.dtype).reshape(2, 2, 8)
    pool.store(0, torch.tensor([4, 6]), rows, rows)
    assert torch.equal(view[0, 0, 1, [0, 2]], rows) and torch.equal(view[1, 0, 1, [0, 2]], rows)


def from_buffer(part, _):
    return numpy.frombuffer(part, numpy.uint8).tobytes()


def hashed(part, _):
    return hashlib.sha256(part).digest()


def in_a_file(part, path):
    with open(path / "part", "wb", buffering=0) as file:
        file.write(part)
    return (path / "part").read_bytes()


def in_memory(part, _):
    file = io.BytesIO()
    file.write(part)
    return file.getvalue()


def in_a_store(part, _):
    store = stemma.PageStore.memory(value_bytes=1 << 16, bytes_max=1 << 20)
    assert store.put("part", part)
    return store.get("part")


# They take bytes in one piece and never look at strides.
@pytest.mark.parametrize("read", [from_buffer, hashed, in_a_file, in_memory, in_a_store])
@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
def test_bytes_in_one_piece_are_a_parts_own_or_refused(layout, read, tmp_path):
    pool = pool_of(layout=layout)
    view = numpy.asarray(pool.view())
    view[...] = numpy.arange(view.size).reshape(view.shape)
    for part in (pool.k(1), pool.v(2, read_only=True), pool.view()):
        if layout == "layer_first":
            assert read(part, tmp_path) == read(numpy.array(part), tmp_path)
        else:
            with pytest.raises(BufferError):
                read(part, tmp_path)


@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
def test_who_writes_bytes_in_one_piece_writes_to_no_other_part(layout):
    pool, file = pool_of(layout=layout), io.BytesIO(b"\1" * 5 * 4 * 2 * 8 * 4)
    if layout == "layer_first":
        assert file.readinto(pool.k(1)) == 5 * 4 * 2 * 8 * 4
    else:
        with pytest.raises((BufferError, TypeError)):  # of which readinto makes the other
            file.readinto(pool.k(1))
    view = numpy.array(pool.view())
    assert view[0, 1].all() == (layout == "layer_first")
    view[0, 1] = 0
    assert not view.any()


class Buffer(ctypes.Structure):
    """Python's Py_buffer."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p),
                ("shape", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


def asked(part, flags):
    """How many dimensions the answer has, its shape and its strides."""
    buffer = Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(part), ctypes.byref(buffer), flags)
    dims = buffer.ndim
    answer = dims, *(numbers[:dims] if numbers else None for numbers in (buffer.shape, buffer.strides))
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return answer


SIMPLE, ND, STRIDES, C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS = 0, 0x08, 0x18, 0x38, 0x58, 0x98


def test_a_buffer_says_what_is_asked_for():
    part = pool_of().k(1)
    shape, strides = [5, 4, 2, 8], [256, 64, 32, 4]
    assert asked(part, SIMPLE) == (1, None, None)
    assert asked(part, ND) == (4, shape, None)
    for flags in (STRIDES, C_CONTIGUOUS, ANY_CONTIGUOUS):
        assert asked(part, flags) == (4, shape, strides)
    with pytest.raises(BufferError):
        asked(part, F_CONTIGUOUS)
    row = pool_of(layout="page_first", pages=1, page_size=1, heads=1).k(1)
    for flags in (STRIDES, C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS):
        assert asked(row, flags)[:2] == (4, [1, 1, 1, 8])


def test_what_lies_in_pieces_is_given_to_who_asks_for_strides():
    part = pool_of(layout="page_first").k(1)
    assert asked(part, STRIDES) == (4, [5, 4, 2, 8], list(numpy.asarray(part).strides))
    for flags in (SIMPLE, ND, C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS):
        with pytest.raises(BufferError, match="in one piece"):
            asked(part, flags)


def test_bf16_has_no_buffer():
    with pytest.raises(BufferError):
        memoryview(pool_of(dtype="bf16").k(0))
    with pytest.raises(BufferError, match="DLPack"):
        numpy.asarray(pool_of(dtype="bf16").k(0))  # which would take it for an object among others


def test_latent_rows_have_no_values_of_their_own():
    pool = pool_of(kind="mla", heads=1, head_dim=12, latent_dim=8)
    assert numpy.asarray(pool.view()).shape == (1, 3, 5, 4, 1, 12)
    pool.store(0, [3], numpy.ones((1, 1, 12), dtype=numpy.float32))
    assert numpy.asarray(pool.k(0))[0, 3].all()
    with pytest.raises(stemma.InvalidArgumentError, match="latent"):
        pool.v(0)


def test_codes_of_eight_bits_are_what_they_are():
    pool = pool_of(dtype="int8")
    rows = numpy.full((1, 2, 8), 2.5, dtype=numpy.float32)
    pool.store(0, [0], rows, rows)
    assert (numpy.asarray(pool.k(0))[0, 0] == 127).all()


def test_a_wrong_shape_is_named():
    with pytest.raises(stemma.InvalidArgumentError, match="page_size"):
        pool_of(page_size=0)
    with pytest.raises(stemma.NotFoundError):
        pool_of(dtype="f64")
    with pytest.raises(stemma.NotFoundError, match="kind"):
        pool_of(kind="sparse")
    with pytest.raises(stemma.InvalidArgumentError, match="layer"):
        pool_of().k(3)


def test_it_knows_its_bytes():
    pool = pool_of()
    assert pool.page_bytes == 3 * 4 * 2 * 2 * 8 * 4 and pool.total_bytes == 5 * pool.page_bytes
