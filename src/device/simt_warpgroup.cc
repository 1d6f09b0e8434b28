#include "device/simt_warpgroup.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "device/simt_races.h"

namespace stemma::simt {

namespace {

constexpr int kRows = 64;
constexpr int kDepth = 16;  // what is summed over
constexpr std::uint32_t kPieceBytes = 16;
constexpr std::uint32_t kPoison = 0xFFFFFFFFu;

// A matrix descriptor, taken apart.
struct Descriptor {
  explicit Descriptor(std::uint64_t bits)
      : begin(field(bits, 0)), leading(field(bits, 16)), stride(field(bits, 32)) {
    STEMMA_CHECK(bits >> 62 == 1, "matrices lie swizzled over 128 bytes");
    STEMMA_CHECK((bits >> 49 & 7) == 0 && begin / 128 % 8 == 0,
                 "panels of a matrix begin at multiples of 1,024 bytes");
    STEMMA_CHECK(stride % 1024 == 0, "eight rows of a panel are whole ones");
  }
  static std::uint32_t field(std::uint64_t bits, int first) {
    return static_cast<std::uint32_t>(bits >> first & 0x3FFF) << 4;
  }

  // Of element `k` of row `row`, of a matrix of rows.
  std::uint32_t in_rows(int row, int k) const {
    return swizzled(begin + static_cast<std::uint32_t>(row / 8) * stride +
                    static_cast<std::uint32_t>(row % 8 * 128 + k * 2));
  }
  // Of column `column` of row `k`, of a matrix of columns.
  std::uint32_t in_columns(int column, int k) const {
    return swizzled(begin + static_cast<std::uint32_t>(column / 64) * leading +
                    static_cast<std::uint32_t>(k / 8) * stride +
                    static_cast<std::uint32_t>(k % 8 * 128 + column % 64 * 2));
  }
  static std::uint32_t swizzled(std::uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

  std::uint32_t begin;
  std::uint32_t leading;
  std::uint32_t stride;
};

std::uint32_t right_address(const GroupProduct& lane, int column, int k) {
  const Descriptor right(lane.right);
  return lane.right_columns ? right.in_columns(column, k) : right.in_rows(column, k);
}

// The pieces that a product reads.
std::vector<std::uint32_t> pieces_of(const GroupProduct& lane) {
  std::vector<std::uint32_t> pieces;
  for (int k = 0; k < kDepth; ++k) {
    for (int column = 0; column < lane.columns; ++column) {
      pieces.push_back(right_address(lane, column, k) / kPieceBytes);
    }
    for (int row = 0; row < kRows && lane.left_registers == nullptr; ++row) {
      pieces.push_back(Descriptor(lane.left).in_rows(row, k) / kPieceBytes);
    }
  }
  std::sort(pieces.begin(), pieces.end());
  pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
  for (std::uint32_t& piece : pieces) piece *= kPieceBytes;
  return pieces;
}

// In [rows or columns, depth].
std::size_t place_of(int line, int k) {
  return static_cast<std::size_t>(line) * kDepth + static_cast<std::size_t>(k);
}

std::size_t sums_of(const GroupProduct& lane) {
  return static_cast<std::size_t>(lane.columns / 2);
}

bool is_poison(const float* sums, std::size_t count) {
  return std::all_of(sums, sums + count, [](const float& sum) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &sum, sizeof(bits));
    return bits == kPoison;
  });
}

}  // namespace

void SharedTrace::begin(std::byte* shared, std::size_t size_bytes) {
  shared_ = shared;
  size_bytes_ = size_bytes;
  pieces_.assign(size_bytes / kPieceBytes + 1, Piece());
}

bool SharedTrace::has(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  return byte >= shared_ && byte < shared_ + size_bytes_;
}

std::uint32_t SharedTrace::address_of(const void* address) const {
  STEMMA_CHECK(has(address), "an address of the team's shared memory");
  return kSharedBegin +
         static_cast<std::uint32_t>(static_cast<const std::byte*>(address) - shared_);
}

const std::byte* SharedTrace::at(std::uint32_t address) const {
  STEMMA_CHECK(address >= kSharedBegin && address - kSharedBegin + 2 <= size_bytes_,
               "a matrix lies within the team's shared memory");
  return shared_ + (address - kSharedBegin);
}

SharedTrace::Piece& SharedTrace::piece_of(const void* address) {
  return piece_at(address_of(address));
}
SharedTrace::Piece& SharedTrace::piece_at(std::uint32_t address) {
  static_cast<void>(at(address));
  return pieces_[(address - kSharedBegin) / kPieceBytes];
}

void SharedTrace::write(const void* address) {
  Piece& piece = piece_of(address);
  STEMMA_CHECK(piece.readers == 0, "shared memory is written while products read it");
  ++piece.unfenced;
}
void SharedTrace::fence(const void* address) {
  --piece_of(address).unfenced;
}
void SharedTrace::begin_reading(std::uint32_t address) {
  Piece& piece = piece_at(address);
  STEMMA_CHECK(piece.unfenced == 0, "products read what was written and not fenced since");
  ++piece.readers;
}
void SharedTrace::end_reading(std::uint32_t address) {
  --piece_at(address).readers;
}

