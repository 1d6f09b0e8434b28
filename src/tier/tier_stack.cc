#include "tier/tier_stack.h"

#include <string>
#include <utility>

namespace stemma {

Result<std::unique_ptr<TierStack>> TierStack::open(const Options& options, KvPool& device,
                                                   std::vector<std::unique_ptr<PageStore>> stores,
                                                   ThreadPool& threads, const Clock& clock) {
  const PageFormat format = page_format(device, options.codec);
  const std::int64_t page_bytes = format.layers * format.layer_bytes;
  if (options.host_bytes < page_bytes) {
    return Error{ErrorCode::kInvalidArgument, "host_bytes must hold at least one page of " +
                                                  std::to_string(page_bytes) + " bytes (got " +
                                                  std::to_string(options.host_bytes) + ")"};
  }
  auto stack = std::make_unique<TierStack>(Key());
  HostPoolOptions host;
  host.pages = options.host_bytes / page_bytes;
  host.layers = device.shape().layers;
  host.layer_bytes = device.layer_bytes();
  host.layout = options.host_layout;
  host.codec = options.codec;
  host.device_shape = device.shape();
  STEMMA_ASSIGN_OR_RETURN(stack->host_, HostPool::create(host, threads));
  if (!options.host_file.empty()) {
    stack->image_.emplace(
        HostImage{*stack->host_, options.host_file, {.format = format, .model = {}}});
  }
  stack->stores_ = std::move(stores);
  for (const auto& store : stack->stores_) stack->store_list_.push_back(store.get());
  STEMMA_ASSIGN_OR_RETURN(
      stack->work_,
      PageWork::open(
          {.device = device, .host = *stack->host_, .stores = stack->store_list_, .clock = clock}));
  return stack;
}

std::unique_ptr<TransferLanes> TierStack::open_lanes(std::int64_t jobs_max) {
  return std::make_unique<ThreadLanes>(*work_, stores_.size(), jobs_max);
}

void TierStack::describe(const NamespaceDigest& digest, std::string_view description) {
  LowerTiers::describe(digest, description);
  if (image_.has_value()) image_->label.model = digest;
}

}  // namespace stemma
