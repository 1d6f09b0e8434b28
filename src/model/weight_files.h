// WeightFiles: the safetensors files of a model, opened, checked, and read once from end to end.
//
// Tensors are read in pieces, on all threads of the pool, several at a time where they are small,
// and each piece is digested where it was read, while it is in a cache; the system is told ahead
// what comes next, and so reads on while tensors are packed. A matrix that a file holds as codes
// (coded_config) is to whoever reads here one of the numbers that they stand for: of the file its
// entry keeps place and size.
//
// Thread:     one thread; read_all spreads over a pool.
// Memory:     the headers and what lies beside codes; while read_all runs one buffer as large as
//             the largest tensor, or 8 MiB a thread, and of the largest matrix of codes one more.
// Cost:       every byte is read once and digested (SHA-256, about 1.6 GB/s on each thread).
// Not here:   which tensors a model needs and what becomes of them (weights).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "device/buffer.h"
#include "model/coded_config.h"
#include "model/coded_matrix.h"
#include "model/safetensors.h"
#include "stemma/result.h"

namespace stemma {

class WeightFiles {
 public:
  // Called with each tensor and its bytes, aligned and valid during the call only. An error ends
  // the reading.
  using Visitor = FunctionRef<Status(const TensorEntry& tensor, std::span<const std::byte> bytes)>;

  // Opens model.safetensors, or the shards that model.safetensors.index.json names, and checks
  // every header. All tensors that the index names must be where it says. Of every tensor of codes,
  // as `coded` has them, what lies beside it is read. `files` must outlive this.
  static Result<WeightFiles> open(Files& files, const std::string& directory,
                                  const CodedConfig& coded = {});

  // Opens the one file `name` of `directory`.
  static Result<WeightFiles> open_one(Files& files, const std::string& directory,
                                      const std::string& name);

  // The tensor of that name, or nullptr. Valid as long as this.
  const TensorEntry* find_or_null(std::string_view name) const;
  // The path of the file that holds `tensor`, for errors. REQUIRES: tensor came from find_or_null.
  const std::string& path_of(const TensorEntry& tensor) const;
  // As CodedMatrix, of the matrix of that name, whatever the files hold of it.
  std::optional<WeightFormat> kept_format(const std::string& matrix) const;
  KeptGroups kept_groups(const std::string& matrix) const;

  // Whether the tensor of that name lies beside codes, and says what they stand for.
  bool is_beside(const std::string& name) const { return beside_.contains(name); }

  const std::string& directory() const noexcept { return directory_; }
  std::int64_t total_bytes() const noexcept { return total_bytes_; }

  // Bytes of a tensor that are read and digested at a time.
  static constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

  // Reads every file once in order, calls `visit` for each tensor, on this thread, and returns the
  // digest of what was read: SHA-256 over that of each file, which is SHA-256 over the header and,
  // for each tensor in order, the SHA-256 of each of its pieces. The headers that were checked are
  // the ones in the digest, and so is what lies beside codes: kCorrupt if it is another by now.
  // REQUIRES: not called before.
  Result<Sha256Digest> read_all(ThreadPool& pool, Visitor visit);

 private:
  struct Shard {
    std::unique_ptr<ReadableFile> file;
    SafetensorsHeader header;
    Sha256 digest;  // of the header, and then of the pieces' digests
  };
  struct Place {
    std::size_t shard = 0;
    std::size_t tensor = 0;
  };

  // What of a tensor is read by one task, and what came of it.
  struct Piece {
    std::int64_t offset_bytes = 0;
    std::span<std::byte> bytes;
    Status read = {};
    Sha256Digest digest = {};
  };

  static Result<Shard> open_shard(Files& files, const std::string& path);
  static Result<WeightFiles> open_all(Files& files, const std::string& directory);
  Status open_indexed(Files& files);
  Status open_coded(const CodedConfig& coded);
  const CodedMatrix* coded_or_null(const std::string& matrix) const;
  Result<BesideTensor> read_beside(const std::string& name);
  Status name_as_matrix(TensorEntry& codes, std::unique_ptr<const CodedMatrix> matrix);
  Status check_beside(const TensorEntry& tensor, std::span<const std::byte> bytes) const;
  Status add_shard(Shard shard);
  std::size_t batch_room(int threads) const;
  std::size_t widened_room() const;
  static Status read_batch(Shard& shard, std::span<const TensorEntry> batch, Buffer& stored,
                           ThreadPool& pool);
  Status visit_one(const TensorEntry& tensor, std::span<const std::byte> bytes, Buffer& widened,
                   ThreadPool& pool, Visitor visit) const;

  std::string directory_;
  std::vector<Shard> shards_;
  std::unordered_map<std::string, Place> places_;
  std::unordered_map<std::string, std::vector<std::byte>> beside_;  // by the tensor's name
  std::unordered_map<std::string, std::unique_ptr<const CodedMatrix>> coded_;  // by the matrix's
  std::int64_t total_bytes_ = 0;
};

}  // namespace stemma
