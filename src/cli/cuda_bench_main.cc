// ROOM_cuda_bench [--json] [NAME..]: measures what the room has for a GPU, or what of it is named.
// Without one it says "not run".
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string_view>

#include "cli/bench_output.h"
#include "device/cuda_bench.h"

namespace {

int failed(const stemma::Error& error) {
  std::cerr << error.detail << std::endl;
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const bool json = argc > 1 && std::string_view(argv[1]) == "--json";
  const std::span names(argv + (json ? 2 : 1), argv + argc);
  if (stemma::CudaDevice::count() == 0) {
    std::cout << "not run: there is no GPU here" << std::endl;
    return EXIT_SUCCESS;
  }
  const auto device = stemma::CudaDevice::open(0);
  if (!device.ok()) return failed(device.error());
  const auto print = [&](const stemma::BenchLine& line) {
    json ? stemma::print_json(line) : stemma::print_text(line);
    std::cout.flush();
  };
  int status = EXIT_SUCCESS;
  for (const stemma::CudaBenchmark& bench : stemma::cuda_benches()) {
    if (!names.empty() && std::ranges::find(names, bench.name) == names.end()) continue;
    const stemma::Status done = bench.run(**device, print);
    if (!done.ok()) status = failed(done.error());
  }
  return status;
}
