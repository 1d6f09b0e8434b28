// Ours and fio take turns, so that whatever else the disk does meets both alike. Each sample of
// writing starts with files of its own, preallocated and never written: it is the dearer of the two
// states of a slot, for both sides.
#include "store/disk_bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "base/prng.h"
#include "base/temp_directory.h"
#include "device/buffer.h"
#include "prefix/page_key.h"
#include "store/child_process.h"
#include "store/disk_page_store.h"
#include "store/disk_queue.h"
#include "tier/page_frame.h"
#include "tier/page_work.h"

namespace stemma {

namespace {

constexpr std::int64_t kLimitUs = 120'000'000;
constexpr double kReopenSecondsMax = 2;
constexpr auto kReadBytes = static_cast<std::int64_t>(PageWork::kLoadBytes);    // a call
constexpr auto kWriteBytes = static_cast<std::int64_t>(PageWork::kStoreBytes);  // a call
constexpr char kTheirName[] = "fio";

// Pages of 16 tokens whose frames have this size.
PageFormat format_of(std::int64_t frame_bytes) {
  constexpr auto kHeaderBytes = static_cast<std::int64_t>(kFrameAlignment);
  return {.layers = (frame_bytes - kHeaderBytes) / kHeaderBytes,
          .layer_bytes = kHeaderBytes,
          .page_size = 16,
          .heads = 2,
          .head_dim = 32,
          .dtype = DType::kF16};
}

double gb_per_s(std::int64_t bytes, std::int64_t time_us) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(time_us, 1)) *
         1e-3;
}

