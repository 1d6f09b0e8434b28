// RowWidener: latent rows become f32, some vectors at a time, between the multiplications of rows
// that were widened before. Reading them from a cache then costs no time of its own.
//
// Included by latent_attention_cpu.cc after Highway, once for each SIMD target; by nothing else.
#if defined(STEMMA_ATTENTION_WIDEN_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_WIDEN_ROWS_INL_H_
#undef STEMMA_ATTENTION_WIDEN_ROWS_INL_H_
#else
#define STEMMA_ATTENTION_WIDEN_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include "attention/attention_kernel.h"
#include "attention/widen_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// Rows of one KV head: row i begins at head + offsets[i].
struct RowSource {
  const std::byte* head = nullptr;
  const std::int64_t* offsets = nullptr;
  std::int64_t head_dim = 0;
};

// A value that a loop copies into registers and writes back.
template <typename T>
class RowWidener {
 public:
  // Rows of `source`, `rows` of them, to places kLatentRowFloats apart.
  RowWidener(const RowSource& source, std::int64_t rows, float* to)
      : head_(source.head),
        offsets_(source.offsets),
        rows_(rows),
        row_bytes_(source.head_dim * kElementBytes),
        begin_(to) {}

  // How many vectors all rows have.
  std::int64_t vectors() const { return rows_ * ceil_div(row_bytes_, kVectorBytes); }

  // The next vectors, as long as there are any.
  HWY_INLINE void step(std::int64_t vectors) {
    for (; vectors > 0; --vectors) {
      if (left_bytes_ == 0) [[unlikely]] {
        if (rows_ == 0) return;
        next_row();
      }
      step();
    }
  }

  void finish() {
    while (left_bytes_ > 0 || rows_ > 0) step(1);
  }

 private:
  static constexpr auto kElementBytes = static_cast<std::int64_t>(sizeof(T));
  static constexpr std::int64_t kVectorBytes = kLanes * kElementBytes;

  void next_row() {
    from_ = head_ + *offsets_++;
    to_ = begin_;
    begin_ += kLatentRowFloats;
    left_bytes_ = row_bytes_;
    --rows_;
  }

  HWY_INLINE void step() {
    namespace hn = hwy::HWY_NAMESPACE;
    constexpr FloatTag d;
    const T* const from = reinterpret_cast<const T*>(from_);
    if (kLanes > 8 && left_bytes_ < kVectorBytes) [[unlikely]] {  // half a vector
      const hn::Half<FloatTag> half;
      hn::StoreU(load_f32(half, from), half, to_);
      left_bytes_ = 0;
      return;
    }
    hn::StoreU(load_f32(d, from), d, to_);
    from_ += kVectorBytes;
    to_ += kLanes;
    left_bytes_ -= kVectorBytes;
  }

  const std::byte* head_;
  const std::int64_t* offsets_;
  std::int64_t rows_;  // not begun
  std::int64_t row_bytes_;
  const std::byte* from_ = nullptr;
  float* to_ = nullptr;
  std::int64_t left_bytes_ = 0;  // of the present row
  float* begin_;                 // where the next one goes
};

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
