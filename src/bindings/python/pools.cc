// stemma.Pool and TensorPart: the bytes of keys and values, for numpy and torch without a copy.
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/thread_pool.h"
#include "bindings/python/binding.h"
#include "bindings/python/objects.h"
#include "cuda/named_backend.h"
#include "pool/dlpack.h"
#include "pool/kv_pool_factory.h"
#include "stemma/kv_pool.h"

namespace stemma::python {

namespace {

using dlpack::Access;

// DLPack before its version 1, which torch and numpy of Debian 12 still speak.
struct ManagedTensor {
  dlpack::Tensor tensor;
  void* owner_context = nullptr;
  void (*deleter)(ManagedTensor* self) = nullptr;
};
static_assert(sizeof(ManagedTensor) == 64, "the layout that other libraries were compiled with");

// A part of a pool, or all of it.
struct TensorPart {
  py::object owner;
  TensorView view;
  DeviceKind device = DeviceKind::kCpu;
  Access access = Access::kReadWrite;
  std::int32_t ordinal = 0;  // of the GPU
};

// A tensor that another library has: keeps the pool alive until that calls its deleter.
template <typename Managed>
struct Lent {
  Managed managed;
  dlpack::ManagedTensorVersioned* inner = nullptr;
  PyObject* owner = nullptr;

