#include "device/openblas.h"

#include <dlfcn.h>

#include <cstdlib>

#include "device/simd_target.h"

namespace stemma {

namespace {

constexpr char kLibrary[] = "libopenblas.so.0";
constexpr int kRowMajor = 101;
constexpr int kNoTranspose = 111;
constexpr int kTranspose = 112;

}  // namespace

std::optional<OpenBlas> OpenBlas::try_load() {
  // Its threads wait in a loop for 2^this cycles after a product: long enough for the next product
  // of a sample, and gone when ours begin.
  setenv("OPENBLAS_THREAD_TIMEOUT", "20", 0);
  if (simd_target_name() == "AVX2") setenv("OPENBLAS_CORETYPE", "Haswell", 0);
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  const auto sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
  const auto set_threads = reinterpret_cast<SetThreads>(dlsym(library, "openblas_set_num_threads"));
  if (sgemm == nullptr || set_threads == nullptr) return std::nullopt;
  return OpenBlas(sgemm, set_threads);
}

void OpenBlas::set_threads(int threads) const {
  set_threads_(threads);
}

void OpenBlas::multiply(const ConstMatrixView& a, const float* w, const MatrixView& c) const {
  const auto k = static_cast<int>(a.columns);
  sgemm_(kRowMajor, kNoTranspose, kTranspose, static_cast<int>(a.rows), static_cast<int>(c.columns),
         k, 1.0f, a.values, static_cast<int>(a.row_stride), w, k, 0.0f, c.values,
         static_cast<int>(c.row_stride));
}

}  // namespace stemma
