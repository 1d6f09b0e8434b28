// KvShape: extents are checked by name, heads are divided over ranks, names go both ways.
#include "stemma/kv_shape.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace stemma {
namespace {

constexpr KvShape kGood = {
    .layers = 2, .pages = 3, .page_size = 4, .heads = 5, .head_dim = 8, .dtype = DType::kBF16};

TEST(KvShape, CountsBytes) {
  EXPECT_EQ(kGood.slots(), 12);
  EXPECT_EQ(kGood.row_elements(), 40);
  EXPECT_EQ(kGood.page_bytes(), 2 * 2 * 4 * 40 * 2);
  EXPECT_EQ(kGood.total_bytes(), 3 * kGood.page_bytes());
  EXPECT_TRUE(validate(kGood).ok());
}

TEST(KvShape, LatentRowsAreOneHeadWhoseBeginIsV) {
  KvShape shape = {.layers = 2,
                   .pages = 3,
                   .page_size = 4,
                   .heads = 1,
                   .head_dim = 24,
                   .dtype = DType::kBF16,
                   .kind = KvKind::kMla,
                   .latent_dim = 16};
  EXPECT_TRUE(validate(shape).ok());
  EXPECT_EQ(shape.value_dim(), 16);
  EXPECT_EQ(shape.page_bytes(), 2 * 4 * 24 * 2);
  for (const std::int64_t wrong : {0, 24, -1}) {
    shape.latent_dim = wrong;
    EXPECT_THAT(validate(shape).error().detail, testing::HasSubstr("latent_dim must be in 1 ... "));
  }
  shape.latent_dim = 16;
  shape.heads = 2;
  EXPECT_THAT(validate(shape).error().detail, testing::HasSubstr("heads must be 1 for mla"));
  shape.kind = KvKind::kMha;
  EXPECT_THAT(validate(shape).error().detail, testing::HasSubstr("only mla has latent rows"));
}

TEST(KvShape, LabelsAreColumnsOfAHead) {
  KvShape shape = kGood;
  shape.head_dim = 32;
  shape.kind = KvKind::kDoubleSparse;
  shape.label_channels = 8;
  EXPECT_TRUE(validate(shape).ok());
  EXPECT_EQ(shape.page_bytes(), 2 * 4 * 5 * (32 + 32 + 8) * 2);
  for (const std::int64_t wrong : {0, -8, 4, 12, 32, 40}) {
    shape.label_channels = wrong;
    EXPECT_THAT(validate(shape).error().detail,
                testing::HasSubstr("label_channels must be a multiple of 8 below head_dim = 32"));
  }
  shape.kind = KvKind::kMha;
  EXPECT_THAT(validate(shape).error().detail, testing::HasSubstr("only double_sparse has labels"));
}

TEST(KvShape, CountsAScaleOfEachTokenAndHead) {
  KvShape shape = kGood;
  for (const DType dtype : {DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8}) {
    shape.dtype = dtype;
    EXPECT_TRUE(validate(shape).ok());
    EXPECT_EQ(shape.token_bytes(), 2 * 5 * (8 + 4));
    EXPECT_EQ(shape.page_bytes(), 2 * 4 * shape.token_bytes());
  }
  const KvShape latent = {.layers = 2,
                          .pages = 3,
                          .page_size = 4,
                          .heads = 1,
                          .head_dim = 24,
                          .dtype = DType::kInt8,
                          .kind = KvKind::kMla,
                          .latent_dim = 16};
  EXPECT_TRUE(validate(latent).ok());
  EXPECT_EQ(latent.page_bytes(), 2 * 4 * (24 + 4));
}

// What quantised KV is for.
TEST(KvShape, ScaledDtypesHoldMoreTokensInAsManyBytes) {
  for (const std::int64_t head_dim : {64, 128}) {
    KvShape shape = kGood;
    shape.head_dim = head_dim;
    const auto plain = static_cast<double>(shape.page_bytes());
    shape.dtype = DType::kInt8;
    EXPECT_GT(plain / static_cast<double>(shape.page_bytes()), head_dim == 64 ? 1.88 : 1.93);
  }
}

TEST(KvShape, LabelsOfScaledElementsAreRefusedByName) {
  KvShape shape = kGood;
  shape.head_dim = 32;
  shape.kind = KvKind::kDoubleSparse;
  shape.label_channels = 8;
  shape.dtype = DType::kFp8E5M2;
  EXPECT_THAT(validate(shape).error().detail,
              testing::HasSubstr("fp8_e5m2 is scaled, but double_sparse labels"));
}

TEST(KvShape, RefusesEachExtentBelowOneByName) {
  const std::vector<std::pair<std::string, std::int64_t KvShape::*>> extents = {
      {"layers", &KvShape::layers},
      {"pages", &KvShape::pages},
      {"page_size", &KvShape::page_size},
      {"heads", &KvShape::heads},
      {"head_dim", &KvShape::head_dim}};
  for (const auto& [name, extent] : extents) {
    for (const std::int64_t value : {0, -1}) {
      if (name == "layers" && value == 0) continue;
      KvShape shape = kGood;
      shape.*extent = value;
      const Status status = validate(shape);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(status.error().detail, testing::HasSubstr(name + " must be at least "));
    }
  }
}

TEST(KvShape, RefusesMoreBytesThanFit63Bits) {
  KvShape shape = kGood;
  shape.pages = std::int64_t{1} << 58;
  EXPECT_FALSE(validate(shape).ok());
  shape.pages = std::int64_t{1} << 50;
  EXPECT_TRUE(validate(shape).ok());
  const KvShape one_side = {.layers = 1,
                            .pages = std::int64_t{1} << 31,
                            .page_size = 1 << 14,
                            .heads = 1 << 8,
                            .head_dim = 1 << 8,
                            .dtype = DType::kF16};
  EXPECT_FALSE(validate(one_side).ok()) << "K would fit, and V";
}

TEST(KvShape, DividesHeadsOverRanks) {
  EXPECT_EQ(heads_per_rank(8, 1, false).value(), 8);
  EXPECT_EQ(heads_per_rank(8, 4, false).value(), 2);
  EXPECT_EQ(heads_per_rank(2, 8, true).value(), 1);
  for (const auto& [heads, ranks, replicate] :
       {std::tuple{8, 3, false}, {2, 8, false}, {3, 8, true}, {8, 0, false}, {0, 1, false}}) {
    const auto result = heads_per_rank(heads, ranks, replicate);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(KvShape, NamesGoBothWays) {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8}) {
    EXPECT_EQ(try_parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(try_parse_dtype("fp8"), DType::kFp8E4M3);
  for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
    EXPECT_EQ(try_parse_kv_layout(kv_layout_name(layout)), layout);
  }
  EXPECT_EQ(try_parse_dtype("float"), std::nullopt);
  EXPECT_EQ(try_parse_kv_layout(""), std::nullopt);
}

}  // namespace
}  // namespace stemma