  static void give_back(Managed* managed) {
    const std::unique_ptr<Lent> lent(static_cast<Lent*>(managed->owner_context));
    lent->inner->deleter(lent->inner);
    const PythonHeld python;
    Py_DECREF(lent->owner);
  }
};

// A capsule that nobody took gives its tensor back itself.
template <typename Managed>
void drop_capsule(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;  // taken: it was renamed
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

template <typename Managed>
Lent<Managed>* lend(const TensorPart& part) {
  auto lent = std::make_unique<Lent<Managed>>();
  lent->inner = value_of(dlpack::export_view(part.view, part.device, part.access));
  lent->managed.tensor = lent->inner->tensor;
  lent->managed.tensor.device.id = part.ordinal;
  lent->managed.owner_context = lent.get();
  lent->managed.deleter = &Lent<Managed>::give_back;
  lent->owner = part.owner.inc_ref().ptr();
  return lent.release();
}

// Where DLPack says that it lies: the kind of device, and which of them.
using DeviceName = std::pair<std::int32_t, std::int32_t>;

DeviceName device_of(const TensorPart& part) {
  const bool on_cpu = part.device == DeviceKind::kCpu;
  return {on_cpu ? dlpack::kDeviceCpu : dlpack::kDeviceCuda, part.ordinal};
}

// Who asks for it on another device than its own would have it copied there.
py::object to_dlpack(const TensorPart& part, const py::object&,
                     const std::optional<std::pair<std::uint32_t, std::uint32_t>>& max_version,
                     const std::optional<DeviceName>& device, const std::optional<bool>& copy) {
  if (copy.value_or(false) || device.value_or(device_of(part)) != device_of(part)) {
    throw py::buffer_error("a pool's tensor is not copied: it stays on its device");
  }
  if (max_version.has_value() && max_version->first >= dlpack::kMajorVersion) {
    auto* const lent = lend<dlpack::ManagedTensorVersioned>(part);
    lent->managed.version = lent->inner->version;
    lent->managed.flags = lent->inner->flags;
    return py::reinterpret_steal<py::object>(
        PyCapsule_New(&lent->managed, "dltensor_versioned", [](PyObject* capsule) {
          drop_capsule<dlpack::ManagedTensorVersioned>(capsule, "dltensor_versioned");
        }));
  }
  if (part.access == Access::kReadOnly) {
    throw py::buffer_error("a read-only tensor wants DLPack 1.0: pass max_version");
  }
  auto* const lent = lend<ManagedTensor>(part);
  return py::reinterpret_steal<py::object>(
      PyCapsule_New(&lent->managed, "dltensor",
                    [](PyObject* capsule) { drop_capsule<ManagedTensor>(capsule, "dltensor"); }));
}

// How the buffer protocol calls a dtype; the codes of 8 bits are what they are.
std::string format_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f";
    case DType::kF16:
      return "e";
    case DType::kInt8:
      return "b";
    case DType::kFp8E4M3:
    case DType::kFp8E5M2:
      return "B";
    case DType::kBF16:
      break;  // refused before (get_buffer)
  }
  return "H";
}

py::buffer_info buffer_of(const TensorPart& part) {
  const auto bytes = static_cast<py::ssize_t>(dtype_bytes(part.view.dtype));
  std::vector<py::ssize_t> shape;
  std::vector<py::ssize_t> strides;
  for (int i = 0; i < part.view.dims; ++i) {
    shape.push_back(part.view.shape[static_cast<std::size_t>(i)]);
    strides.push_back(part.view.stride[static_cast<std::size_t>(i)] * bytes);
  }
  return {part.view.bytes, bytes,   format_of(part.view.dtype),      part.view.dims,
          shape,           strides, part.access == Access::kReadOnly};
}

// nullptr: it has one.
const char* why_no_buffer(const TensorPart& part) {
  if (part.device != DeviceKind::kCpu) return "it lies on a GPU: use DLPack";
  return part.view.dtype == DType::kBF16 ? "the buffer protocol knows no bf16: use DLPack"
                                         : nullptr;
}

int no_buffer(Py_buffer* out, const char* why) {
  out->obj = nullptr;
  PyErr_SetString(PyExc_BufferError, why);
  return -1;
}

bool asks_for(int flags, int wanted) {
  return (flags & wanted) == wanted;
}

// Whether `whole`, with shape and strides, lies as who asks for it with `flags` goes over it.
bool lies_as_asked(const Py_buffer& whole, int flags) {
  const auto lies = [&](char order) { return PyBuffer_IsContiguous(&whole, order) != 0; };
  if (!asks_for(flags, PyBUF_STRIDES) || asks_for(flags, PyBUF_C_CONTIGUOUS)) return lies('C');
  if (asks_for(flags, PyBUF_F_CONTIGUOUS)) return lies('F');
  return !asks_for(flags, PyBUF_ANY_CONTIGUOUS) || lies('A');
}

// pybind11 wants an answer that cannot fail: what can is found out first. To who does not ask for
// strides it gives any bytes, as if those of a part were all that lie behind its first one.
int get_buffer(PyObject* part, Py_buffer* out, int flags) {
  const auto& asked = py::handle(part).cast<const TensorPart&>();
  if (const char* const why = why_no_buffer(asked); why != nullptr) return no_buffer(out, why);
  if (py::detail::pybind11_getbuffer(part, out, flags | PyBUF_STRIDES) != 0) return -1;
  if (!lies_as_asked(*out, flags)) {
    PyBuffer_Release(out);
    return no_buffer(
        out, "its bytes do not lie in one piece as asked: numpy.ascontiguousarray copies them");
  }
  if (!asks_for(flags, PyBUF_STRIDES)) out->strides = nullptr;
  if (!asks_for(flags, PyBUF_ND)) {
    out->shape = nullptr;
    out->ndim = 1;
  }
  return 0;
}

// What numpy asks where there is no buffer: without it, it would make an array of one object.
py::object to_array(const py::object& self, const py::args& args, const py::kwargs& options) {
  const char* const why = why_no_buffer(self.cast<const TensorPart&>());
  if (why != nullptr) throw py::buffer_error(why);
  return py::module_::import("numpy").attr("array")(py::memoryview(self), *args, **options);
}

KvKind parse_kind(const std::string& name) {
  for (const KvKind kind : {KvKind::kMha, KvKind::kMla}) {
    if (kv_kind_name(kind) == name) return kind;
  }
  fail({ErrorCode::kNotFound, "kind: \"mha\" or \"mla\" is wanted, and not \"" + name + "\""});
}

Pool open_pool(std::int64_t layers, std::int64_t pages, std::int64_t page_size, std::int64_t heads,
               std::int64_t head_dim, const std::string& dtype, const std::string& layout,
               const std::string& kind, std::int64_t latent_dim, const std::string& device) {
  KvShape shape;
  shape.layers = layers;
  shape.pages = pages;
  shape.page_size = page_size;
  shape.heads = heads;
  shape.head_dim = head_dim;
  shape.dtype = value_of(parse_kv_dtype(dtype));
  shape.kind = parse_kind(kind);
  shape.latent_dim = latent_dim;
  check(validate(shape));
  const KvLayout order = value_of(parse_kv_layout(layout));
  const std::optional<int> gpu = value_of(parse_device(device));
  const OthersRun others_run;
  if (gpu.has_value()) {
    auto opened = value_of(open_cuda_pool(shape, order, *gpu));
    CudaKvPool* const on_gpu = opened.get();
    return {std::move(opened), on_gpu};
  }
  ThreadPool threads(1);
  return {value_of(make_kv_pool(shape, order, threads))};
}

// A stream that Python names by its number, torch's `cuda_stream`; 0 is CUDA's default one.
void* stream_of(std::uintptr_t number) {
  return reinterpret_cast<void*>(number);
}

CudaKvPool& on_gpu(const Pool& self) {
  if (self.gpu_or_null == nullptr) refuse("the pool is on no GPU");
  return *self.gpu_or_null;
}

TensorPart whole(const py::object& self, bool read_only) {
  KvPool& pool = *self.cast<Pool&>().pool;
  const Access access = read_only ? Access::kReadOnly : Access::kReadWrite;
  const CudaKvPool* const gpu = self.cast<Pool&>().gpu_or_null;
  return {self, pool.logical_view(), pool.device(), access, gpu == nullptr ? 0 : gpu->ordinal()};
}

// K (0) or V (1) of a layer, [pages, page_size, heads, head_dim].
TensorPart layer_part(const py::object& self, std::int64_t which, std::int64_t layer,
                      bool read_only) {
  TensorPart part = whole(self, read_only);
  TensorView& view = part.view;
  if (layer < 0 || layer >= view.shape[1]) refuse("layer: the pool has no such layer");
  if (which >= view.shape[0]) refuse("v: a pool of latent rows has V in the rows of K");
  const std::int64_t offset = which * view.stride[0] + layer * view.stride[1];
  view.bytes = static_cast<std::byte*>(view.bytes) + offset * dtype_bytes(view.dtype);
  view.dims -= 2;
  for (std::size_t i = 0; i + 2 < TensorView::kDimsMax; ++i) {
    view.shape[i] = view.shape[i + 2];
    view.stride[i] = view.stride[i + 2];
  }
  return part;
}

DType dtype_of(const dlpack::Type& type) {
  if (type.code == dlpack::kTypeFloat && type.bits == 32) return DType::kF32;
  if (type.code == dlpack::kTypeFloat && type.bits == 16) return DType::kF16;
  if (type.code == dlpack::kTypeBfloat && type.bits == 16) return DType::kBF16;
  refuse("rows: of f32, f16 or bf16 are wanted");
}

// A tensor of another library, where it lies. Of a GPU: what is queued on `stream` from here on
// finds it whole.
class LentTensor {
 public:
  LentTensor(const py::object& source, const CudaKvPool* gpu_or_null, std::uintptr_t stream,
             const char* what)
      : what_(what) {
    if (!py::hasattr(source, "__dlpack__"))
      refuse(what_ + ": a tensor of numpy or torch is wanted");
    // DLPack calls the default stream 1.
    const bool on_gpu = gpu_or_null != nullptr;
    capsule_ = on_gpu ? source.attr("__dlpack__")(py::arg("stream") = stream == 0 ? 1 : stream)
                      : source.attr("__dlpack__")();
    auto* const managed =
        static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule_.ptr(), "dltensor"));
    if (managed == nullptr) throw py::error_already_set();
    tensor_ = &managed->tensor;
    const std::int32_t wanted = on_gpu ? dlpack::kDeviceCuda : dlpack::kDeviceCpu;
    if (tensor_->device.type != wanted ||
        (on_gpu && tensor_->device.id != gpu_or_null->ordinal())) {
      refuse(what_ +
             (on_gpu ? ": of the pool's GPU are wanted" : ": of the CPU's memory are wanted"));
    }
  }
  const dlpack::Tensor& tensor() const noexcept { return *tensor_; }
  const std::byte* elements() const noexcept {
    return static_cast<const std::byte*>(tensor_->elements) + tensor_->byte_offset;
  }

 private:
  std::string what_;
  py::object capsule_;  // keeps the tensor, and gives it back
  const dlpack::Tensor* tensor_ = nullptr;
};

