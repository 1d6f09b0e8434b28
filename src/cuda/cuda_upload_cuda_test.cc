// CudaUpload: bytes arrive as they are, however many chunks they take, and numbers as f32.
#include "base/float16.h"
#include "cuda/cuda_upload.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

class CudaUploadTest : public CudaFixture {
 protected:
  ThreadPool& threads() { return threads_; }

 private:
  ThreadPool threads_{2};
};

TEST_F(CudaUploadTest, BytesOfSeveralChunksArriveAsTheyWere) {
  std::vector<std::uint32_t> words(5 * CudaUpload::kChunkBytes / 2 / sizeof(std::uint32_t) + 3);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i);
  const CudaMemory memory = allocate<std::uint32_t>(words.size());
  {
    auto upload = CudaUpload::open(device(), stream(), threads());
    ASSERT_TRUE(upload.ok());
    std::vector<std::uint32_t> source = words;
    ASSERT_TRUE(upload->write(memory.bytes(), std::as_bytes(std::span(source))).ok());
    source.assign(source.size(), 0);  // nobody reads it any more
  }
  EXPECT_EQ(download<std::uint32_t>(memory.bytes(), words.size()), words);
}

TEST_F(CudaUploadTest, NumbersBecomeF32AndMayHaveSomethingAdded) {
  const std::vector<Float16> halves = {to_float16(-0.5f), to_float16(3.0f), to_float16(6e-8f)};
  const CudaMemory memory = allocate<float>(3);
  auto upload = CudaUpload::open(device(), stream(), threads());
  ASSERT_TRUE(upload.ok());
  ASSERT_TRUE(upload
                  ->write_floats(memory.as<float>(), WeightType::kF16,
                                 std::as_bytes(std::span(halves)), 1.0f)
                  .ok());
  EXPECT_EQ(download<float>(memory.bytes(), 3),
            (std::vector<float>{0.5f, 4.0f, 1.0f + to_float(halves[2])}));
}

}  // namespace
}  // namespace stemma
