// stemma.PageStore and page_keys: pages by name, outside the memory of an engine.
//
// A value is stored as a frame (tier/page_frame), so that what comes back is what was put, or
// nothing: its name stands where a page's tokens do, and its length goes before it.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bounded_time.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/digest.h"
#include "base/own_process.h"
#include "bindings/python/binding.h"
#include "prefix/namespace_digest.h"
#include "prefix/page_key.h"
#include "stemma/embed.h"
#include "store/disk_page_store.h"
#include "store/disk_store_sizes.h"
#include "tier/memory_page_store.h"
#include "tier/page_frame.h"

namespace stemma::python {

namespace {

constexpr std::int64_t kNameTokens = 8;  // a SHA-256
constexpr std::size_t kLengthBytes = 8;  // before each value
constexpr std::int64_t kValueBytesMax = std::int64_t{1} << 48;

// Which page a name is.
struct NamedPage {
  std::array<TokenId, kNameTokens> tokens = {};
  PageIdentity identity;
};

PageFormat format_of(std::int64_t value_bytes) {
  PageFormat format;
  format.layers = 1;
  format.layer_bytes = value_bytes + static_cast<std::int64_t>(kLengthBytes);
  format.page_size = kNameTokens;
  format.heads = 1;
  format.head_dim = 1;
  return format;
}

class Store {
 public:
  Store(std::unique_ptr<Clock> clock, std::unique_ptr<PageStore> pages, std::int64_t value_bytes,
        std::int64_t deadline_us)
      : clock_(std::move(clock)),
        pages_(std::move(pages)),
        is_in_memory_(pages_->tier() == Tier::kHost),
        deadline_us_(bounded_us(deadline_us)),
        format_(format_of(value_bytes)) {
    digest_ = NamespaceFields().add("values", value_bytes).finish();
  }

  bool put(std::string_view name, std::span<const std::byte> value);
  // The value; nullopt: there is none, or what is there is not it.
  std::optional<std::string> get(std::string_view name);
  std::int64_t exists(const std::vector<std::string>& names);
  bool remove(std::string_view name);
  void clear() {
    const std::array families = {family_of(digest_)};  // others may have pages there
    check(open_store().purge(families, deadline()).status);
  }
  void close() { pages_.reset(); }

  PageStoreUsage usage() { return open_store().usage(); }
  // Whose turn it is. Refused in a child of the process that opened it: see is_here.
  std::mutex& mutex() {
    if (!is_here()) refuse_child("the store");
    return mutex_;
  }
  bool is_here() const noexcept { return opened_in_.is_here() || in_child() == InChild::kIsUsed; }
  // One in memory is a child's own.
  InChild in_child() const noexcept { return is_in_memory_ ? InChild::kIsUsed : InChild::kIsNot; }

 private:
  PageStore& open_store() const {
    if (pages_ == nullptr) refuse("the store is closed");
    return *pages_;
  }
  std::int64_t deadline() const { return clock_->now_us() + deadline_us_; }
  void identify(std::string_view name, NamedPage& page);
  std::span<std::byte> frame();
  PageVerdict read(const NamedPage& page);

