// CudaStepRows: kernels find a step's rows, filled up, where those of every step lie, and no more
// than these is copied.
#include "cuda/cuda_step_rows.h"
#include "device/cuda_fixture.h"
#include "model/one_request.h"

namespace stemma {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kRowsMax = 6;

class CudaStepRowsTest : public CudaFixture {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    if (IsSkipped()) return;
    auto rows = CudaStepRows::create(device(), stream(), kRowsMax);
    ASSERT_TRUE(rows.ok());
    rows_ = std::move(rows).value();
  }
  void TearDown() override {
    rows_ = {};
    CudaFixture::TearDown();
  }

  std::vector<std::int32_t> all_of(const std::int32_t* array) {
    return download<std::int32_t>(array, kRowsMax);
  }

  CudaStepRows rows_;
};

TEST_F(CudaStepRowsTest, RowsBehindThoseOfTheStepAreHarmless) {
  OneRequest request(16);
  ASSERT_TRUE(rows_.upload(stream(), request.next({7, 8, 9}), kRowsMax).ok());
  EXPECT_THAT(all_of(rows_.places().tokens), ElementsAre(7, 8, 9, 0, 0, 0));
  EXPECT_THAT(all_of(rows_.places().positions), ElementsAre(0, 1, 2, 0, 0, 0));
  EXPECT_THAT(all_of(rows_.places().slots), ElementsAre(0, 1, 2, -1, -1, -1));
  EXPECT_THAT(all_of(rows_.places().windowed_slots), testing::Each(-1));
  EXPECT_THAT(all_of(rows_.places().logit_rows), ElementsAre(2, 0, 0, 0, 0, 0));
  EXPECT_THAT(all_of(rows_.places().adapters), testing::Each(-1));
}

TEST_F(CudaStepRowsTest, RowsThatAStepDoesNotHaveAreNotCopied) {
  OneRequest request(16);
  ASSERT_TRUE(rows_.upload(stream(), request.next({1, 2, 3, 4, 5, 6}), 0).ok());
  ASSERT_TRUE(rows_.upload(stream(), request.next({7}), 2).ok());
  EXPECT_THAT(all_of(rows_.places().tokens), ElementsAre(7, 0, 3, 4, 5, 6));
  EXPECT_THAT(all_of(rows_.places().positions), ElementsAre(6, 0, 2, 3, 4, 5));
  EXPECT_THAT(all_of(rows_.places().slots), ElementsAre(6, -1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace stemma
