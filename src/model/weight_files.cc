#include "model/weight_files.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/json_text.h"
#include "base/math.h"

namespace stemma {
namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr std::int64_t kIndexFileBytesMax = std::int64_t{64} << 20;
// How far ahead of a piece the system is told what will be read: more than a disk delivers while a
// large tensor is packed.
constexpr std::int64_t kAheadBytes = std::int64_t{128} << 20;
// What is read at a time where tensors are small, as those of experts: pieces enough for all
// threads to end together, and little enough to lie in a cache until it is packed.
constexpr std::size_t kBatchBytesPerThread = std::size_t{8} << 20;
constexpr std::size_t kTensorAlignment = 64;

std::string_view dtype_name(WeightType type) {
  if (type == WeightType::kF32) return "F32";
  return type == WeightType::kF16 ? "F16" : "BF16";
}

// What a tensor takes where several lie one behind the other.
std::size_t room_of(const TensorEntry& tensor) {
  return round_up(static_cast<std::size_t>(tensor.size_bytes), kTensorAlignment);
}

// How many of the first of `tensors` fit, one at least.
std::size_t fitting(std::span<const TensorEntry> tensors, std::size_t room) {
  std::size_t count = 1;
  std::size_t taken = room_of(tensors.front());
  while (count < tensors.size() && taken + room_of(tensors[count]) <= room) {
    taken += room_of(tensors[count++]);
  }
  return count;
}

std::size_t bytes_of_values(const CodedMatrix& coded) {
  return static_cast<std::size_t>(coded.outputs() * coded.inputs()) *
         weight_type_bytes(coded.type());
}

}  // namespace

Result<WeightFiles> WeightFiles::open(Files& files, const std::string& directory,
                                      const CodedConfig& coded) {
  STEMMA_ASSIGN_OR_RETURN(WeightFiles weights, open_all(files, directory));
  STEMMA_RETURN_IF_ERROR(weights.open_coded(coded));
  return weights;
}

Result<WeightFiles> WeightFiles::open_all(Files& files, const std::string& directory) {
  auto single = open_one(files, directory, kSingleName);
  if (single.ok() || single.error().code != ErrorCode::kNotFound) return single;
  WeightFiles weights;
  weights.directory_ = directory;
  STEMMA_RETURN_IF_ERROR(weights.open_indexed(files));
  return weights;
}

Result<WeightFiles> WeightFiles::open_one(Files& files, const std::string& directory,
                                          const std::string& name) {
  WeightFiles weights;
  weights.directory_ = directory;
  STEMMA_ASSIGN_OR_RETURN(Shard shard, open_shard(files, join_path(directory, name)));
  STEMMA_RETURN_IF_ERROR(weights.add_shard(std::move(shard)));
  return weights;
}

Status WeightFiles::open_indexed(Files& files) {
  const std::string index_path = join_path(directory_, kIndexName);
  const auto text = read_file(files, index_path, kIndexFileBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) {
    return Error{ErrorCode::kNotFound,
                 directory_ + ": holds neither " + kSingleName + " nor " + kIndexName};
  }
  STEMMA_RETURN_IF_ERROR(text);
  STEMMA_ASSIGN_OR_RETURN(const auto index, parse_safetensors_index(*text, index_path));
  std::map<std::string, std::size_t> shard_of;  // opened in the order of their names
  for (const auto& [tensor, file] : index) {
    shard_of.emplace(file, 0);
  }
  for (auto& [file, shard] : shard_of) {
    STEMMA_ASSIGN_OR_RETURN(Shard opened, open_shard(files, join_path(directory_, file)));
    shard = shards_.size();
    STEMMA_RETURN_IF_ERROR(add_shard(std::move(opened)));
  }
  for (const auto& [tensor, file] : index) {
    const auto place = places_.find(tensor);
    if (place == places_.end() || place->second.shard != shard_of.at(file)) {
      return Error{ErrorCode::kCorrupt, index_path + ": tensor '" + printable(tensor, 200) +
                                            "' is not in " + printable(file, 200)};
    }
  }
  return {};
}

