#include "device/cuda_dialect.h"
#include "device/dialect_cuda_test.h"

namespace stemma {

namespace {

STEMMA_KERNEL places(std::int32_t* out) {
  const std::int64_t place = team_x() * team_threads() + thread_index();
  out[place] = static_cast<std::int32_t>(1000 * team_x() + thread_index());
}

STEMMA_KERNEL team_sums(const float* in, float* out) {
  auto* const scratch = reinterpret_cast<float*>(shared_memory());
  const float value = in[thread_index()];
  out[thread_index()] = team_sum(value, scratch);
  team_barrier();
  out[team_threads() + thread_index()] = team_max(value, scratch);
}

STEMMA_KERNEL reversal(const float* in, float* out) {
  auto* const values = reinterpret_cast<float*>(shared_memory());
  values[thread_index()] = in[thread_index()];
  team_barrier();
  out[thread_index()] = values[team_threads() - 1 - thread_index()];
}

// a and b lie in shared memory as they came, [16][16] and [16][8].
template <typename T>
STEMMA_KERNEL product(const T* a, const T* b, const float* c, float* d) {
  auto* const a_rows = reinterpret_cast<T*>(shared_memory());
  T* const b_rows = a_rows + 16 * 16;
  const int lane = lane_index();
  copy_words_later(a_rows + lane * 8, a + lane * 8, true);
  if (lane < 16) copy_words_later(b_rows + lane * 8, b + lane * 8, true);
  commit_copies();
  wait_copies<0>();
  team_barrier();
  std::uint32_t left[4];
  std::uint32_t right_four[4];
  load_matrices(left, a_rows + lane % 16 * 16 + lane / 16 * 8);
  load_matrices_transposed(right_four, b_rows + lane % 16 * 8);
  const std::uint32_t right[2] = {right_four[0], right_four[1]};
  const int row = lane / 4;
  const int column = lane % 4 * 2;
  float sums[4] = {c[row * 8 + column], c[row * 8 + column + 1], c[(row + 8) * 8 + column],
                   c[(row + 8) * 8 + column + 1]};
  multiply_add<T>(sums, left, right);
  for (int i = 0; i < 4; ++i) d[(row + i / 2 * 8) * 8 + column + i % 2] = sums[i];
}

template <typename T>
STEMMA_KERNEL narrowing(std::int64_t count, const float* in, T* out, float* back) {
  const std::int64_t i = team_x() * team_threads() + thread_index();
  if (i >= count) return;
  out[i] = narrow<T>(in[i]);
  back[i] = widen(out[i]);
}

template <typename Code>
STEMMA_KERNEL narrowing_fours(std::int64_t words, const float* in, std::uint32_t* out,
                              float* back) {
  const std::int64_t i = team_x() * team_threads() + thread_index();
  if (i >= words) return;
  const float* const from = in + 4 * i;
  out[i] = narrow_codes<Code>({from[0], from[1], from[2], from[3]});
  std::uint32_t halves[2];
  codes_as_halves<Code>(out[i], halves);
  for (int j = 0; j < 4; ++j) {
    const auto bits = static_cast<std::uint16_t>(halves[j / 2] >> (16 * (j % 2)));
    back[4 * i + j] = widen(Float16{bits});
  }
}

template <typename Code>
STEMMA_KERNEL halves_of_codes(std::int64_t words, const std::uint32_t* in, std::uint32_t* halves,
                              std::uint32_t* swapped) {
  const std::int64_t i = team_x() * team_threads() + thread_index();
  if (i >= words) return;
  std::uint32_t two[2];
  codes_as_halves<Code>(in[i], two);
  halves[2 * i] = two[0];
  halves[2 * i + 1] = two[1];
  swapped[i] = swap_middle_bytes(in[i]);
}

STEMMA_KERNEL logarithms(std::int64_t count, const float* in, float* out) {
  for (std::int64_t i = thread_index(); i < count; i += team_threads()) out[i] = log2_fast(in[i]);
}

STEMMA_KERNEL tickets_of(std::uint32_t* tickets) {
  auto* const counter = reinterpret_cast<std::uint32_t*>(shared_memory());
  if (thread_index() == 0) *counter = 0;
  team_barrier();
  tickets[thread_index()] = add_shared(counter, static_cast<std::uint32_t>(thread_index() + 1));
  team_barrier();
  if (thread_index() == 0) tickets[team_threads()] = *counter;
}

STEMMA_KERNEL ranks(const float* in, std::int32_t* places) {
  const bool above = in[thread_index()] > 0;
  const std::uint32_t before = lanes_where(above) & ((std::uint32_t{1} << lane_index()) - 1);
  places[thread_index()] = above ? ones_in(before) : -1;
}

STEMMA_KERNEL exponentials(std::int64_t count, const double* in, double* out) {
  for (std::int64_t i = thread_index(); i < count; i += team_threads()) out[i] = exp_wide(in[i]);
}

STEMMA_KERNEL step(bool passes, const std::uint32_t* in, std::uint32_t* out) {
  await_turn();
  if (passes) pass_turn();
  const std::int64_t from = (teams_x() - 1 - team_x()) * team_threads() + thread_index();
  out[team_x() * team_threads() + thread_index()] = in[from] + 1;
}

STEMMA_KERNEL hasty_thread() {
  if (thread_index() != 5) await_turn();
}

STEMMA_KERNEL lost_thread() {
  if (thread_index() != 5) team_barrier();
}

STEMMA_KERNEL parted_warp(float* out) {
  const float value = static_cast<float>(thread_index());
  if (thread_index() < 7) {
    out[thread_index()] = shuffle(value, 3);
  } else {
    out[thread_index()] = shuffle(value, 4);
  }
}

STEMMA_KERNEL overrun(std::int64_t count, float* out) {
  if (thread_index() == 0) out[count] = 1;
}

STEMMA_KERNEL overread(std::int64_t count, const float* in, float* out) {
  if (thread_index() == 0) *out = in[count];
}

STEMMA_KERNEL far_matrix(const float* rows, std::uint32_t* out) {
  std::uint32_t words[4];
  load_matrices(words, rows + lane_index() * 4);
  out[lane_index()] = words[0];
}

}  // namespace

Status launch_places(CudaStream& stream, std::int64_t teams, int threads, std::int32_t* out) {
  return launch("places", stream, {.teams_x = teams, .threads = threads}, places, out);
}

Status launch_team_sums(CudaStream& stream, int threads, const float* in, float* out) {
  return launch("team_sums", stream, {.threads = threads, .shared_bytes = 32 * sizeof(float)},
                team_sums, in, out);
}

Status launch_reversal(CudaStream& stream, int threads, const float* in, float* out) {
  const auto shared_bytes = static_cast<std::size_t>(threads) * sizeof(float);
  return launch("reversal", stream, {.threads = threads, .shared_bytes = shared_bytes}, reversal,
                in, out);
}

template <typename T>
Status launch_product(CudaStream& stream, const T* a, const T* b, const float* c, float* d) {
  return launch("product", stream, {.shared_bytes = 16 * 24 * sizeof(T)}, product<T>, a, b, c, d);
}
template Status launch_product(CudaStream&, const BFloat16*, const BFloat16*, const float*, float*);
template Status launch_product(CudaStream&, const Float16*, const Float16*, const float*, float*);

template <typename T>
Status launch_narrowing(CudaStream& stream, std::int64_t count, const float* in, T* out,
                        float* back) {
  return launch("narrowing", stream, {.teams_x = (count + 127) / 128, .threads = 128}, narrowing<T>,
                count, in, out, back);
}
template Status launch_narrowing(CudaStream&, std::int64_t, const float*, BFloat16*, float*);
template Status launch_narrowing(CudaStream&, std::int64_t, const float*, Float16*, float*);
template Status launch_narrowing(CudaStream&, std::int64_t, const float*, Float8E4M3*, float*);
template Status launch_narrowing(CudaStream&, std::int64_t, const float*, Float8E5M2*, float*);
template Status launch_narrowing(CudaStream&, std::int64_t, const float*, std::int8_t*, float*);

template <typename Code>
Status launch_narrowing_fours(CudaStream& stream, std::int64_t words, const float* in,
                              std::uint32_t* out, float* back) {
  return launch("narrowing_fours", stream, {.teams_x = (words + 127) / 128, .threads = 128},
                narrowing_fours<Code>, words, in, out, back);
}
template Status launch_narrowing_fours<Float8E4M3>(CudaStream&, std::int64_t, const float*,
                                                   std::uint32_t*, float*);
template Status launch_narrowing_fours<Float8E5M2>(CudaStream&, std::int64_t, const float*,
                                                   std::uint32_t*, float*);
template Status launch_narrowing_fours<std::int8_t>(CudaStream&, std::int64_t, const float*,
                                                    std::uint32_t*, float*);

template <typename Code>
Status launch_halves(CudaStream& stream, std::int64_t words, const std::uint32_t* in,
                     std::uint32_t* halves, std::uint32_t* swapped) {
  return launch("halves_of_codes", stream,
                {.teams_x = (words + kWarpThreads - 1) / kWarpThreads, .threads = kWarpThreads},
                halves_of_codes<Code>, words, in, halves, swapped);
}
template Status launch_halves<Float8E4M3>(CudaStream&, std::int64_t, const std::uint32_t*,
                                          std::uint32_t*, std::uint32_t*);
template Status launch_halves<Float8E5M2>(CudaStream&, std::int64_t, const std::uint32_t*,
                                          std::uint32_t*, std::uint32_t*);
template Status launch_halves<std::int8_t>(CudaStream&, std::int64_t, const std::uint32_t*,
                                           std::uint32_t*, std::uint32_t*);

Status launch_logarithms(CudaStream& stream, std::int64_t count, const float* in, float* out) {
  return launch("logarithms", stream, {}, logarithms, count, in, out);
}

Status launch_tickets(CudaStream& stream, int threads, std::uint32_t* tickets) {
  return launch("tickets", stream, {.threads = threads, .shared_bytes = sizeof(std::uint32_t)},
                tickets_of, tickets);
}

Status launch_ranks(CudaStream& stream, int threads, const float* in, std::int32_t* places) {
  return launch("ranks", stream, {.threads = threads}, ranks, in, places);
}

Status launch_exponentials(CudaStream& stream, std::int64_t count, const double* in, double* out) {
  return launch("exponentials", stream, {}, exponentials, count, in, out);
}

Status launch_steps(CudaStream& stream, std::int64_t launch_number, std::int64_t teams,
                    const std::uint32_t* in, std::uint32_t* out) {
  return launch("step", stream, {.teams_x = teams, .early = true}, step, launch_number % 2 == 0, in,
                out);
}

Status load_steps() {
  return load_kernel(step);
}

Status launch_hasty_thread(CudaStream& stream) {
  return launch("hasty_thread", stream, {.early = true}, hasty_thread);
}

Status launch_lost_thread(CudaStream& stream) {
  return launch("lost_thread", stream, {.threads = 64}, lost_thread);
}

Status launch_parted_warp(CudaStream& stream, float* out) {
  return launch("parted_warp", stream, {}, parted_warp, out);
}

Status launch_overrun(CudaStream& stream, std::int64_t count, float* out) {
  return launch("overrun", stream, {}, overrun, count, out);
}

Status launch_overread(CudaStream& stream, std::int64_t count, const float* in, float* out) {
  return launch("overread", stream, {}, overread, count, in, out);
}

Status launch_far_matrix(CudaStream& stream, const float* rows, std::uint32_t* out) {
  return launch("far_matrix", stream, {.shared_bytes = 16}, far_matrix, rows, out);
}

}  // namespace stemma