// Rows of K or V that lie in another library's tensor, [rows, heads, head_dim].
class RowText {
 public:
  RowText(const py::object& source, const Pool& pool, std::uintptr_t stream)
      : lent_(source, pool.gpu_or_null, stream, "rows") {
    read(pool.pool->shape());
    rows_.device = pool.pool->device();
  }
  const KvRows& rows() const noexcept { return rows_; }

 private:
  void read(const KvShape& shape) {
    const dlpack::Tensor& tensor = lent_.tensor();
    const std::int64_t* const extent = tensor.shape;
    if (tensor.dims != 3 || extent[1] != shape.heads || extent[2] != shape.head_dim) {
      refuse("rows: [rows, " + std::to_string(shape.heads) + ", " + std::to_string(shape.head_dim) +
             "] are wanted");
    }
    const std::int64_t dense = shape.row_elements();
    const std::int64_t* const stride = tensor.strides;
    const bool rows_dense = stride == nullptr || shape.row_elements() == 1 ||
                            (stride[2] == 1 && (shape.heads == 1 || stride[1] == shape.head_dim));
    if (!rows_dense) refuse("rows: each must lie in one piece");
    rows_.elements = lent_.elements();
    rows_.dtype = dtype_of(tensor.type);
    rows_.rows = extent[0];
    rows_.heads = shape.heads;
    rows_.head_dim = shape.head_dim;
    // Of a single row writers say any stride (torch: 1).
    rows_.row_stride = stride == nullptr || extent[0] < 2 ? dense : stride[0];
  }

