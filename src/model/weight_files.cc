#include "model/weight_files.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "device/buffer.h"
#include "model/json_text.h"

namespace stemma {
namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr std::int64_t kIndexFileBytesMax = std::int64_t{64} << 20;
// How far ahead of a piece the system is told what will be read: more than a disk delivers while a
// large tensor is packed.
constexpr std::int64_t kAheadBytes = std::int64_t{128} << 20;

std::string_view dtype_name(WeightType type) {
  if (type == WeightType::kF32) return "F32";
  return type == WeightType::kF16 ? "F16" : "BF16";
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

Result<Sha256Digest> WeightFiles::read_all(ThreadPool& pool, Visitor visit) {
  std::size_t values_bytes = 1;
  std::size_t codes_bytes = 1;
  for (const Shard& shard : shards_) {
    for (const TensorEntry& tensor : shard.header.tensors) {
      const auto size = static_cast<std::size_t>(tensor.size_bytes);
      const CodedMatrix* const coded = coded_or_null(tensor.name);
      values_bytes = std::max(values_bytes, coded != nullptr ? bytes_of_values(*coded) : size);
      if (coded != nullptr) codes_bytes = std::max(codes_bytes, size);
    }
  }
  STEMMA_ASSIGN_OR_RETURN(Buffer values, Buffer::allocate(values_bytes));
  STEMMA_ASSIGN_OR_RETURN(Buffer codes, Buffer::allocate(codes_bytes));
  Sha256 all;
  for (Shard& shard : shards_) {
    shard.file->will_read(shard.header.header_bytes, kAheadBytes);
    for (const TensorEntry& tensor : shard.header.tensors) {
      const auto size = static_cast<std::size_t>(tensor.size_bytes);
      const CodedMatrix* const coded = coded_or_null(tensor.name);
      std::span<std::byte> bytes((coded != nullptr ? codes : values).bytes(), size);
      STEMMA_RETURN_IF_ERROR(read_tensor(shard, tensor.offset_bytes, bytes, pool));
      STEMMA_RETURN_IF_ERROR(check_beside(tensor, bytes));
      if (coded != nullptr) {
        const std::span widened(values.bytes(), bytes_of_values(*coded));
        coded->widen(bytes, widened, pool);
        bytes = widened;
      }
      STEMMA_RETURN_IF_ERROR(visit(tensor, bytes));
    }
    const Sha256Digest digest = shard.digest.finish();
    all.update(std::as_bytes(std::span(digest)));
  }
  return all.finish();
}

Status WeightFiles::read_tensor(Shard& shard, std::int64_t offset_bytes, std::span<std::byte> bytes,
                                ThreadPool& pool) {
  constexpr auto kPiece = static_cast<std::size_t>(kPieceBytes);
  std::vector<Piece> pieces((bytes.size() + kPiece - 1) / kPiece);
  pool.run(std::ssize(pieces), [&](std::int64_t index, int) {
    Piece& piece = pieces[static_cast<std::size_t>(index)];
    const std::size_t first = static_cast<std::size_t>(index) * kPiece;
    const std::span<std::byte> own = bytes.subspan(first, std::min(kPiece, bytes.size() - first));
    const std::int64_t offset = offset_bytes + index * kPieceBytes;
    shard.file->will_read(offset + kAheadBytes, kPieceBytes);
    piece.read = shard.file->read_exact(offset, own);
    if (piece.read.ok()) piece.digest = sha256(own);
  });
  for (const Piece& piece : pieces) {
    STEMMA_RETURN_IF_ERROR(piece.read);
    shard.digest.update(std::as_bytes(std::span(piece.digest)));
  }
  return {};
}

}  // namespace stemma
