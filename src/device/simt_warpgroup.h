// What an emulated GPU knows of products of warpgroups: who wrote which shared memory, and which
// products are on their way.
//
// It is stricter than a GPU. Products are done when they are waited for, and until then their sums
// are bytes of 0xFF. The program ends where a product reads shared memory that was written or
// copied and not fenced since (of stores, those of store_words are known), where that is written
// while the product is on its way, where registers of a product are touched meanwhile, where lanes
// of a group ask for different things, where a matrix is not where its descriptor may say, and
// where a kernel ends before its products.
//
// Thread:     threads of one team, of which one runs at a time.
// Memory:     eight bytes for 16 shared ones; copies of what products read and sum in registers.
// Cost:       nanoseconds for each multiplication.
// Not here:   who waits for whom (simt.cc), the functions of kernels (cuda_warpgroup_simt-inl.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace stemma::simt {

inline constexpr int kGroupLanes = 128;

// Sixteenths of a team's shared memory. Its addresses begin at kSharedBegin, as a GPU's do behind
// what its runtime keeps.
class SharedTrace {
 public:
  static constexpr std::uint32_t kSharedBegin = 1024;

  void begin(std::byte* shared, std::size_t size_bytes);

  bool has(const void* address) const;
  // REQUIRES: has(address).
  std::uint32_t address_of(const void* address) const;
  // Ends the program if there are no two bytes.
  const std::byte* at(std::uint32_t address) const;

  // Sixteen bytes are written, by a store or a copy that was begun, and are fenced.
  void write(const void* address);
  void fence(const void* address);
  // A product begins and ends to read those at a shared address.
  void begin_reading(std::uint32_t address);
  void end_reading(std::uint32_t address);

 private:
  struct Piece {
    std::uint32_t unfenced = 0;  // writes
    std::uint32_t readers = 0;
  };
  Piece& piece_of(const void* address);
  Piece& piece_at(std::uint32_t address);

  std::byte* shared_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::vector<Piece> pieces_;
};

// What one thread asks for: cuda_warpgroup.h, multiply_group.
struct GroupProduct {
  int columns = 0;
  float* sums = nullptr;                          // columns / 2 of the thread's
  const std::uint32_t* left_registers = nullptr;  // four; nullptr: the left matrix is shared
  std::uint64_t left = 0;
  std::uint64_t right = 0;
  bool right_columns = false;
  bool adds = false;
  float (*widen)(std::uint16_t) = nullptr;
};

// Of four warps.
class Warpgroup {
 public:
  explicit Warpgroup(SharedTrace& trace) : trace_(trace) {}
  Warpgroup(const Warpgroup&) = delete;
  Warpgroup& operator=(const Warpgroup&) = delete;

  // Of each lane; then, of the last that came, issue.
  void set(int lane, const GroupProduct& product) {
    asked_[static_cast<std::size_t>(lane)] = product;
  }
  void issue();
  void commit();
  // Until at most `pending` groups are on their way.
  void wait(int pending);
  bool idle() const { return uncommitted_.empty() && groups_.empty(); }
  // Whether products on their way sum there.
  bool sums_at(const float* sums) const { return sums_.contains(sums); }

 private:
  struct Product {
    std::array<GroupProduct, kGroupLanes> lanes;
    std::array<std::array<std::uint32_t, 4>, kGroupLanes> left;
    std::vector<std::uint32_t> read;  // shared addresses of pieces
  };
  // What a thread's sums are, while its registers are poison.
  struct Sums {
    std::vector<float> values;
    int products = 0;
  };

  void check_alike() const;
  void hide_sums(const GroupProduct& lane);
  void show_sums(const GroupProduct& lane);
  void note_reads(const Product& product) const;
  void finish(Product& product);
  std::vector<float> left_of(const Product& product) const;
  std::vector<float> right_of(const GroupProduct& lane) const;
  float element(const GroupProduct& lane, std::uint32_t address) const;

  SharedTrace& trace_;
  std::array<GroupProduct, kGroupLanes> asked_;
  std::vector<Product> uncommitted_;
  std::deque<std::vector<Product>> groups_;
  std::map<const float*, Sums> sums_;
};

// ---- For code of kernels. REQUIRES: called from a kernel.

std::uint32_t shared_address(const void* shared);
void multiply_group(const GroupProduct& product);
void fence_registers();
void commit_products();
void wait_products(int pending);
// Ends the program if products on their way sum there.
void check_settled(const float* sums);
void fence_shared_writes();
// Sixteen bytes were stored, wherever.
void note_store(const void* address);

void begin_barrier(const void* barrier, int arrivals);
void arrive(const void* barrier);
void wait_for(const void* barrier, int parity);

}  // namespace stemma::simt