Result<WeightFiles::Shard> WeightFiles::open_shard(Files& files, const std::string& path) {
  Shard shard;
  STEMMA_ASSIGN_OR_RETURN(shard.file, files.open(path));
  const std::int64_t file_bytes = shard.file->size_bytes();
  std::vector<std::byte> header(
      static_cast<std::size_t>(std::min<std::int64_t>(file_bytes, kSafetensorsLengthBytes)));
  STEMMA_RETURN_IF_ERROR(shard.file->read_exact(0, header));
  STEMMA_ASSIGN_OR_RETURN(const std::int64_t header_bytes,
                          safetensors_header_bytes(header, file_bytes, path));
  header.resize(static_cast<std::size_t>(header_bytes));
  STEMMA_RETURN_IF_ERROR(shard.file->read_exact(
      kSafetensorsLengthBytes,
      std::span(header).subspan(static_cast<std::size_t>(kSafetensorsLengthBytes))));
  STEMMA_ASSIGN_OR_RETURN(shard.header, parse_safetensors_header(header, file_bytes, path));
  shard.digest.update(header);
  return shard;
}

Status WeightFiles::add_shard(Shard shard) {
  for (std::size_t i = 0; i < shard.header.tensors.size(); ++i) {
    const std::string& name = shard.header.tensors[i].name;
    const auto [place, added] = places_.emplace(name, Place{shards_.size(), i});
    if (!added) {
      return Error{ErrorCode::kCorrupt, shard.file->path() + ": tensor '" + printable(name, 200) +
                                            "' is also in " +
                                            shards_[place->second.shard].file->path()};
    }
  }
  total_bytes_ += shard.file->size_bytes();
  shards_.push_back(std::move(shard));
  return {};
}

const TensorEntry* WeightFiles::find_or_null(std::string_view name) const {
  const auto found = places_.find(std::string(name));
  return found == places_.end()
             ? nullptr
             : &shards_[found->second.shard].header.tensors[found->second.tensor];
}

const std::string& WeightFiles::path_of(const TensorEntry& tensor) const {
  return shards_[places_.at(tensor.name).shard].file->path();
}

const CodedMatrix* WeightFiles::coded_or_null(const std::string& matrix) const {
  const auto found = coded_.find(matrix);
  return found == coded_.end() ? nullptr : found->second.get();
}

std::optional<WeightFormat> WeightFiles::kept_format(const std::string& matrix) const {
  const CodedMatrix* const coded = coded_or_null(matrix);
  return coded == nullptr ? std::nullopt : coded->kept_format();
}

KeptGroups WeightFiles::kept_groups(const std::string& matrix) const {
  if (!kept_format(matrix).has_value()) return {};
  return coded_or_null(matrix)->kept_groups();
}

Status WeightFiles::open_coded(const CodedConfig& coded) {
  for (Shard& shard : shards_) {
    for (TensorEntry& tensor : shard.header.tensors) {
      auto matrix = open_coded_matrix(
          coded, tensor, [this](const std::string& name) { return read_beside(name); });
      if (!matrix.ok()) {
        return Error{matrix.error().code, shard.file->path() + ": tensor '" +
                                              printable(tensor.name, 200) +
                                              "': " + matrix.error().detail};
      }
      if (*matrix != nullptr) {
        STEMMA_RETURN_IF_ERROR(name_as_matrix(tensor, *std::move(matrix)));
      }
    }
  }
  return {};
}

Result<BesideTensor> WeightFiles::read_beside(const std::string& name) {
  const auto place = places_.find(name);
  if (place == places_.end()) return BesideTensor{};
  const Shard& shard = shards_[place->second.shard];
  const TensorEntry& entry = shard.header.tensors[place->second.tensor];
  const auto [bytes, is_new] = beside_.try_emplace(name);
  if (is_new) {
    bytes->second.resize(static_cast<std::size_t>(entry.size_bytes));
    STEMMA_RETURN_IF_ERROR(shard.file->read_exact(entry.offset_bytes, bytes->second));
  }
  return BesideTensor{&entry, bytes->second};
}

Status WeightFiles::name_as_matrix(TensorEntry& codes, std::unique_ptr<const CodedMatrix> matrix) {
  const std::string name = matrix->name();
  if (name != codes.name) {
    const auto place = places_.extract(codes.name);
    if (!places_.emplace(name, place.mapped()).second) {
      return Error{ErrorCode::kCorrupt, path_of(*find_or_null(name)) + ": tensor '" +
                                            printable(name, 200) + "' is also there as codes"};
    }
  }
  codes.name = name;
  codes.dtype = dtype_name(matrix->type());
  codes.shape = {matrix->outputs(), matrix->inputs()};
  coded_.emplace(name, std::move(matrix));
  return {};
}

