// Bytes are the coefficients of a polynomial over GF(2); their sum is its remainder. In memory
// order the first bit has the highest power, and a register loaded from memory has it in bit 0, so
// all constants are reflected.
//
// Folding: a register of 128 bits that lies D bits before another is the polynomial L·x^(64+D) +
// H·x^D over it, L and H its halves. L and H times those powers' remainders (32 bits each) fit 128
// bits, so a fold is two carry-less multiplications and two exclusive ors. Of two reflected factors
// the product comes out one bit too low, hence the powers less 1. Several registers fold over the
// same distance side by side; in the end each folds into the next, and the last 16 bytes, which
// have the remainder of all, go through the CRC instruction.
//
// Streams: the CRC instruction waits three cycles for itself, so three sums run side by side over
// three pieces; a sum with n zero bytes behind it is the sum times x^(8n). That product, of 63
// bits, goes through the instruction too, which multiplies by x^32: hence the powers less 33.
#include "base/crc32c_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#endif

namespace stemma {

#if defined(__x86_64__)

namespace {

#define STEMMA_TARGET_SSE [[gnu::target("sse4.2,pclmul")]]
#define STEMMA_TARGET_256 [[gnu::target("sse4.2,pclmul,avx2,vpclmulqdq")]]
#define STEMMA_TARGET_512 [[gnu::target("sse4.2,pclmul,avx2,vpclmulqdq,avx512f,avx512vl")]]

constexpr std::size_t kLineBytes = 64;
// How far ahead of reading lines are asked for: in a run of bytes, and at its end in the next one.
constexpr std::size_t kNearBytes = 2048;
constexpr std::size_t kFarBytes = 4096;

enum class Writing : std::uint8_t { kNone, kCached, kPastCaches };

// The factors of a fold over `bytes`: of the half with the lower powers (H), and of the other.
constexpr std::int64_t high_factor(std::size_t bytes) {
  return static_cast<std::int64_t>(std::uint64_t{crc32c_power(8 * bytes - 1)} << 32);
}
constexpr std::int64_t low_factor(std::size_t bytes) {
  return static_cast<std::int64_t>(std::uint64_t{crc32c_power(8 * bytes + 63)} << 32);
}

STEMMA_TARGET_SSE std::uint32_t sum_words(std::span<const std::byte> bytes, std::uint32_t state) {
  std::uint64_t wide = state;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  state = static_cast<std::uint32_t>(wide);
  for (; at < bytes.size(); ++at) {
    state = _mm_crc32_u8(state, std::to_integer<std::uint8_t>(bytes[at]));
  }
  return state;
}

// What is left of a copy behind its first `done_bytes`.
std::uint32_t finish_words(const CrcCopy& copy, std::size_t done_bytes, Writing writing,
                           std::uint32_t state) {
  const std::span<const std::byte> rest = copy.from.subspan(done_bytes);
  if (rest.empty()) return state;
  if (writing == Writing::kNone) return sum_words(rest, state);
  std::memcpy(copy.to + done_bytes, rest.data(), rest.size());
  return sum_words({copy.to + done_bytes, rest.size()}, state);
}

// The state after registers that lie one behind the other.
STEMMA_TARGET_SSE std::uint32_t state_of(const __m128i* registers, int count) {
  constexpr std::int64_t kHigh = high_factor(16);
  constexpr std::int64_t kLow = low_factor(16);
  const __m128i factors = _mm_set_epi64x(kHigh, kLow);
  __m128i sum = registers[0];
  for (int i = 1; i < count; ++i) {
    const __m128i low = _mm_clmulepi64_si128(sum, factors, 0x00);
    const __m128i high = _mm_clmulepi64_si128(sum, factors, 0x11);
    sum = _mm_xor_si128(_mm_xor_si128(low, high), registers[i]);
  }
  const auto first = static_cast<std::uint64_t>(_mm_cvtsi128_si64(sum));
  const auto second = static_cast<std::uint64_t>(_mm_extract_epi64(sum, 1));
  return static_cast<std::uint32_t>(_mm_crc32_u64(_mm_crc32_u64(0, first), second));
}

// Asks for lines that are read later than those at `at`. What lies behind these is asked for
// shortly before, which is enough where the processor's own prefetching has it on its way; the next
// copy's bytes, which nothing else asks for, go to the second-level cache, which waits for more
// lines at once than the first.
template <std::size_t lines>
[[gnu::always_inline]] inline void ask_ahead(const CrcCopy& copy, std::size_t at) {
  const std::size_t size_bytes = copy.from.size();
  const bool goes_on = copy.next == copy.from.data() + size_bytes;
  const bool scattered = copy.next != nullptr && !goes_on;
  const std::size_t near = at + kNearBytes;
  if (goes_on || (near < size_bytes && (near >= kFarBytes || !scattered))) {
    const std::byte* const wanted = copy.from.data() + near;
    for (std::size_t i = 0; i < lines; ++i) __builtin_prefetch(wanted + i * kLineBytes, 0, 3);
  }
  const std::size_t far = std::min(kFarBytes, size_bytes);
  if (scattered && at + far >= size_bytes) {
    const std::byte* const wanted = copy.next + (at + far - size_bytes);
    for (std::size_t i = 0; i < lines; ++i) __builtin_prefetch(wanted + i * kLineBytes, 0, 2);
  }
}

// --- 512 bits

template <std::size_t bytes>
STEMMA_TARGET_512 [[gnu::always_inline]] inline __m512i factors_512() {
  constexpr std::int64_t kHigh = high_factor(bytes);
  constexpr std::int64_t kLow = low_factor(bytes);
  return _mm512_set4_epi64(kHigh, kLow, kHigh, kLow);
}

template <Writing writing>
STEMMA_TARGET_512 [[gnu::always_inline]] inline __m512i take_512(const CrcCopy& copy,
                                                                 std::size_t at) {
  const __m512i bytes = _mm512_loadu_si512(copy.from.data() + at);
  if constexpr (writing == Writing::kCached) _mm512_storeu_si512(copy.to + at, bytes);
  if constexpr (writing == Writing::kPastCaches) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(copy.to + at), bytes);
  }
  return bytes;
}

