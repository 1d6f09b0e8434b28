// Products of warpgroups and barriers in shared memory: on a GPU of compute capability 9.0, and on
// the emulated one, which also ends a program that uses them wrongly.
#include "device/hopper_dialect_cuda_test.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

using testing::Each;

class HopperDialect : public CudaFixture {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    skip_without_warpgroups();
  }
};

std::vector<float> drawn(std::size_t count, std::uint64_t seed) {
  Prng prng(seed + static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(2 * prng.unit() - 1);
  return values;
}

template <typename T>
std::vector<T> narrowed(const std::vector<float>& values) {
  std::vector<T> out;
  for (const float value : values) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      out.push_back(to_bfloat16(value));
    } else {
      out.push_back(to_float16(value));
    }
  }
  return out;
}

struct GroupShape {
  LeftPlace left;
  RightLayout right;
  int columns;
  bool adds;
};

class HopperProducts : public HopperDialect, public testing::WithParamInterface<GroupShape> {
 protected:
  template <typename T>
  void check() {
    const GroupShape& shape = GetParam();
    const auto columns = static_cast<std::size_t>(shape.columns);
    constexpr std::size_t kRows = 64;
    constexpr std::size_t kDepth = kGroupDepth;
    const std::vector<T> a = narrowed<T>(drawn(kRows * kDepth, 1));
    const std::vector<T> b = narrowed<T>(drawn(columns * kDepth, 2));
    const std::vector<float> c = drawn(kRows * columns, 3);
    const CudaMemory on_a = upload(a);
    const CudaMemory on_b = upload(b);
    const CudaMemory on_c = upload(c);
    const CudaMemory d = allocate<float>(kRows * columns);
    ASSERT_TRUE(launch_group_product<T>(stream(), shape.left, shape.right, shape.columns,
                                        on_a.as<T>(), on_b.as<T>(),
                                        shape.adds ? on_c.as<float>() : nullptr, d.as<float>())
                    .ok());
    const auto got = download<float>(d.bytes(), kRows * columns);
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t column = 0; column < columns; ++column) {
        double sum = shape.adds ? c[row * columns + column] : 0;
        for (std::size_t k = 0; k < kDepth; ++k) {
          const T right =
              shape.right == RightLayout::kRows ? b[column * kDepth + k] : b[k * columns + column];
          sum += double{to_float(a[row * kDepth + k])} * to_float(right);
        }
        // Products are exact; each of 65 additions rounds a sum of up to 65, or cuts it off.
        ASSERT_NEAR(got[row * columns + column], sum, 65 * 65 * 0x1p-23) << row << ", " << column;
      }
    }
  }
};

TEST_P(HopperProducts, AreThoseOfTheMatrices) {
  check<BFloat16>();
  check<Float16>();
}

std::vector<GroupShape> group_shapes() {
  std::vector<GroupShape> shapes;
  for (const LeftPlace left : {LeftPlace::kRegisters, LeftPlace::kShared}) {
    for (const bool adds : {false, true}) {
      for (const int columns : {16, 64, 128}) {
        shapes.push_back({left, RightLayout::kRows, columns, adds});
        if (columns > 16) shapes.push_back({left, RightLayout::kColumns, columns, adds});
      }
    }
  }
  return shapes;
}

std::string name_of(const GroupShape& shape) {
  return std::string(shape.left == LeftPlace::kRegisters ? "registers" : "shared") +
         (shape.right == RightLayout::kRows ? "_by_rows_" : "_by_columns_") +
         std::to_string(shape.columns) + (shape.adds ? "_added" : "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, HopperProducts, testing::ValuesIn(group_shapes()),
                         [](const auto& instance) { return name_of(instance.param); });

TEST_F(HopperDialect, MatricesAreStoredAsTheyAreLoaded) {
  constexpr std::size_t kWords = 4 * 8 * 4;
  const CudaMemory out = allocate<std::uint32_t>(kWords);
  ASSERT_TRUE(launch_stored_matrices(stream(), out.as<std::uint32_t>()).ok());
  const auto got = download<std::uint32_t>(out.bytes(), kWords);
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::size_t matrix = i / 32;
    const std::size_t lane = i % 32;  // that has the word
    ASSERT_EQ(got[i], 4 * lane + matrix) << "word " << i % 4 << " of row " << i / 4 % 8;
  }
}

TEST_F(HopperDialect, BarriersHandPlacesOverPhaseByPhase) {
  constexpr int kThreads = 128;
  constexpr int kPhases = 9;
  const CudaMemory out = allocate<std::int32_t>(kThreads);
  ASSERT_TRUE(launch_handing_over(stream(), kThreads, kPhases, out.as<std::int32_t>()).ok());
  EXPECT_THAT(download<std::int32_t>(out.bytes(), kThreads), Each(kPhases * (kPhases + 1) / 2));
}

class HopperFaults : public HopperDialect {
 protected:
  Status run(GroupFault fault) {
    const CudaMemory words = upload(std::vector<std::uint32_t>(4));
    const CudaMemory out = allocate<float>(128);
    STEMMA_RETURN_IF_ERROR(launch_group_fault(stream(), fault, words.bytes(), out.as<float>()));
    return stream().synchronize();
  }
};

TEST_F(HopperFaults, AreNoneWhereAllIsDoneInOrder) {
  EXPECT_TRUE(run(GroupFault::kNone).ok());
}

#ifdef STEMMA_SIMT
TEST_F(HopperFaults, EndTheProgram) {
  const std::vector<std::pair<GroupFault, std::string>> faults = {
      {GroupFault::kWritesNotFenced, "written and not fenced"},
      {GroupFault::kCopiesFencedTooEarly, "written and not fenced"},
      {GroupFault::kRegistersNotFenced, "begin with a fence of registers"},
      {GroupFault::kSumsUsedTooEarly, "before their products are waited for"},
      {GroupFault::kSumsTouched, "sums of products on their way are touched"},
      {GroupFault::kOperandsTouched, "operands of products on their way are touched"},
      {GroupFault::kOverwritten, "written while products read it"},
      {GroupFault::kWarpMissing, "wait for each other"},
      {GroupFault::kMisaligned, "multiples of 1,024 bytes"},
      {GroupFault::kUnlikeMatrices, "all threads of a warpgroup ask for one product"},
      {GroupFault::kEndsTooEarly, "ends before its products"},
  };
  for (const auto& [fault, words] : faults) {
    EXPECT_DEATH(ignore_error(run(fault), "it does not come back"), words);
  }
}
#endif

}  // namespace
}  // namespace stemma
