#include "model/weight_files.h"

#include <algorithm>
#include <array>
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
// What the scales of a matrix are called behind its name.
constexpr std::array<std::string_view, 2> kScaleEndings = {"_scale_inv", "_scale"};

}  // namespace

Result<WeightFiles> WeightFiles::open(Files& files, const std::string& directory,
                                      const std::optional<Float8Config>& float8) {
  STEMMA_ASSIGN_OR_RETURN(WeightFiles weights, open_all(files, directory));
  if (float8.has_value()) STEMMA_RETURN_IF_ERROR(weights.read_scales(*float8));
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

Status WeightFiles::read_scales(const Float8Config& float8) {
  for (Shard& shard : shards_) {
    for (TensorEntry& tensor : shard.header.tensors) {
      if (tensor.dtype != kFloat8Dtype) continue;
      STEMMA_RETURN_IF_ERROR(read_scales_of(tensor, float8));
    }
  }
  return {};
}

Status WeightFiles::read_scales_of(TensorEntry& matrix, const Float8Config& float8) {
  const auto wrong = [&](ErrorCode code, const std::string& why) {
    return Error{code, path_of(matrix) + ": tensor '" + printable(matrix.name, 200) + "': " + why};
  };
  auto place = places_.end();
  for (const std::string_view ending : kScaleEndings) {
    if (place == places_.end()) place = places_.find(matrix.name + std::string(ending));
  }
  if (place == places_.end()) {
    return wrong(ErrorCode::kNotFound, "has codes of 8 bits, and no scales with its name");
  }
  const Shard& shard = shards_[place->second.shard];
  const TensorEntry& scales = shard.header.tensors[place->second.tensor];
  std::vector<std::byte> bytes(static_cast<std::size_t>(scales.size_bytes));
  STEMMA_RETURN_IF_ERROR(shard.file->read_exact(scales.offset_bytes, bytes));
  auto made = Float8Scales::make(float8, matrix, scales, std::move(bytes));
  if (!made.ok()) return wrong(made.error().code, made.error().detail);
  scales_.emplace(matrix.name, *std::move(made));
  matrix.dtype = "BF16";
  return {};
}

const Float8Scales* WeightFiles::scales_or_null(const std::string& matrix) const {
  const auto found = scales_.find(matrix);
  return found == scales_.end() ? nullptr : &found->second;
}

// The scales that were read before the codes are the ones that the digest is of.
Status WeightFiles::check_scales(const TensorEntry& tensor,
                                 std::span<const std::byte> bytes) const {
  for (const std::string_view ending : kScaleEndings) {
    if (!tensor.name.ends_with(ending)) continue;
    const Float8Scales* const scales =
        scales_or_null(tensor.name.substr(0, tensor.name.size() - ending.size()));
    if (scales == nullptr || std::ranges::equal(scales->bytes(), bytes)) continue;
    return Error{ErrorCode::kCorrupt, path_of(tensor) + ": tensor '" + printable(tensor.name, 200) +
                                          "' changed while it was read"};
  }
  return {};
}

Result<Sha256Digest> WeightFiles::read_all(ThreadPool& pool, Visitor visit) {
  std::size_t values_bytes = 1;
  std::size_t codes_bytes = 1;
  for (const Shard& shard : shards_) {
    for (const TensorEntry& tensor : shard.header.tensors) {
      const auto size = static_cast<std::size_t>(tensor.size_bytes);
      const bool coded = scales_or_null(tensor.name) != nullptr;
      values_bytes = std::max(values_bytes, coded ? size * sizeof(BFloat16) : size);
      if (coded) codes_bytes = std::max(codes_bytes, size);
    }
  }
  STEMMA_ASSIGN_OR_RETURN(Buffer values, Buffer::allocate(values_bytes));
  STEMMA_ASSIGN_OR_RETURN(Buffer codes, Buffer::allocate(codes_bytes));
  Sha256 all;
  for (Shard& shard : shards_) {
    shard.file->will_read(shard.header.header_bytes, kAheadBytes);
    for (const TensorEntry& tensor : shard.header.tensors) {
      const auto size = static_cast<std::size_t>(tensor.size_bytes);
      const Float8Scales* const scales = scales_or_null(tensor.name);
      std::span<std::byte> bytes((scales != nullptr ? codes : values).bytes(), size);
      STEMMA_RETURN_IF_ERROR(read_tensor(shard, tensor.offset_bytes, bytes, pool));
      STEMMA_RETURN_IF_ERROR(check_scales(tensor, bytes));
      if (scales != nullptr) {
        const std::span widened(reinterpret_cast<BFloat16*>(values.bytes()), size);
        scales->widen(bytes, widened, pool);
        bytes = std::as_writable_bytes(widened);
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
