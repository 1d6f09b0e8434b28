// Files of host memory over ranks that cannot be reached any more: nothing is said to be there, to
// be written, or to be gone. What ranks do that can be is in cache/ranked_host_image_test.
#include "tier/leading_host_image.h"

#include <gtest/gtest.h>

#include "stemma/log.h"

namespace stemma {
namespace {

class UnreachableRanks final : public RankGroup {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  Status all_gather(std::span<const std::byte>, std::span<std::byte>) override { return gone(); }
  Status gather(std::span<const std::byte>, std::span<std::byte>) override { return gone(); }
  Status broadcast(std::span<std::byte>) override { return gone(); }

 private:
  static Status gone() { return Error{ErrorCode::kInternal, "ranks: gone"}; }
};

TEST(LeadingHostImage, WhereRanksAreLostNothingIsThereWrittenOrGone) {
  set_log_sink([](LogLevel, std::string_view) {});
  UnreachableRanks ranks;
  LeadingHostImage files(ranks);
  Transfer pages;
  pages.keys.resize(3);
  EXPECT_FALSE(files.begin_load());
  EXPECT_EQ(files.load(pages), 0);
  files.begin_save();
  files.save(pages);
  EXPECT_FALSE(files.end_save().ok());
  EXPECT_FALSE(files.remove().ok());
  set_log_sink({});
}

}  // namespace
}  // namespace stemma