  OwnProcess opened_in_;
  std::mutex mutex_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<PageStore> pages_;  // nullptr: closed. In turn
  const bool is_in_memory_;           // asked before it is anybody's turn
  std::int64_t deadline_us_;
  PageFormat format_;
  NamespaceDigest digest_;
  PageKeyHasher hasher_;
  Buffer frame_;
};

void Store::identify(std::string_view name, NamedPage& page) {
  const Sha256Digest digest = sha256(std::as_bytes(std::span(name)));
  static_assert(sizeof(digest) == sizeof(page.tokens));
  std::memcpy(page.tokens.data(), digest.data(), digest.size());
  page.identity.parent = PageKeyHasher::root(digest_);
  page.identity.key = hasher_.next(page.identity.parent, page.tokens);
  page.identity.namespace_digest = digest_;
  page.identity.tokens = page.tokens;
}

std::span<std::byte> Store::frame() {
  if (frame_.empty()) frame_ = value_of(Buffer::allocate(frame_bytes(format_)));
  return {frame_.bytes(), frame_.size_bytes()};
}

bool Store::put(std::string_view name, std::span<const std::byte> value) {
  PageStore& store = open_store();
  if (value.size() + kLengthBytes > static_cast<std::size_t>(format_.layer_bytes)) return false;
  NamedPage page;
  identify(name, page);
  const std::span<std::byte> out = frame();
  const auto body =
      out.subspan(frame_body_offset(format_), static_cast<std::size_t>(format_.layer_bytes));
  const std::uint64_t length = value.size();
  std::memcpy(body.data(), &length, kLengthBytes);
  std::memcpy(body.data() + kLengthBytes, value.data(), value.size());
  std::fill(body.begin() + static_cast<std::ptrdiff_t>(kLengthBytes + value.size()), body.end(),
            std::byte{0});
  const std::array<std::uint32_t, 1> sums = {crc32c(body)};
  encode_frame(format_, page.identity, sums, /*generation=*/1, out);
  std::array<PageWrite, 1> writes = {{{.key = page.identity.key, .frame = out}}};
  store.write(writes, deadline());
  return writes[0].verdict == PageVerdict::kDone;
}

PageVerdict Store::read(const NamedPage& page) {
  std::array<PageRead, 1> reads = {{{.key = page.identity.key, .frame = frame()}}};
  open_store().read(reads, deadline());
  return reads[0].verdict;
}

std::optional<std::string> Store::get(std::string_view name) {
  NamedPage page;
  identify(name, page);
  if (read(page) != PageVerdict::kDone) return std::nullopt;
  const Result<PageFrameView> view = check_frame(frame(), format_, page.identity);
  if (!view.ok() || !check_body(*view).ok()) {
    remove(name);
    return std::nullopt;
  }
  std::uint64_t length = 0;
  std::memcpy(&length, view->body.data(), kLengthBytes);
  if (length > view->body.size() - kLengthBytes) return std::nullopt;  // whoever wrote it is not us
  return std::string(reinterpret_cast<const char*>(view->body.data()) + kLengthBytes, length);
}

std::int64_t Store::exists(const std::vector<std::string>& names) {
  std::vector<PageKey> keys;
  keys.reserve(names.size());
  for (const std::string& name : names) {
    NamedPage page;
    identify(name, page);
    keys.push_back(page.identity.key);
  }
  const Result<std::int64_t> found = open_store().lookup(keys, deadline());
  return found.ok() ? *found : 0;  // who asks computes; the store says what was wrong
}

bool Store::remove(std::string_view name) {
  NamedPage page;
  identify(name, page);
  if (read(page) != PageVerdict::kDone) return false;
  const std::array<PageRemoval, 1> removals = {{{.key = page.identity.key, .frame = frame()}}};
  open_store().remove(removals, deadline());
  return true;
}

// `beside`: bytes of bytes_max that hold no frames.
void check_sizes(std::int64_t value_bytes, std::int64_t bytes_max, std::int64_t beside = 0) {
  if (value_bytes < 1) refuse("value_bytes: must be at least 1");
  if (value_bytes > kValueBytesMax) refuse("value_bytes: more than can be");
  const auto least = static_cast<std::int64_t>(frame_bytes(format_of(value_bytes))) + beside;
  if (bytes_max < least) {
    refuse("bytes_max: one value takes " + std::to_string(least) + " bytes (got " +
           std::to_string(bytes_max) + ")");
  }
}

std::unique_ptr<Store> memory_store(std::int64_t value_bytes, std::int64_t bytes_max,
                                    std::int64_t deadline_us) {
  check_sizes(value_bytes, bytes_max);
  return std::make_unique<Store>(std::make_unique<MonotonicClock>(),
                                 std::make_unique<MemoryPageStore>(Tier::kHost, bytes_max),
                                 value_bytes, deadline_us);
}

std::unique_ptr<Store> disk_store(const std::string& directory, std::int64_t value_bytes,
                                  std::int64_t bytes_max, std::int64_t deadline_us) {
  check_sizes(value_bytes, bytes_max, index_bytes_reserved(1));
  check_zero_free(directory, "directory");
  const OthersRun others_run;
  auto clock = std::make_unique<MonotonicClock>();
  auto pages = value_of(DiskPageStore::open(directory, *clock, {.bytes_max = bytes_max}));
  return std::make_unique<Store>(std::move(clock), std::move(pages), value_bytes, deadline_us);
}

std::unique_ptr<Store> remote_store(const std::string& url, std::int64_t value_bytes,
                                    const std::string& secret, std::int64_t deadline_us) {
  check_sizes(value_bytes, std::numeric_limits<std::int64_t>::max());
  check_zero_free(url, "url");
  auto pages = value_of(open_remote_store(url, secret));
  return std::make_unique<Store>(std::make_unique<MonotonicClock>(), std::move(pages), value_bytes,
                                 deadline_us);
}

// As in_turn of binding.h.
template <typename Work>
auto in_turn(Store& store, bool is_long, Work&& work) {
  return python::in_turn(store.mutex(), is_long, std::forward<Work>(work), store.in_child());
}

// A name, of bytes or text.
std::string name_of(const py::handle name) {
  return name.cast<std::string>();
}

bool put(Store& self, const py::object& name, const py::buffer& value) {
  const std::string key = name_of(name);
  Py_buffer bytes;
  if (PyObject_GetBuffer(value.ptr(), &bytes, PyBUF_C_CONTIGUOUS) != 0) {
    throw py::error_already_set();
  }
  struct Release {
    Py_buffer& held;
    ~Release() { PyBuffer_Release(&held); }
  } const release{bytes};
  // Not all that are asked for one piece look whether they have it: pybind11's do not.
  if (PyBuffer_IsContiguous(&bytes, 'C') == 0) {
    throw py::buffer_error("value: its bytes lie in several pieces");
  }
  const std::span held(static_cast<const std::byte*>(bytes.buf),
                       static_cast<std::size_t>(bytes.len));
  return in_turn(self, true, [&] { return self.put(key, held); });
}

py::object get(Store& self, const py::object& name) {
  const std::string key = name_of(name);
  const auto value = in_turn(self, true, [&] { return self.get(key); });
  return value.has_value() ? py::object(py::bytes(*value)) : py::none();
}

std::int64_t exists(Store& self, const std::vector<py::object>& names) {
  std::vector<std::string> keys;
  keys.reserve(names.size());
  for (const py::object& name : names) keys.push_back(name_of(name));
  return in_turn(self, true, [&] { return self.exists(keys); });
}

py::dict stats(Store& self) {
  const PageStoreUsage usage = in_turn(self, false, [&] { return self.usage(); });
  py::dict out;
  out["values"] = usage.pages;
  out["bytes"] = usage.bytes;
  out["bytes_max"] = usage.bytes_max;
  return out;
}

// Of the whole pages of a text.
std::vector<PageKey> keys_of(std::span<const TokenId> text, std::size_t page_size,
                             const NamespaceDigest& ns) {
  std::vector<PageKey> keys;
  keys.reserve(text.size() / page_size);
  PageKeyChain chain(ns);
  for (; text.size() >= page_size; text = text.subspan(page_size)) {
    keys.push_back(chain.append(text.first(page_size)));
  }
  return keys;
}

py::list page_keys(const py::object& tokens, std::int64_t page_size, const py::bytes& digest) {
  const NumberText text(tokens, "tokens");
  const std::string_view root = digest;
  NamespaceDigest ns;
  if (page_size < 1) refuse("page_size: must be at least 1");
  if (root.size() != ns.bytes.size()) refuse("digest: 32 bytes are wanted");
  std::memcpy(ns.bytes.data(), root.data(), root.size());
  const std::vector<PageKey> keys = beside_others(text.is_long(), [&] {
    return keys_of(text.numbers(), static_cast<std::size_t>(page_size), ns);
  });
  py::list out;
  for (const PageKey& key : keys) out.append(bytes_of(key));
  return out;
}

}  // namespace

void bind_stores(py::module_& module) {
  py::class_<Store>(
      module, "PageStore",
      "Values of up to value_bytes by name, in memory, on a disk or in Redis. What comes back is "
      "what was put, or nothing. Any thread may call it; calls take turns.")
      .def_static("memory", &memory_store, py::kw_only(), py::arg("value_bytes"),
                  py::arg("bytes_max"), py::arg("deadline_us") = 2'000'000,
                  "In this process; beyond bytes_max the value used longest ago goes.")
      .def_static("disk", &disk_store, py::arg("directory"), py::kw_only(), py::arg("value_bytes"),
                  py::arg("bytes_max"), py::arg("deadline_us") = 2'000'000,
                  "In files of `directory`, found again after a restart, also after a crash.")
      .def_static(
          "remote", &remote_store, py::arg("url"), py::kw_only(), py::arg("value_bytes"),
          py::arg("secret") = "", py::arg("deadline_us") = 2'000'000,
          "In Redis or Valkey, \"redis://host:6379\", a cluster or sentinels, for every "
          "process with the same value_bytes. Values are sealed with `secret`, unless it is "
          "empty. A server that is down is a miss.")
      .def(
          "put", &put, py::arg("name"), py::arg("value"),
          "Stores a buffer's bytes under a name (str or bytes). True: it is stored, or was before; "
          "False: no room, too long, or an error.")
      .def("get", &get, py::arg("name"), "The bytes, or None.")
      .def("exists", &exists, py::arg("names"),
           "How many of `names`, from the first one on, seem to be there; 0: perhaps no answer.")
      .def(
          "remove",
          [](Store& self, const py::object& name) {
            const std::string key = name_of(name);
            return in_turn(self, true, [&] { return self.remove(key); });
          },
          py::arg("name"), "Whether there was one.")
      .def(
          "clear", [](Store& self) { in_turn(self, true, [&] { self.clear(); }); },
          "Removes every value. None is found any more, also after a restart.")
      .def("stats", &stats, "values, bytes and bytes_max.")
      .def(
          "close",
          [](Store& self) {
            if (self.is_here()) in_turn(self, true, [&] { self.close(); });
          },
          "Ends its work with the files. May be repeated.");
  module.def(
      "page_keys", &page_keys, py::arg("tokens"), py::arg("page_size"), py::arg("digest"),
      "The keys of the whole pages of `tokens`, 32 bytes each: chained, so that a key names a "
      "namespace and all tokens up to the end of its page.");
}

}  // namespace stemma::python
