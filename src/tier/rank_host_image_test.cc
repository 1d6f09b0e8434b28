// A rank's files of host memory by themselves: what could not be written is not said to be, of
// whichever layers. What ranks do together is in cache/ranked_host_image_test.
#include "tier/rank_host_image.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "stemma/log.h"
#include "tier/page_frame_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kHostPages = 4;

// Three pages fill what is written at once.
PageFormat wide_format() {
  PageFormat format = small_format();
  format.layer_bytes = 1 << 20;
  return format;
}

class RankHostImageTest : public ::testing::Test {
 protected:
  RankHostImageTest() {
    set_log_sink([](LogLevel, std::string_view) {});
    for (std::int64_t page = 0; page < kHostPages; ++page) {
      const TestPage source(wide_format(), 1, page);
      const auto frame = read_frame(source.frame());
      const PageId id(static_cast<std::int32_t>(page));
      EXPECT_EQ(pool_->write_image(id, source.key(), frame->body, frame->layer_sums),
                MoveVerdict::kDone);
      pages_.keys.push_back(source.key());
      pages_.from.push_back(id);
      const auto tokens = source.identity().tokens;
      pages_.tokens.insert(pages_.tokens.end(), tokens.begin(), tokens.end());
    }
  }
  ~RankHostImageTest() override { set_log_sink({}); }

  HostImage image(const std::string& name) {
    return {*pool_, directory_.file(name), {wide_format(), {{7}}}};
  }
  std::optional<std::int64_t> tell(const HostImages& images, HostFileTask task) {
    return rank_.told(images, task, pages_);
  }

  TempDirectory directory_;
  ThreadPool threads_{1};
  std::unique_ptr<HostPool> pool_ = HostPool::create({.pages = kHostPages,
                                                      .layers = wide_format().layers,
                                                      .layer_bytes = wide_format().layer_bytes},
                                                     threads_)
                                        .value();
  Transfer pages_;
  RankHostImage rank_;
};

// As where the disk is full for a while.
TEST_F(RankHostImageTest, AFileOfWhichAPartCouldNotBeWrittenIsNotWritten) {
  const HostImage full = image("host");
  const HostImages images = {&full, nullptr};
  tell(images, HostFileTask::kBeginSave);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {1 << 20, before.rlim_max};
  auto* const terminates = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  tell(images, HostFileTask::kSave);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, terminates);
  EXPECT_EQ(tell(images, HostFileTask::kEndSave), 0);
  EXPECT_FALSE(std::filesystem::exists(full.path));
  tell(images, HostFileTask::kBeginSave);
  tell(images, HostFileTask::kSave);
  EXPECT_EQ(tell(images, HostFileTask::kEndSave), 1) << "now there is room";
  EXPECT_EQ(std::filesystem::file_size(full.path), 4096 + 4 * frame_bytes(wide_format()));
}

TEST_F(RankHostImageTest, BothFilesAreWrittenOrItIsAnError) {
  const HostImage right = image("host");
  const HostImage other = image("host.windows");
  const HostImage wrong = image("none/host");
  for (const HostImages& images : {HostImages{&right, &wrong}, HostImages{&wrong, &right}}) {
    tell(images, HostFileTask::kBeginSave);
    EXPECT_EQ(tell(images, HostFileTask::kEndSave), 0);
  }
  const HostImages images = {&right, &other};
  tell(images, HostFileTask::kBeginSave);
  EXPECT_EQ(tell(images, HostFileTask::kEndSave), 1);
  EXPECT_EQ(tell(images, HostFileTask::kRemove), 1);
  EXPECT_FALSE(std::filesystem::exists(other.path));
}

}  // namespace
}  // namespace stemma