  LentTensor lent_;
  KvRows rows_;
};

// Slots that lie on the pool's GPU, as 32 or 64 bits.
Status store_on_gpu(CudaKvPool& pool, std::uintptr_t stream, std::int64_t layer,
                    const LentTensor& slots, const KvRows& k, const KvRows& v) {
  const dlpack::Tensor& tensor = slots.tensor();
  const bool dense = tensor.strides == nullptr || tensor.strides[0] == 1;
  if (tensor.dims != 1 || !dense || tensor.type.code != dlpack::kTypeInt ||
      (tensor.type.bits != 32 && tensor.type.bits != 64)) {
    refuse("slots: int32 or int64 [rows] in one piece are wanted");
  }
  const auto count = static_cast<std::size_t>(tensor.shape[0]);
  if (tensor.type.bits == 32) {
    const auto* const narrow = reinterpret_cast<const std::int32_t*>(slots.elements());
    return pool.store_on(stream_of(stream), layer, std::span(narrow, count), k, v);
  }
  const auto* const wide = reinterpret_cast<const std::int64_t*>(slots.elements());
  return pool.store_on(stream_of(stream), layer, std::span(wide, count), k, v);
}

void store(Pool& self, std::int64_t layer, const py::object& slots, const py::object& k,
           const py::object& v_or_none, std::uintptr_t stream) {
  const RowText keys(k, self, stream);
  std::optional<RowText> values;
  if (!v_or_none.is_none()) values.emplace(v_or_none, self, stream);
  const KvRows no_rows;
  const KvRows& v = values.has_value() ? values->rows() : no_rows;
  if (self.gpu_or_null != nullptr) {
    const LentTensor places(slots, self.gpu_or_null, stream, "slots");
    check(store_on_gpu(*self.gpu_or_null, stream, layer, places, keys.rows(), v));
    return;
  }
  const NumberText places(slots, "slots");
  const OthersRun others_run;
  check(self.pool->store(layer, places.numbers(), keys.rows(), v));
}

void copy_page(Pool& self, std::int32_t from, std::int32_t to, std::uintptr_t stream) {
  for (const std::int32_t page : {from, to}) {
    if (page < 0 || page >= self.pool->shape().pages) refuse("the pool has no such page");
  }
  if (self.gpu_or_null != nullptr) {
    check(self.gpu_or_null->copy_page_on(stream_of(stream), PageId(from), PageId(to)));
  } else {
    check(self.pool->copy_page(PageId(from), PageId(to)));
  }
}

