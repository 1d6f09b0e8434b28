// Reading on a GPU: every byte is read once, whatever their number and that of the teams.
#include "base/prng.h"
#include "device/cuda_fixture.h"
#include "device/read_cuda.h"

namespace stemma {
namespace {

class ReadCudaTest : public CudaFixture {};

TEST_F(ReadCudaTest, EveryByteIsReadOnce) {
  Prng random(3);
  for (const std::int64_t words : {0, 1, 512, 5000, 13001}) {
    std::vector<std::uint32_t> values(static_cast<std::size_t>(4 * words));
    std::uint32_t expected = 0;
    for (std::uint32_t& value : values) {
      value = static_cast<std::uint32_t>(random.below(std::int64_t{1} << 32));
      expected ^= value;
    }
    const CudaMemory memory = upload(values);
    const CudaMemory sums = allocate<std::uint32_t>(3);
    ASSERT_TRUE(read_bytes(stream(), {.bytes = memory.bytes(),
                                      .size_bytes = 16 * words,
                                      .sums = sums.as<std::uint32_t>(),
                                      .teams = 3})
                    .ok());
    const auto found = download<std::uint32_t>(sums.bytes(), 3);
    EXPECT_EQ(found[0] ^ found[1] ^ found[2], expected) << words;
  }
  EXPECT_EQ(read_bytes(stream(), {.size_bytes = 8, .teams = 1}).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace stemma