void Warpgroup::check_alike() const {
  const GroupProduct& first = asked_[0];
  for (const GroupProduct& lane : asked_) {
    STEMMA_CHECK(lane.columns == first.columns && lane.left == first.left &&
                     lane.right == first.right && lane.right_columns == first.right_columns &&
                     lane.adds == first.adds &&
                     (lane.left_registers == nullptr) == (first.left_registers == nullptr),
                 "all threads of a warpgroup ask for one product");
  }
}

void Warpgroup::hide_sums(const GroupProduct& lane) {
  const std::size_t count = sums_of(lane);
  Sums& hidden = sums_[lane.sums];
  if (hidden.products++ == 0) {
    hidden.values.assign(lane.sums, lane.sums + count);
    std::memset(lane.sums, 0xFF, count * sizeof(float));
  }
  STEMMA_CHECK(hidden.values.size() == count && is_poison(lane.sums, count),
               "sums of products on their way are touched");
}

void Warpgroup::show_sums(const GroupProduct& lane) {
  const auto hidden = sums_.find(lane.sums);
  if (--hidden->second.products > 0) return;
  STEMMA_CHECK(is_poison(lane.sums, sums_of(lane)), "sums of products on their way are touched");
  std::copy(hidden->second.values.begin(), hidden->second.values.end(), lane.sums);
  sums_.erase(hidden);
}

void Warpgroup::issue() {
  check_alike();
  Product product = {asked_, {}, pieces_of(asked_[0])};
  for (std::size_t i = 0; i < kGroupLanes; ++i) {
    const GroupProduct& lane = asked_[i];
    if (lane.left_registers != nullptr) {
      std::copy(lane.left_registers, lane.left_registers + 4, product.left[i].begin());
    }
    hide_sums(lane);
  }
  for (const std::uint32_t address : product.read) trace_.begin_reading(address);
  note_reads(product);
  uncommitted_.push_back(std::move(product));
}

// As if the thread that runs read all of it: it was the last to come, and stands for the group.
void Warpgroup::note_reads(const Product& product) const {
  RaceTrace* const races = running_trace();
  if (races == nullptr) return;
  for (const std::uint32_t address : product.read) {
    races->touch(trace_.at(address), kPieceBytes, Access::kRead);
  }
}

void Warpgroup::commit() {
  groups_.push_back(std::exchange(uncommitted_, {}));
}

void Warpgroup::wait(int pending) {
  while (groups_.size() > static_cast<std::size_t>(pending)) {
    for (Product& product : groups_.front()) finish(product);
    groups_.pop_front();
  }
}

float Warpgroup::element(const GroupProduct& lane, std::uint32_t address) const {
  std::uint16_t bits = 0;
  std::memcpy(&bits, trace_.at(address), sizeof(bits));
  return lane.widen(bits);
}

// [rows, depth].
std::vector<float> Warpgroup::left_of(const Product& product) const {
  const GroupProduct& first = product.lanes[0];
  std::vector<float> left(std::size_t{kRows} * kDepth);
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kDepth; ++k) {
      float& x = left[place_of(row, k)];
      if (first.left_registers == nullptr) {
        x = element(first, Descriptor(first.left).in_rows(row, k));
        continue;
      }
      // As the lanes of mma.m16n8k16 have them, a warp of 16 rows after another.
      const int lane = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
      const int word = (row % 16 >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0);
      const std::uint32_t pair =
          product.left[static_cast<std::size_t>(lane)][static_cast<std::size_t>(word)];
      x = first.widen(static_cast<std::uint16_t>(pair >> (16 * (k % 2))));
    }
  }
  return left;
}

// [columns, depth].
std::vector<float> Warpgroup::right_of(const GroupProduct& lane) const {
  std::vector<float> right(place_of(lane.columns, 0));
  for (int column = 0; column < lane.columns; ++column) {
    for (int k = 0; k < kDepth; ++k) {
      right[place_of(column, k)] = element(lane, right_address(lane, column, k));
    }
  }
  return right;
}

void Warpgroup::finish(Product& product) {
  const std::vector<float> left = left_of(product);
  const std::vector<float> right = right_of(product.lanes[0]);
  for (std::size_t i = 0; i < kGroupLanes; ++i) {
    const GroupProduct& lane = product.lanes[i];
    STEMMA_CHECK(
        lane.left_registers == nullptr ||
            std::equal(product.left[i].begin(), product.left[i].end(), lane.left_registers),
        "operands of products on their way are touched");
    std::vector<float>& sums = sums_.at(lane.sums).values;
    for (std::size_t j = 0; j < sums.size(); ++j) {
      const std::size_t row = i / 32 * 16 + i % 32 / 4 + j % 4 / 2 * 8;
      const std::size_t column = j / 4 * 8 + i % 4 * 2 + j % 2;
      float sum = lane.adds ? sums[j] : 0.0f;
      for (std::size_t k = 0; k < kDepth; ++k) {
        sum = std::fma(left[row * kDepth + k], right[column * kDepth + k], sum);
      }
      sums[j] = sum;
    }
    show_sums(lane);
  }
  for (const std::uint32_t address : product.read) trace_.end_reading(address);
  note_reads(product);
}

}  // namespace stemma::simt
