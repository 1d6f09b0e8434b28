// stemma.Pool and TensorPart: the bytes of keys and values, for numpy and torch without a copy.
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/thread_pool.h"
#include "bindings/python/binding.h"
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

struct Pool {
  std::unique_ptr<KvPool> pool;
};

// A part of a pool, or all of it.
struct TensorPart {
  py::object owner;
  TensorView view;
  DeviceKind device = DeviceKind::kCpu;
  Access access = Access::kReadWrite;
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
    const py::gil_scoped_acquire python;
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
  lent->managed.owner_context = lent.get();
  lent->managed.deleter = &Lent<Managed>::give_back;
  lent->owner = part.owner.inc_ref().ptr();
  return lent.release();
}

py::object to_dlpack(const TensorPart& part, const py::object&,
                     const std::optional<std::pair<std::uint32_t, std::uint32_t>>& max_version,
                     const py::object&, const std::optional<bool>& copy) {
  if (copy.value_or(false)) throw py::buffer_error("a pool's tensor is not copied");
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

// pybind11 wants an answer that cannot fail: what can is found out first.
int get_buffer(PyObject* part, Py_buffer* out, int flags) {
  if (py::handle(part).cast<const TensorPart&>().view.dtype == DType::kBF16) {
    out->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, "the buffer protocol knows no bf16: use DLPack");
    return -1;
  }
  return py::detail::pybind11_getbuffer(part, out, flags);
}

KvKind parse_kind(const std::string& name) {
  for (const KvKind kind : {KvKind::kMha, KvKind::kMla}) {
    if (kv_kind_name(kind) == name) return kind;
  }
  fail({ErrorCode::kNotFound, "kind: \"mha\" or \"mla\" is wanted, and not \"" + name + "\""});
}

Pool open_pool(std::int64_t layers, std::int64_t pages, std::int64_t page_size, std::int64_t heads,
               std::int64_t head_dim, const std::string& dtype, const std::string& layout,
               const std::string& kind, std::int64_t latent_dim) {
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
  const py::gil_scoped_release others_run;
  ThreadPool threads(1);
  return {value_of(make_kv_pool(shape, order, threads))};
}

TensorPart whole(const py::object& self, bool read_only) {
  KvPool& pool = *self.cast<Pool&>().pool;
  const Access access = read_only ? Access::kReadOnly : Access::kReadWrite;
  return {self, pool.logical_view(), pool.device(), access};
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

// Rows of K or V that lie in another library's tensor, [rows, heads, head_dim].
class RowText {
 public:
  RowText(const py::object& source, const KvShape& shape) {
    if (!py::hasattr(source, "__dlpack__")) refuse("rows: a tensor of numpy or torch is wanted");
    capsule_ = source.attr("__dlpack__")();
    auto* const managed =
        static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule_.ptr(), "dltensor"));
    if (managed == nullptr) throw py::error_already_set();
    read(managed->tensor, shape);
  }
  const KvRows& rows() const noexcept { return rows_; }

 private:
  void read(const dlpack::Tensor& tensor, const KvShape& shape) {
    if (tensor.device.type != dlpack::kDeviceCpu) refuse("rows: of the CPU's memory are wanted");
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
    rows_.elements = static_cast<const std::byte*>(tensor.elements) + tensor.byte_offset;
    rows_.dtype = dtype_of(tensor.type);
    rows_.rows = extent[0];
    rows_.heads = shape.heads;
    rows_.head_dim = shape.head_dim;
    rows_.row_stride = stride == nullptr ? dense : stride[0];
  }

  py::object capsule_;  // keeps the tensor, and gives it back
  KvRows rows_;
};

void store(Pool& self, std::int64_t layer, const py::object& slots, const py::object& k,
           const py::object& v_or_none) {
  const NumberText places(slots, "slots");
  const RowText keys(k, self.pool->shape());
  std::optional<RowText> values;
  if (!v_or_none.is_none()) values.emplace(v_or_none, self.pool->shape());
  const KvRows no_rows;
  const KvRows& v = values.has_value() ? values->rows() : no_rows;
  const py::gil_scoped_release others_run;
  check(self.pool->store(layer, places.numbers(), keys.rows(), v));
}

void bind_tensor_part(py::module_& module) {
  py::class_<TensorPart> type(module, "TensorPart", py::buffer_protocol(),
                              "Bytes of a Pool where they lie: numpy.asarray(part), "
                              "torch.from_dlpack(part). The pool lives as long as they do.");
  type.def_buffer(&buffer_of)
      .def("__dlpack__", &to_dlpack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
           py::arg("copy") = py::none())
      .def("__dlpack_device__",
           [](const TensorPart& part) {
             const bool on_cpu = part.device == DeviceKind::kCpu;
             return std::pair(on_cpu ? dlpack::kDeviceCpu : dlpack::kDeviceCuda, 0);
           })
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
           "heads: of K and V; dtype: \"f32\", \"f16\", \"bf16\", \"fp8_e4m3\", \"fp8_e5m2\", "
           "\"int8\"; layout: \"layer_first\" or \"page_first\"; kind: \"mha\", or \"mla\" with "
           "latent_dim columns of a row that are V too.")
      .def("store", &store, py::arg("layer"), py::arg("slots"), py::arg("k"),
           py::arg("v") = py::none(),
           "Writes row i of k and v, [rows, heads, head_dim] of f32, f16 or bf16, to slot "
           "slots[i] = page * page_size + offset. Nothing is written unless all is right.")
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
