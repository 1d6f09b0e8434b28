#include "device/emulated_gpu.h"

namespace stemma {

namespace {

class StartedMachine final : public EmulatedGpu {
 public:
  explicit StartedMachine(const simt::Machine::Options& options) : machine_(options) {}
  simt::Machine& machine() override { return machine_; }

 private:
  simt::Machine machine_;
};

}  // namespace

std::unique_ptr<EmulatedGpu> EmulatedGpu::start(const simt::Machine::Options& options) {
  return std::make_unique<StartedMachine>(options);
}

}  // namespace stemma
