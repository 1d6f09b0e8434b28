// Two pieces in turns: what is written for one copy is not written over before it is done.
#include "device/cuda_fixture.h"
#include "device/cuda_pinned_turns.h"

namespace stemma {
namespace {

class PinnedTurnsTest : public CudaFixture {};

TEST_F(PinnedTurnsTest, EveryCopyTakesWhatWasWrittenForIt) {
  constexpr std::size_t kCopies = 20;
  const CudaMemory memory = allocate<std::uint32_t>(kCopies);
  auto turns = PinnedTurns::create(device(), sizeof(std::uint32_t));
  ASSERT_TRUE(turns.ok());
  for (std::uint32_t i = 0; i < kCopies; ++i) {
    const auto piece = turns->begin();
    ASSERT_TRUE(piece.ok());
    std::memcpy(*piece, &i, sizeof i);
    ASSERT_TRUE(turns->copy_in(stream(), memory.as<std::uint32_t>() + i, sizeof i).ok());
  }
  const auto found = download<std::uint32_t>(memory.bytes(), kCopies);
  for (std::uint32_t i = 0; i < kCopies; ++i) EXPECT_EQ(found[i], i);
}

TEST_F(PinnedTurnsTest, ItsEndWaitsForTheCopies) {
  const CudaMemory memory = allocate<std::uint32_t>(1);
  const std::uint32_t value = 7;
  {
    auto turns = PinnedTurns::create(device(), sizeof value);
    ASSERT_TRUE(turns.ok());
    std::memcpy(*turns->begin(), &value, sizeof value);
    ASSERT_TRUE(turns->copy_in(stream(), memory.bytes(), sizeof value).ok());
  }
  EXPECT_EQ(download<std::uint32_t>(memory.bytes(), 1)[0], value);
}

#ifdef STEMMA_SIMT
// The emulated GPU ends the program where pinned memory goes away under a copy.
TEST_F(PinnedTurnsTest, ItsEndWaitsForACopyBehindWhichNoEventCouldBeRecorded) {
  const CudaMemory memory = allocate<std::uint32_t>(1);
  const std::uint32_t value = 7;
  {
    auto turns = PinnedTurns::create(device(), sizeof value);
    ASSERT_TRUE(turns.ok());
    std::memcpy(*turns->begin(), &value, sizeof value);
    machine().fail_queueing(1, 1);
    EXPECT_EQ(turns->copy_in(stream(), memory.bytes(), sizeof value).error().code,
              ErrorCode::kInternal);
  }
  EXPECT_EQ(download<std::uint32_t>(memory.bytes(), 1)[0], value);
}
#endif

}  // namespace
}  // namespace stemma