void bind_tensor_part(py::module_& module) {
  py::class_<TensorPart> type(module, "TensorPart", py::buffer_protocol(),
                              "Bytes of a Pool where they lie: numpy.asarray(part), "
                              "torch.from_dlpack(part). The pool lives as long as they do.");
  type.def_buffer(&buffer_of)
      .def("__dlpack__", &to_dlpack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
           py::arg("copy") = py::none())
      .def("__array__", &to_array)
      .def("__dlpack_device__", &device_of)
      .def_property_readonly("dtype",
                             [](const TensorPart& part) { return dtype_name(part.view.dtype); })
      .def_property_readonly("shape", [](const TensorPart& part) {
        py::tuple shape(part.view.dims);
        for (int i = 0; i < part.view.dims; ++i) {
          shape[static_cast<std::size_t>(i)] = part.view.shape[static_cast<std::size_t>(i)];
        }
        return shape;
      });
  reinterpret_cast<PyHeapTypeObject*>(type.ptr())->as_buffer.bf_getbuffer = &get_buffer;
}

}  // namespace

void bind_pools(py::module_& module) {
  bind_tensor_part(module);
  py::class_<Pool>(module, "Pool",
                   "Keys and values of all layers, page by page, in one piece of memory.")
      .def(py::init(&open_pool), py::kw_only(), py::arg("layers"), py::arg("pages"),
           py::arg("page_size"), py::arg("heads"), py::arg("head_dim"), py::arg("dtype") = "f32",
           py::arg("layout") = "layer_first", py::arg("kind") = "mha", py::arg("latent_dim") = 0,
           py::arg("device") = "cpu",
           "heads: of K and V; dtype: \"f32\", \"f16\", \"bf16\", \"fp8_e4m3\", \"fp8_e5m2\", "
           "\"int8\"; layout: \"layer_first\" or \"page_first\"; kind: \"mha\", or \"mla\" with "
           "latent_dim columns of a row that are V too; device: \"cpu\", \"cuda\" or \"cuda:N\".")
      .def(
          "store", &store, py::arg("layer"), py::arg("slots"), py::arg("k"),
          py::arg("v") = py::none(), py::arg("stream") = 0,
          "Writes row i of k and v, [rows, heads, head_dim], to slot slots[i] = page * page_size + "
          "offset: of the pool's dtype or f32; where that has 8 bits, of f32, f16 or bf16. Nothing "
          "is written unless all is right.\n\n"
          "Of a pool on a GPU all three lie there, and it is queued on `stream` "
          "(torch.cuda.current_stream().cuda_stream); slots outside the pool are left out.")
      .def("copy_page", &copy_page, py::arg("from_page"), py::arg("to_page"), py::arg("stream") = 0,
           "Copies all of a page; on a GPU it is queued on `stream`.")
      .def(
          "record_use",
          [](Pool& self, std::uintptr_t stream) {
            check(on_gpu(self).record_use(stream_of(stream)));
          },
          py::arg("stream"),
          "What is queued on `stream` by now uses the pool, which is on a GPU: pages go down to "
          "Tiers after it. Once a step, before commit or finish; the last call counts.")
      .def("view", &whole, py::arg("read_only") = false,
           "All of it, [2, layers, pages, page_size, heads, head_dim], a TensorPart; the first "
           "extent is 1 for \"mla\". Of 8-bit dtypes the codes.")
      .def(
          "k",
          [](const py::object& self, std::int64_t layer, bool read_only) {
            return layer_part(self, 0, layer, read_only);
          },
          py::arg("layer"), py::arg("read_only") = false,
          "K of a layer, [pages, page_size, heads, head_dim], a TensorPart.")
      .def(
          "v",
          [](const py::object& self, std::int64_t layer, bool read_only) {
            return layer_part(self, 1, layer, read_only);
          },
          py::arg("layer"), py::arg("read_only") = false,
          "V of a layer, [pages, page_size, heads, head_dim], a TensorPart.")
      .def_property_readonly(
          "total_bytes", [](const Pool& self) { return self.pool->shape().total_bytes(); },
          "Of keys and values, scales included.")
      .def_property_readonly(
          "page_bytes", [](const Pool& self) { return self.pool->shape().page_bytes(); },
          "Of one page in all layers.");
}

}  // namespace stemma::python