STEMMA_TARGET_512 [[gnu::always_inline]] inline __m512i fold_512(__m512i sum, __m512i factors,
                                                                 __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(sum, factors, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(sum, factors, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // the exclusive or of all three
}

template <Writing writing>
STEMMA_TARGET_512 std::uint32_t run_512(const CrcCopy& copy, std::uint32_t state) {
  constexpr std::size_t kStepBytes = 4 * kLineBytes;
  if (copy.from.size() < kStepBytes) return finish_words(copy, 0, writing, state);
  const __m512i factors = factors_512<kStepBytes>();
  ask_ahead<4>(copy, 0);
  __m512i a = take_512<writing>(copy, 0);
  __m512i b = take_512<writing>(copy, kLineBytes);
  __m512i c = take_512<writing>(copy, 2 * kLineBytes);
  __m512i d = take_512<writing>(copy, 3 * kLineBytes);
  a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  std::size_t at = kStepBytes;
  for (; at + kStepBytes <= copy.from.size(); at += kStepBytes) {
    ask_ahead<4>(copy, at);
    a = fold_512(a, factors, take_512<writing>(copy, at));
    b = fold_512(b, factors, take_512<writing>(copy, at + kLineBytes));
    c = fold_512(c, factors, take_512<writing>(copy, at + 2 * kLineBytes));
    d = fold_512(d, factors, take_512<writing>(copy, at + 3 * kLineBytes));
  }
  const __m512i nearer = factors_512<kLineBytes>();
  const __m512i all = fold_512(fold_512(fold_512(a, nearer, b), nearer, c), nearer, d);
  __m128i registers[4];
  _mm512_storeu_si512(registers, all);
  return finish_words(copy, at, writing, state_of(registers, 4));
}

// --- 256 bits

template <std::size_t bytes>
STEMMA_TARGET_256 [[gnu::always_inline]] inline __m256i factors_256() {
  constexpr std::int64_t kHigh = high_factor(bytes);
  constexpr std::int64_t kLow = low_factor(bytes);
  return _mm256_set_epi64x(kHigh, kLow, kHigh, kLow);
}

template <Writing writing>
STEMMA_TARGET_256 [[gnu::always_inline]] inline __m256i take_256(const CrcCopy& copy,
                                                                 std::size_t at) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(copy.from.data() + at));
  if constexpr (writing == Writing::kCached) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(copy.to + at), bytes);
  }
  if constexpr (writing == Writing::kPastCaches) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(copy.to + at), bytes);
  }
  return bytes;
}

STEMMA_TARGET_256 [[gnu::always_inline]] inline __m256i fold_256(__m256i sum, __m256i factors,
                                                                 __m256i next) {
  const __m256i low = _mm256_clmulepi64_epi128(sum, factors, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(sum, factors, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

template <Writing writing>
STEMMA_TARGET_256 std::uint32_t run_256(const CrcCopy& copy, std::uint32_t state) {
  constexpr std::size_t kPartBytes = 32;
  constexpr std::size_t kStepBytes = 4 * kPartBytes;
  if (copy.from.size() < kStepBytes) return finish_words(copy, 0, writing, state);
  const __m256i factors = factors_256<kStepBytes>();
  ask_ahead<2>(copy, 0);
  __m256i a = take_256<writing>(copy, 0);
  __m256i b = take_256<writing>(copy, kPartBytes);
  __m256i c = take_256<writing>(copy, 2 * kPartBytes);
  __m256i d = take_256<writing>(copy, 3 * kPartBytes);
  a = _mm256_xor_si256(a, _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))));
  std::size_t at = kStepBytes;
  for (; at + kStepBytes <= copy.from.size(); at += kStepBytes) {
    ask_ahead<2>(copy, at);
    a = fold_256(a, factors, take_256<writing>(copy, at));
    b = fold_256(b, factors, take_256<writing>(copy, at + kPartBytes));
    c = fold_256(c, factors, take_256<writing>(copy, at + 2 * kPartBytes));
    d = fold_256(d, factors, take_256<writing>(copy, at + 3 * kPartBytes));
  }
  const __m256i nearer = factors_256<kPartBytes>();
  const __m256i all = fold_256(fold_256(fold_256(a, nearer, b), nearer, c), nearer, d);
  const __m128i registers[2] = {_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)};
  return finish_words(copy, at, writing, state_of(registers, 2));
}