// What lies beside codes was read before them: it is what the digest is of.
Status WeightFiles::check_beside(const TensorEntry& tensor,
                                 std::span<const std::byte> bytes) const {
  const auto before = beside_.find(tensor.name);
  if (before == beside_.end() || std::ranges::equal(before->second, bytes)) return {};
  return Error{ErrorCode::kCorrupt, path_of(tensor) + ": tensor '" + printable(tensor.name, 200) +
                                        "' changed while it was read"};
}

// The room of the largest tensor, and of as many small ones as give every thread pieces.
std::size_t WeightFiles::batch_room(int threads) const {
  std::size_t room = std::min(static_cast<std::size_t>(threads) * kBatchBytesPerThread,
                              static_cast<std::size_t>(total_bytes_));
  for (const Shard& shard : shards_) {
    for (const TensorEntry& tensor : shard.header.tensors) {
      room = std::max(room, room_of(tensor));
    }
  }
  return room;
}

// What the widest matrix of codes stands for.
std::size_t WeightFiles::widened_room() const {
  std::size_t room = 1;
  for (const auto& [name, coded] : coded_) room = std::max(room, bytes_of_values(*coded));
  return room;
}

Result<Sha256Digest> WeightFiles::read_all(ThreadPool& pool, Visitor visit) {
  STEMMA_ASSIGN_OR_RETURN(Buffer stored, Buffer::allocate(batch_room(pool.threads())));
  STEMMA_ASSIGN_OR_RETURN(Buffer widened, Buffer::allocate(widened_room()));
  Sha256 all;
  for (Shard& shard : shards_) {
    shard.file->will_read(shard.header.header_bytes, kAheadBytes);
    std::span<const TensorEntry> left = shard.header.tensors;
    while (!left.empty()) {
      const auto batch = left.first(fitting(left, stored.size_bytes()));
      STEMMA_RETURN_IF_ERROR(read_batch(shard, batch, stored, pool));
      std::byte* at = stored.bytes();
      for (const TensorEntry& tensor : batch) {
        const std::span bytes(at, static_cast<std::size_t>(tensor.size_bytes));
        STEMMA_RETURN_IF_ERROR(visit_one(tensor, bytes, widened, pool, visit));
        at += room_of(tensor);
      }
      left = left.subspan(batch.size());
    }
    const Sha256Digest digest = shard.digest.finish();
    all.update(std::as_bytes(std::span(digest)));
  }
  return all.finish();
}

Status WeightFiles::visit_one(const TensorEntry& tensor, std::span<const std::byte> bytes,
                              Buffer& widened, ThreadPool& pool, Visitor visit) const {
  STEMMA_RETURN_IF_ERROR(check_beside(tensor, bytes));
  const CodedMatrix* const coded = coded_or_null(tensor.name);
  if (coded == nullptr) return visit(tensor, bytes);
  const std::span values(widened.bytes(), bytes_of_values(*coded));
  coded->widen(bytes, values, pool);
  return visit(tensor, values);
}

// Tensors that follow each other, each into the room that it has in `stored`.
Status WeightFiles::read_batch(Shard& shard, std::span<const TensorEntry> batch, Buffer& stored,
                               ThreadPool& pool) {
  constexpr auto kPiece = static_cast<std::size_t>(kPieceBytes);
  std::vector<Piece> pieces;
  std::byte* to = stored.bytes();
  for (const TensorEntry& tensor : batch) {
    const auto size = static_cast<std::size_t>(tensor.size_bytes);
    for (std::size_t first = 0; first < size; first += kPiece) {
      pieces.push_back({.offset_bytes = tensor.offset_bytes + static_cast<std::int64_t>(first),
                        .bytes = std::span(to + first, std::min(kPiece, size - first))});
    }
    to += room_of(tensor);
  }
  pool.run(std::ssize(pieces), [&](std::int64_t index, int) {
    Piece& piece = pieces[static_cast<std::size_t>(index)];
    shard.file->will_read(piece.offset_bytes + kAheadBytes, kPieceBytes);
    piece.read = shard.file->read_exact(piece.offset_bytes, piece.bytes);
    if (piece.read.ok()) piece.digest = sha256(piece.bytes);
  });
  for (const Piece& piece : pieces) {
    STEMMA_RETURN_IF_ERROR(piece.read);
    shard.digest.update(std::as_bytes(std::span(piece.digest)));
  }
  return {};
}

}  // namespace stemma