// What lies on the disk is no longer in memory, and what was removed is settled.
void settle(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::syncfs(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

// A store in a directory of its own, and the pages of one text that go into it.
class Stage {
 public:
  Stage(std::string directory, std::int64_t frame_bytes, std::int64_t pages)
      : directory_(std::move(directory)),
        frame_bytes_(frame_bytes),
        format_(format_of(frame_bytes)) {
    PageKeyChain chain({});
    for (std::int64_t page = 0; page < pages; ++page)
      keys_.push_back(chain.append(tokens_of(page)));
  }

  Status allocate_frames() {
    STEMMA_ASSIGN_OR_RETURN(
        frames_, Buffer::allocate(static_cast<std::size_t>(std::max(kReadBytes, kWriteBytes))));
    Prng prng(1);
    for (std::uint64_t& word : frames_.as<std::uint64_t>()) word = prng();
    return {};
  }

  // An empty store with one slab that has room for all pages, and the first page in it.
  Status start_anew() {
    store_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
    STEMMA_RETURN_IF_ERROR(open());
    STEMMA_RETURN_IF_ERROR(write_batch(0, 1).status);
    settle(directory_);
    return {};
  }

  Status open() {
    const std::int64_t bytes = frame_bytes_ * pages();
    STEMMA_ASSIGN_OR_RETURN(store_, DiskPageStore::open(directory_, clock_,
                                                        {.bytes_max = 2 * (bytes + kDiskBytesMin),
                                                         .slab_bytes = bytes}));
    return {};
  }
  void close() { store_.reset(); }

  // GB/s of the pages that are not there yet. The time of making them does not count.
  Result<double> write() {
    std::int64_t time_us = 0;
    for (std::int64_t first = 1; first < pages(); first += kWriteBytes / frame_bytes_) {
      const Timed written =
          write_batch(first, std::min(pages(), first + kWriteBytes / frame_bytes_));
      STEMMA_RETURN_IF_ERROR(written.status);
      time_us += written.time_us;
    }
    return gb_per_s((pages() - 1) * frame_bytes_, time_us);
  }

  // GB/s of all pages.
  Result<double> read() {
    const std::int64_t begin_us = clock_.now_us();
    for (std::int64_t first = 0; first < pages(); first += kReadBytes / frame_bytes_) {
      const std::int64_t end = std::min(pages(), first + kReadBytes / frame_bytes_);
      reads_.clear();
      for (std::int64_t page = first; page < end; ++page) {
        reads_.push_back({.key = key(page), .frame = frame(page - first)});
      }
      store_->read(reads_, clock_.now_us() + kLimitUs);
      const auto lost = [](const PageRead& read) { return read.verdict != PageVerdict::kDone; };
      if (std::ranges::any_of(reads_, lost)) {
        return Error{ErrorCode::kIo, directory_ + ": the disk tier does not give a page back"};
      }
    }
    return gb_per_s(pages() * frame_bytes_, clock_.now_us() - begin_us);
  }

  // Seconds from opening until every page is found.
  Result<double> reopen() {
    close();
    settle(join_path(directory_, "index"));
    const std::int64_t begin_us = clock_.now_us();
    STEMMA_RETURN_IF_ERROR(open());
    STEMMA_ASSIGN_OR_RETURN(const std::int64_t found,
                            store_->lookup(keys_, clock_.now_us() + kLimitUs));
    const std::int64_t time_us = clock_.now_us() - begin_us;
    if (found == pages()) return static_cast<double>(time_us) * 1e-6;
    return Error{ErrorCode::kIo, directory_ + ": the disk tier found " + std::to_string(found) +
                                     " of " + std::to_string(pages()) + " pages"};
  }

  std::int64_t pages() const { return std::ssize(keys_); }
  std::int64_t frame_bytes() const { return frame_bytes_; }
  std::string slab_path() const { return join_path(directory_, SlabName{0, frame_bytes_}.text()); }

 private:
  struct Timed {
    Status status;
    std::int64_t time_us = 0;
  };

  Timed write_batch(std::int64_t first, std::int64_t end) {
    std::vector<PageWrite> writes;
    const std::vector<std::uint32_t> sums(static_cast<std::size_t>(format_.layers));
    for (std::int64_t page = first; page < end; ++page) {
      const PageKey parent = page == 0 ? PageKeyHasher::root({}) : key(page - 1);
      encode_frame(format_, {key(page), parent, {}, page, tokens_of(page)}, sums, 1,
                   frame(page - first));
      writes.push_back({.key = key(page), .frame = frame(page - first)});
    }
    const std::int64_t begin_us = clock_.now_us();
    store_->write(writes, begin_us + kLimitUs);
    const std::int64_t time_us = clock_.now_us() - begin_us;
    const auto refused = [](const PageWrite& write) { return write.verdict != PageVerdict::kDone; };
    if (!std::ranges::any_of(writes, refused)) return {{}, time_us};
    return {Error{ErrorCode::kIo, directory_ + ": the disk tier does not take a page"}, time_us};
  }

  std::span<const TokenId> tokens_of(std::int64_t page) {
    tokens_.assign(16, static_cast<TokenId>(page));
    return tokens_;
  }
  const PageKey& key(std::int64_t page) const { return keys_[static_cast<std::size_t>(page)]; }
  std::span<std::byte> frame(std::int64_t place) {
    return frames_.as<std::byte>().subspan(static_cast<std::size_t>(place * frame_bytes_),
                                           static_cast<std::size_t>(frame_bytes_));
  }

  std::string directory_;
  std::int64_t frame_bytes_;
  PageFormat format_;
  MonotonicClock clock_;
  std::vector<TokenId> tokens_;
  std::vector<PageKey> keys_;
  Buffer frames_;
  std::unique_ptr<DiskPageStore> store_;
  std::vector<PageRead> reads_;
};

// The bytes a second that `fio --output-format=json` printed for reads or writes.
Result<double> bandwidth(const std::string& printed, const std::string& direction) {
  constexpr std::string_view kField = "\"bw_bytes\" : ";
  const std::size_t part = printed.find("\"" + direction + "\" : {");
  const std::size_t at = part == std::string::npos ? part : printed.find(kField, part);
  double value = 0;
  if (at != std::string::npos) {
    const char* const digits = printed.data() + at + kField.size();
    std::from_chars(digits, printed.data() + printed.size(), value);
  }
  if (value > 0) return value;
  return Error{ErrorCode::kInternal, "bench: fio printed: " + printed};
}

Status find_fio() {
  const std::string words[] = {"fio", "--version"};
  if (run_program(words, kLimitUs).ok()) return {};
  return Error{ErrorCode::kNotFound, "bench: fio cannot be run; the package is called fio"};
}

// As large as the store's queue cuts them.
std::int64_t request_bytes(const Stage& stage) {
  return std::min(stage.frame_bytes(), static_cast<std::int64_t>(DiskQueueOptions().piece_bytes));
}

// GB/s of one job.
Result<double> run_fio(const Stage& stage, const std::string& direction, const std::string& path,
                       std::span<const std::string> more) {
  std::vector<std::string> words = {
      "fio",
      "--name=bench",
      "--ioengine=io_uring",
      "--direct=1",
      "--output-format=json",
      "--rw=" + direction,
      "--filename=" + path,
      "--bs=" + std::to_string(request_bytes(stage)),
      "--iodepth=" + std::to_string(DiskQueueOptions().depth),
      "--size=" + std::to_string(stage.pages() * stage.frame_bytes())};
  words.insert(words.end(), more.begin(), more.end());
  STEMMA_ASSIGN_OR_RETURN(const std::string printed, run_program(words, kLimitUs));
  STEMMA_ASSIGN_OR_RETURN(const double bytes_per_s, bandwidth(printed, direction));
  return bytes_per_s * 1e-9;
}

Result<double> read_theirs(const Stage& stage) {
  const std::string words[] = {"--readonly"};
  return run_fio(stage, "read", stage.slab_path(), words);
}

Result<double> write_theirs(const Stage& stage, const std::string& directory) {
  const std::string path = join_path(directory, kTheirName);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  settle(directory);
  const std::string words[] = {
      "--fallocate=native",
      "--fdatasync=" + std::to_string(kWriteBytes / request_bytes(stage)),
      "--end_fsync=1",
  };
  return run_fio(stage, "write", path, words);
}

struct Samples {
  std::vector<double> ours;
  std::vector<double> theirs;
};

BenchLine line_of(const Stage& stage, const std::string& operation, std::int64_t call_bytes,
                  const Samples& samples) {
  BenchLine line;
  line.bench = "tier";
  line.params = {{"store", "disk"},
                 {"operation", operation},
                 {"page_bytes", std::to_string(stage.frame_bytes())},
                 {"mib", std::to_string(stage.pages() * stage.frame_bytes() >> 20)},
                 {"call_bytes", std::to_string(call_bytes)}};
  line.value = median(samples.ours);
  line.unit = "gb/s";
  line.bound = median(samples.theirs);
  line.bound_name = "fio";
  line.ratio = line.value / line.bound;
  line.repeats = static_cast<int>(std::ssize(samples.ours));
  line.spread = spread(samples.ours);
  return line;
}

// Whoever comes second may find what the first has left behind in a cache below this system.
Result<Samples> take_turns(int samples, FunctionRef<Result<double>()> ours,
                           FunctionRef<Result<double>()> theirs) {
  Samples taken;
  for (int turn = 0; turn < 2 * samples; ++turn) {
    const bool our_turn = turn % 4 == 0 || turn % 4 == 3;
    STEMMA_ASSIGN_OR_RETURN(const double sample, our_turn ? ours() : theirs());
    (our_turn ? taken.ours : taken.theirs).push_back(sample);
  }
  return taken;
}

Status measure(const DiskBenchOptions& options, const std::string& directory,
               std::int64_t frame_bytes, std::vector<BenchLine>& lines) {
  Stage stage(join_path(directory, "store"), frame_bytes, options.bytes / frame_bytes + 1);
  STEMMA_RETURN_IF_ERROR(stage.allocate_frames());
  const auto write_ours = [&]() -> Result<double> {
    STEMMA_RETURN_IF_ERROR(stage.start_anew());
    return stage.write();
  };
  STEMMA_ASSIGN_OR_RETURN(const Samples writes, take_turns(options.samples, write_ours, [&] {
                            return write_theirs(stage, directory);
                          }));
  STEMMA_ASSIGN_OR_RETURN(const Samples reads, take_turns(
                                                   options.samples, [&] { return stage.read(); },
                                                   [&] { return read_theirs(stage); }));
  lines.push_back(line_of(stage, "write", kWriteBytes, writes));
  lines.push_back(line_of(stage, "read", kReadBytes, reads));
  return {};
}

Result<BenchLine> measure_reopen(const DiskBenchOptions& options, const std::string& directory) {
  constexpr std::int64_t kFrameBytes = 2 * static_cast<std::int64_t>(kFrameAlignment);
  Stage stage(join_path(directory, "store"), kFrameBytes, options.reopened_pages);
  STEMMA_RETURN_IF_ERROR(stage.allocate_frames());
  STEMMA_RETURN_IF_ERROR(stage.start_anew());
  const auto written = stage.write();
  if (!written.ok()) return written.error();
  std::vector<double> seconds;
  for (int sample = 0; sample < options.samples; ++sample) {
    STEMMA_ASSIGN_OR_RETURN(const double time_s, stage.reopen());
    seconds.push_back(time_s);
  }
  BenchLine line;
  line.bench = "tier";
  line.value = median(seconds);
  line.params = {
      {"store", "disk"},
      {"operation", "reopen"},
      {"pages", std::to_string(stage.pages())},
      {"body_bytes", std::to_string(kFrameAlignment)},
      {"pages_per_s", fmt::format("{:.0f}", static_cast<double>(stage.pages()) / line.value)}};
  line.unit = "s";
  line.bound = kReopenSecondsMax;
  line.bound_name = "limit";
  line.ratio = line.bound / line.value;
  line.repeats = options.samples;
  line.spread = spread(seconds);
  return line;
}

}  // namespace

Result<std::vector<BenchLine>> bench_disk(const DiskBenchOptions& options) {
  STEMMA_RETURN_IF_ERROR(find_fio());
  const TempDirectory directory(options.directory);
  std::vector<BenchLine> lines;
  for (const std::int64_t frame_bytes : {64 << 10, 1 << 20}) {
    STEMMA_RETURN_IF_ERROR(measure(options, directory.path(), frame_bytes, lines));
  }
  STEMMA_ASSIGN_OR_RETURN(BenchLine reopened, measure_reopen(options, directory.path()));
  lines.push_back(std::move(reopened));
  return lines;
}

}  // namespace stemma
