#include "bindings/python/binding.h"

#include <algorithm>
#include <new>
#include <stdexcept>

namespace stemma::python {

namespace {

// An error that names a flag of the command line, as the argument of Python: --kv-dtype: kv_dtype.
std::string as_argument(std::string detail) {
  if (!detail.starts_with("--")) return detail;
  detail.erase(0, 2);
  const auto name_end = detail.find_first_not_of("abcdefghijklmnopqrstuvwxyz-");
  std::replace(detail.begin(),
               detail.begin() + static_cast<std::ptrdiff_t>(std::min(name_end, detail.size())), '-',
               '_');
  return detail;
}

// The exception of an error, by the name of its code.
py::object exception_of(const Error& error) {
  const py::object errors = py::module_::import("stemma.errors");
  const std::string_view code = error_code_name(error.code);
  return errors.attr("error_of")(py::str(code.data(), code.size()), as_argument(error.detail),
                                 error.sys_errno);
}

void set_exception(const Error& error) {
  const py::object exception = exception_of(error);
  PyErr_SetObject(py::type::of(exception).ptr(), exception.ptr());
}

// torch's tensors have no buffer protocol; numpy's view of one does.
py::object with_buffer(py::handle source) {
  if (PyObject_CheckBuffer(source.ptr()) != 0 || !py::hasattr(source, "numpy")) {
    return py::reinterpret_borrow<py::object>(source);
  }
  return source.attr("numpy")();
}

// What pybind11 calls for an object without a value: nothing has made it, so that it would be given
// memory with anything in it.
void* refuse_unmade(std::size_t) {
  refuse("an object is used before its __init__ has made it, or though that failed");
}

PyObject* refuse_making(PyTypeObject* type, PyObject*, PyObject*) {
  return PyErr_Format(PyExc_TypeError, "%s has no __init__: others make it", type->tp_name);
}

bool is_whole_number(const Py_buffer& buffer) {
  const char* format = buffer.format == nullptr ? "B" : buffer.format;
  if (*format == '<' || *format == '@' || *format == '=') ++format;
  return (*format == 'i' || *format == 'l' || *format == 'q') && format[1] == '\0';
}

}  // namespace

void fail(Error error) {
  throw Failure(std::move(error));
}

void refuse(std::string detail) {
  fail(Error{ErrorCode::kInvalidArgument, std::move(detail)});
}

void refuse_child(const std::string& what) {
  fail({ErrorCode::kUnsupported,
        what + ": opened by the process that this one was forked from, which alone may use it"});
}

void check(Status status) {
  if (!status.ok()) fail(std::move(status).error());
}

void check_zero_free(std::string_view text, const char* name) {
  if (text.find('\0') != text.npos) refuse(std::string(name) + ": it has a zero byte");
}

void bind_errors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const Failure& failure) {
      set_exception(failure.error());
    } catch (const py::cast_error&) {  // where nothing knew its name
      set_exception(
          {ErrorCode::kInvalidArgument, "an argument is of a wrong type, or out of its range"});
    } catch (const std::length_error&) {
      set_exception({ErrorCode::kTooLarge, "more is asked for than memory can ever hold"});
    } catch (const std::bad_alloc&) {
      set_exception({ErrorCode::kOutOfMemory, "in a call: there is not as much memory"});
    }
  });
}

void refuse_unmade_objects(py::module_& module) {
  for (const auto& [name, member] : module.attr("__dict__").cast<py::dict>()) {
    if (!py::isinstance<py::type>(member)) continue;
    auto* const type = reinterpret_cast<PyTypeObject*>(member.ptr());
    py::detail::get_type_info(type)->operator_new = &refuse_unmade;
    if (type->tp_init == &py::detail::pybind11_object_init) type->tp_new = &refuse_making;
  }
}

NumberText::NumberText(py::handle source, const char* what) : what_(what) {
  const py::object object = with_buffer(source);
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    take_buffer(object);
  } else {
    take_sequence(object);
  }
}

NumberText::~NumberText() {
  if (has_buffer_) PyBuffer_Release(&buffer_);
}

void NumberText::take_buffer(py::handle source) {
  if (PyObject_GetBuffer(source.ptr(), &buffer_, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
    throw py::error_already_set();
  }
  has_buffer_ = true;
  if (buffer_.ndim != 1 || !is_whole_number(buffer_)) {
    PyBuffer_Release(&buffer_);
    has_buffer_ = false;
    refuse(std::string(what_) + ": a one-dimensional array of int32 or int64 is wanted");
  }
  const bool dense = buffer_.shape[0] <= 1 || buffer_.strides[0] == buffer_.itemsize;
  if (dense && buffer_.itemsize == sizeof(std::int32_t)) {
    numbers_ = {static_cast<const std::int32_t*>(buffer_.buf),
                static_cast<std::size_t>(buffer_.shape[0])};
  } else if (buffer_.itemsize == sizeof(std::int32_t)) {
    copy_narrowed<std::int32_t>();
  } else {
    copy_narrowed<std::int64_t>();
  }
}

template <typename Wide>
void NumberText::copy_narrowed() {
  copied_.resize(static_cast<std::size_t>(buffer_.shape[0]));
  const char* at = static_cast<const char*>(buffer_.buf);
  bool fits = true;
  for (std::int32_t& number : copied_) {
    const Wide wide = *reinterpret_cast<const Wide*>(at);
    number = static_cast<std::int32_t>(wide);
    fits &= number == wide;
    at += buffer_.strides[0];
  }
  PyBuffer_Release(&buffer_);
  has_buffer_ = false;
  if (!fits) refuse(std::string(what_) + ": a number does not fit 32 bits");
  numbers_ = copied_;
}

void NumberText::take_sequence(py::handle source) {
  if (!py::isinstance<py::sequence>(source)) {
    refuse(std::string(what_) + ": an array or a sequence of whole numbers is wanted");
  }
  const auto items = py::reinterpret_borrow<py::sequence>(source);
  copied_.reserve(items.size());
  for (const py::object item : items) {  // which a range makes for us: nobody else holds it
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(item.ptr(), &overflow);
    if (number == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (overflow != 0 || number != static_cast<std::int32_t>(number)) {
      refuse(std::string(what_) + ": a number does not fit 32 bits");
    }
    copied_.push_back(static_cast<std::int32_t>(number));
  }
  numbers_ = copied_;
}

}  // namespace stemma::python
