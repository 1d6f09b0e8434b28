// A call is a series of copies of one layer of one page. In each the next one's first bytes are
// asked for, so that scattered pages are read as fast as adjacent ones; calls that move more than
// caches hold write past them.
#include "pool/host_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/memory_room.h"
#include "pool/layer_coder.h"
#include "stemma/log.h"

namespace stemma {

namespace {

constexpr std::int64_t kCheckBytes = std::int64_t{1} << 20;
constexpr std::int64_t kPastCachesBytes = std::int64_t{1} << 19;  // half a second-level cache

Error invalid(std::string detail) {
  return Error{ErrorCode::kInvalidArgument, "host pool: " + std::move(detail), 0};
}

// Of a page as it is kept; the device's bytes are never fewer.
std::int64_t image_layer_bytes(const HostPoolOptions& options) {
  return options.codec == PageCodec::kPlain
             ? options.layer_bytes
             : encoded_layer_bytes(options.codec, options.device_shape);
}

Status validate(const HostPoolOptions& options) {
  if (options.layers < 0) return invalid(fmt::format("layers is {}", options.layers));
  if (options.layer_bytes < 1)
    return invalid(fmt::format("layer_bytes is {}", options.layer_bytes));
  if (options.pages_min < 1) return invalid(fmt::format("pages_min is {}", options.pages_min));
  if (options.pages < options.pages_min) {
    return invalid(
        fmt::format("pages is {}, below pages_min, {}", options.pages, options.pages_min));
  }
  std::int64_t bytes = 0;
  if (options.pages >= std::int64_t{1} << 31 ||
      __builtin_mul_overflow(options.pages, options.layers, &bytes) ||
      __builtin_mul_overflow(bytes, std::max<std::int64_t>(options.layer_bytes, 4), &bytes)) {
    return invalid(fmt::format("{} pages of {} layers of {} bytes are too many", options.pages,
                               options.layers, options.layer_bytes));
  }
  if (options.codec == PageCodec::kPlain) return {};
  if (options.device_shape.kind == KvKind::kDoubleSparse) {
    return invalid(fmt::format("codec: {} is not for double_sparse, whose labels are K's very bits",
                               page_codec_name(options.codec)));
  }
  if (encoded_layer_bytes(PageCodec::kPlain, options.device_shape) != options.layer_bytes) {
    return invalid("device_shape: a codec needs the shape of a pool of keys and values");
  }
  return {};
}

// Whether a promotion goes on with this page.
bool is_live(const PageMove& move) {
  return move.verdict == MoveVerdict::kUntried || move.verdict == MoveVerdict::kDone;
}

// The first live move from `begin` on, or moves.size().
std::size_t next_live(std::span<const PageMove> moves, std::size_t begin) {
  const auto rest = moves.subspan(begin);
  return begin +
         static_cast<std::size_t>(std::find_if(rest.begin(), rest.end(), is_live) - rest.begin());
}

}  // namespace

// Counts what a call copies, asks now and then whether to go on, and knows how it writes.
class HostPool::Gate {
 public:
  Gate(const HostPoolOptions& options, std::int64_t call_bytes, GoOn go_on)
      : past_caches_(call_bytes >= kPastCachesBytes),
        go_on_(go_on),
        coder_(options.codec, options.device_shape) {}
  // What was written may be seen by others.
  ~Gate() {
    if (past_caches_) end_past_caches();
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  bool past_caches() const { return past_caches_; }
  LayerCoder& coder() { return coder_; }
  bool stopped() const { return stopped_; }

  // Whether `bytes` more may be copied.
  bool pass(std::int64_t bytes) {
    if (since_check_bytes_ >= kCheckBytes) {
      stopped_ = stopped_ || !go_on_();
      if (stopped_) return false;
      since_check_bytes_ = 0;
    }
    since_check_bytes_ += bytes;
    return true;
  }

 private:
  bool past_caches_;
  bool stopped_ = false;
  GoOn go_on_;
  LayerCoder coder_;
  std::int64_t since_check_bytes_ = kCheckBytes;  // asks before the first piece too
};

Result<std::unique_ptr<HostPool>> HostPool::create(const HostPoolOptions& options,
                                                   ThreadPool& threads) {
  STEMMA_RETURN_IF_ERROR(validate(options));
  HostPoolOptions had = options;
  Result<Memory> memory = allocate(had);
  const std::string why = memory.ok() ? "" : to_string(memory.error());
  while (!memory.ok()) {
    const bool smaller =
        memory.error().code == ErrorCode::kOutOfMemory && had.pages > had.pages_min;
    if (!smaller) return std::move(memory).error();
    had.pages = std::max(had.pages / 2, had.pages_min);
    memory = allocate(had);
  }
  if (had.pages < options.pages) {
    STEMMA_LOG(kWarning, "pool.host_smaller", kv("wanted_pages", options.pages),
               kv("pages", had.pages), kv("page_bytes", had.layers * had.layer_bytes),
               kv("error", why));
  }
  for (Buffer* const buffer : {&memory->images, &memory->sums, &memory->seals}) {
    buffer->prefault(threads);
  }
  return std::unique_ptr<HostPool>(new HostPool(had, std::move(memory).value()));
}

Result<HostPool::Memory> HostPool::allocate(const HostPoolOptions& options) {
  const auto layers = static_cast<std::size_t>(options.pages * options.layers);
  const std::size_t image_bytes = layers * static_cast<std::size_t>(image_layer_bytes(options));
  const std::size_t sum_bytes = layers * sizeof(std::uint32_t);
  const std::size_t seal_bytes = static_cast<std::size_t>(options.pages) * sizeof(Seal);
  STEMMA_RETURN_IF_ERROR(
      check_memory_room(static_cast<std::int64_t>(image_bytes + sum_bytes + seal_bytes)));
  Memory memory;
  STEMMA_ASSIGN_OR_RETURN(memory.images, options.allocate(image_bytes));
  STEMMA_ASSIGN_OR_RETURN(memory.sums, options.allocate(sum_bytes));
  STEMMA_ASSIGN_OR_RETURN(memory.seals, options.allocate(seal_bytes));
  return memory;
}

HostPool::HostPool(const HostPoolOptions& options, Memory memory)
    : options_(options),
      image_layer_bytes_(image_layer_bytes(options)),
      memory_(std::move(memory)) {}

void HostPool::backup(const KvPool& device, std::span<PageMove> moves, GoOn go_on) {
  check_device(device);
  for (const PageMove& move : moves) {
    STEMMA_CHECK(move.verdict == MoveVerdict::kUntried, "a page is backed up once");
    STEMMA_CHECK(move.from.valid() && move.from.value() < device.shape().pages, "a device page");
    forget(move.to);
  }
  Gate gate(options_, static_cast<std::int64_t>(moves.size()) * page_bytes(), go_on);
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const PageId next = moves[std::min(i + 1, moves.size() - 1)].from;
    const bool done = !gate.stopped() && backup_page(device, moves[i], next, gate);
    moves[i].verdict = done ? MoveVerdict::kDone : MoveVerdict::kCancelled;
  }
}

bool HostPool::backup_page(const KvPool& device, const PageMove& move, PageId next_page,
                           Gate& gate) {
  PageLayer<const std::byte> from = {{}, move.from};
  if (layers() > 0) from.pieces = device.layer_pieces(0);
  const std::span<std::uint32_t> sums = sums_of(move.to);
  for (std::int64_t layer = 0; layer < layers(); ++layer) {
    if (!gate.pass(layer_bytes())) return false;
    PageLayer<const std::byte> next = {device.layer_pieces((layer + 1) % layers()), move.from};
    if (layer + 1 == layers()) next.page = next_page;
    const auto sum =
        gate.coder().try_copy_out(from, layer_image(move.to, layer), {&next, gate.past_caches()});
    if (!sum.has_value()) return false;
    sums[static_cast<std::size_t>(layer)] = *sum;
    from = next;
  }
  memory_.seals.as<Seal>()[move.to.index()] = {.key = move.key, .sealed = true};
  return true;
}

void HostPool::promote(KvPool& device, std::span<PageMove> moves, LayerRange layers,
                       GoOn go_on) const {
  check_device(device);
  STEMMA_CHECK(0 <= layers.first && layers.first <= layers.end, "a range of layers");
  STEMMA_CHECK_LE(layers.end, options_.layers);
  for (PageMove& move : moves) {
    STEMMA_CHECK(move.to.valid() && move.to.value() < device.shape().pages, "a device page");
    const bool begins = move.verdict == MoveVerdict::kUntried;
    if (begins && !holds(move.from, move.key)) move.verdict = MoveVerdict::kStale;
  }
  const std::int64_t pages = std::count_if(moves.begin(), moves.end(), is_live);
  Gate gate(options_, pages * page_bytes(), go_on);  // all layers will be asked for
  MoveVerdict verdict = MoveVerdict::kDone;
  for (std::int64_t layer = layers.first; layer < layers.end; ++layer) {
    const std::size_t first = next_live(moves, 0);
    if (first == moves.size()) break;
    const std::int64_t next = std::min(layer + 1, options_.layers - 1);
    if (promote_layer(device, moves, layer, layer_begin(moves[first].from, next), gate)) continue;
    verdict = MoveVerdict::kCancelled;
    break;
  }
  for (PageMove& move : moves) {
    if (is_live(move)) move.verdict = verdict;
  }
}

bool HostPool::promote_layer(KvPool& device, std::span<PageMove> moves, std::int64_t layer,
                             const std::byte* next_layer, Gate& gate) const {
  PageLayer<std::byte> to = {device.layer_pieces(layer), PageId()};
  std::size_t at = next_live(moves, 0);
  while (at < moves.size()) {
    if (!gate.pass(layer_bytes())) return false;
    PageMove& move = moves[at];
    const std::uint32_t expected = sums_of(move.from)[static_cast<std::size_t>(layer)];
    at = next_live(moves, at + 1);
    const std::byte* const next =
        at < moves.size() ? layer_begin(moves[at].from, layer) : next_layer;
    to.page = move.to;
    const std::span<const std::byte> from = {layer_begin(move.from, layer),
                                             static_cast<std::size_t>(layer_bytes())};
    if (!gate.coder().try_copy_in(from, expected, to, {next, gate.past_caches()})) {
      move.verdict = MoveVerdict::kCorrupt;
    }
  }
  return true;
}

MoveVerdict HostPool::write_image(PageId page, const PageKey& key, std::span<const std::byte> image,
                                  std::span<const std::uint32_t> sums) {
  forget(page);
  STEMMA_CHECK_EQ(image.size(), static_cast<std::size_t>(page_bytes()));
  STEMMA_CHECK_EQ(sums.size(), static_cast<std::size_t>(layers()));
  for (std::int64_t layer = 0; layer < layers(); ++layer) {
    const auto bytes = static_cast<std::size_t>(layer_bytes());
    const auto from = image.subspan(static_cast<std::size_t>(layer) * bytes, bytes);
    const std::uint32_t sum = copy_crc32c(from, layer_begin(page, layer));
    if (sum != sums[static_cast<std::size_t>(layer)]) return MoveVerdict::kCorrupt;
  }
  seal(page, key, sums);
  return MoveVerdict::kDone;
}

void HostPool::seal(PageId page, const PageKey& key, std::span<const std::uint32_t> sums) {
  check_page(page);
  STEMMA_CHECK_EQ(sums.size(), static_cast<std::size_t>(layers()));
  std::copy(sums.begin(), sums.end(), sums_of(page).begin());
  memory_.seals.as<Seal>()[page.index()] = {.key = key, .sealed = true};
}

MoveVerdict HostPool::read_image(PageId page, const PageKey& key, std::span<std::byte> image,
                                 std::span<std::uint32_t> sums) const {
  STEMMA_CHECK_EQ(image.size(), static_cast<std::size_t>(page_bytes()));
  STEMMA_CHECK_EQ(sums.size(), static_cast<std::size_t>(layers()));
  if (!holds(page, key)) return MoveVerdict::kStale;
  const auto expected = sums_of(page);
  std::copy(expected.begin(), expected.end(), sums.begin());
  for (std::int64_t layer = 0; layer < layers(); ++layer) {
    const auto bytes = static_cast<std::size_t>(layer_bytes());
    std::byte* const to = image.data() + static_cast<std::size_t>(layer) * bytes;
    const std::uint32_t sum = copy_crc32c({layer_begin(page, layer), bytes}, to);
    if (sum != sums[static_cast<std::size_t>(layer)]) return MoveVerdict::kCorrupt;
  }
  return MoveVerdict::kDone;
}

bool HostPool::holds(PageId page, const PageKey& key) const {
  check_page(page);
  const Seal& seal = memory_.seals.as<Seal>()[page.index()];
  return seal.sealed && seal.key == key;
}

void HostPool::forget(PageId page) {
  check_page(page);
  memory_.seals.as<Seal>()[page.index()] = {};
}

std::span<std::byte> HostPool::layer_image(PageId page, std::int64_t layer) {
  check_page(page);
  STEMMA_CHECK(0 <= layer && layer < layers(), "a layer of the pool");
  return {layer_begin(page, layer), static_cast<std::size_t>(layer_bytes())};
}

void HostPool::check_device(const KvPool& device) const {
  STEMMA_CHECK(device.device() == DeviceKind::kCpu, "host copies are made by the CPU");
  STEMMA_CHECK_EQ(device.shape().layers, layers());
  STEMMA_CHECK_EQ(device.layer_bytes(), options_.layer_bytes);
}

void HostPool::check_page(PageId page) const {
  STEMMA_CHECK(page.valid() && page.value() < pages(), "a page of the host pool");
}

const std::byte* HostPool::layer_begin(PageId page, std::int64_t layer) const {
  const std::int64_t place = layout() == KvLayout::kPageFirst ? page.value() * layers() + layer
                                                              : layer * pages() + page.value();
  return memory_.images.bytes() + place * layer_bytes();
}

std::byte* HostPool::layer_begin(PageId page, std::int64_t layer) {
  return const_cast<std::byte*>(std::as_const(*this).layer_begin(page, layer));
}

std::span<std::uint32_t> HostPool::sums_of(PageId page) {
  const auto count = static_cast<std::size_t>(layers());
  return memory_.sums.as<std::uint32_t>().subspan(page.index() * count, count);
}

std::span<const std::uint32_t> HostPool::sums_of(PageId page) const {
  const auto count = static_cast<std::size_t>(layers());
  return memory_.sums.as<std::uint32_t>().subspan(page.index() * count, count);
}

}  // namespace stemma