// --- 64 bits, three streams

constexpr std::size_t kStreamBytes = 1344;  // three of them are a little less than 4 KiB
constexpr std::size_t kStreamStepBytes = 3 * kStreamBytes;

// The state after kStreamStepBytes.
STEMMA_TARGET_SSE std::uint32_t sum_streams(const std::byte* bytes, std::uint32_t state) {
  std::uint64_t a = state;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
  for (std::size_t at = 0; at < kStreamBytes; at += 8) {
    std::array<std::uint64_t, 3> words;
    for (std::size_t i = 0; i < 3; ++i) {
      std::memcpy(&words[i], bytes + i * kStreamBytes + at, 8);
    }
    a = _mm_crc32_u64(a, words[0]);
    b = _mm_crc32_u64(b, words[1]);
    c = _mm_crc32_u64(c, words[2]);
  }
  constexpr std::int64_t kNear = crc32c_power(8 * kStreamBytes - 33);
  constexpr std::int64_t kFar = crc32c_power(8 * 2 * kStreamBytes - 33);
  const __m128i factors = _mm_set_epi64x(kNear, kFar);
  const __m128i sums = _mm_set_epi64x(static_cast<std::int64_t>(b), static_cast<std::int64_t>(a));
  const __m128i far = _mm_clmulepi64_si128(sums, factors, 0x00);
  const __m128i near = _mm_clmulepi64_si128(sums, factors, 0x11);
  const auto both = static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_xor_si128(far, near)));
  return static_cast<std::uint32_t>(_mm_crc32_u64(0, both) ^ c);
}

void stream_lines(const std::byte* from, std::size_t bytes, std::byte* to) {
  for (std::size_t at = 0; at < bytes; at += 16) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), part);
  }
}

template <Writing writing>
std::uint32_t run_streams(const CrcCopy& copy, std::uint32_t state) {
  std::size_t at = 0;
  for (; at + kStreamStepBytes <= copy.from.size(); at += kStreamStepBytes) {
    const std::byte* const from = copy.from.data() + at;
    if constexpr (writing == Writing::kNone) {
      state = sum_streams(from, state);
    } else if constexpr (writing == Writing::kCached) {
      std::memcpy(copy.to + at, from, kStreamStepBytes);
      state = sum_streams(copy.to + at, state);
    } else {
      // What was written past the caches is not read back: the sum is of a copy beside it.
      alignas(kLineBytes) std::array<std::byte, kStreamStepBytes> near;
      std::memcpy(near.data(), from, kStreamStepBytes);
      state = sum_streams(near.data(), state);
      stream_lines(near.data(), kStreamStepBytes, copy.to + at);
    }
  }
  return finish_words(copy, at, writing, state);
}

// --- which of them works

bool has_sse() {
  return __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0;
}

bool has_256() {
  return has_sse() && __builtin_cpu_supports("avx2") != 0 &&
         __builtin_cpu_supports("vpclmulqdq") != 0;
}

bool has_512() {
  return has_256() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}

using Run = std::uint32_t (*)(const CrcCopy& copy, std::uint32_t state);

template <Run run>
std::uint32_t only_sum(std::span<const std::byte> bytes, std::uint32_t state) {
  return run({bytes, nullptr}, state);
}

constexpr std::array<Crc32cKernel, 3> kKernels = {{
    {"fold_512", has_512, only_sum<run_512<Writing::kNone>>, run_512<Writing::kCached>,
     run_512<Writing::kPastCaches>},
    {"fold_256", has_256, only_sum<run_256<Writing::kNone>>, run_256<Writing::kCached>,
     run_256<Writing::kPastCaches>},
    {"sse_streams", has_sse, only_sum<run_streams<Writing::kNone>>, run_streams<Writing::kCached>,
     run_streams<Writing::kPastCaches>},
}};

}  // namespace

std::span<const Crc32cKernel> crc32c_x86_kernels() {
  return kKernels;
}

#else

std::span<const Crc32cKernel> crc32c_x86_kernels() {
  return {};
}

#endif

}  // namespace stemma
