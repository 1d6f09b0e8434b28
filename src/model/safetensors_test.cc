// Safetensors: a good header in any key order, and one named error for each way in which a header
// can lie.
#include "model/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

// The bytes of a file with this header and `data_bytes` zeros after it.
std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::byte>(header.size() >> (8 * i));
  }
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

Result<SafetensorsHeader> parse(const std::vector<std::byte>& bytes) {
  return parse_safetensors_header(bytes, static_cast<std::int64_t>(bytes.size()), "m.safetensors");
}

std::string error_of(const std::vector<std::byte>& bytes) {
  const auto header = parse(bytes);
  EXPECT_FALSE(header.ok());
  return header.ok() ? "" : to_string(header.error());
}

TEST(Safetensors, TensorsComeInFileOrderWithOffsetsFromTheStart) {
  const std::string json = R"({"__metadata__":{"format":"pt"},
    "b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
    "a":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]},
    "s":{"dtype":"I64","shape":[0],"data_offsets":[24,24]}})";
  const auto header = parse(file_of(json, 34));
  ASSERT_TRUE(header.ok()) << to_string(header.error());
  const std::int64_t begin = 8 + static_cast<std::int64_t>(json.size());
  EXPECT_EQ(header->header_bytes, begin);
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].name, "b");
  EXPECT_EQ(header->tensors[0].offset_bytes, begin);
  EXPECT_EQ(header->tensors[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(header->tensors[0].weight_type(), WeightType::kF32);
  EXPECT_EQ(header->tensors[1].name, "s");
  EXPECT_EQ(header->tensors[1].weight_type(), std::nullopt);
  EXPECT_EQ(header->tensors[2].offset_bytes, begin + 24);
  EXPECT_EQ(header->tensors[2].size_bytes, 10);
  EXPECT_EQ(header->tensors[2].weight_type(), WeightType::kBf16);
}

// Whoever wants such a tensor refuses it by its dtype.
TEST(Safetensors, AnUnknownDtypeIsOneThatWeightsCannotBe) {
  const auto header =
      parse(file_of(R"({"odd":{"dtype":"F6_E2M3\n","shape":[4],"data_offsets":[0,3]},
      "w":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}})",
                    11));
  ASSERT_TRUE(header.ok()) << to_string(header.error());
  EXPECT_EQ(header->tensors[0].dtype, "F6_E2M3?");
  EXPECT_EQ(header->tensors[0].size_bytes, 3);
  EXPECT_EQ(header->tensors[0].weight_type(), std::nullopt);
  EXPECT_EQ(header->tensors[1].weight_type(), WeightType::kF32) << "wherever it begins";
}

TEST(Safetensors, LengthsThatDoNotFitTheFile) {
  EXPECT_EQ(error_of({}), "corrupt: m.safetensors: too short for a safetensors file (0 bytes)");
  EXPECT_EQ(error_of(std::vector<std::byte>(7)),
            "corrupt: m.safetensors: too short for a safetensors file (7 bytes)");
  std::vector<std::byte> bytes = file_of("{}", 0);
  bytes[0] = std::byte{3};
  EXPECT_EQ(error_of(bytes),
            "corrupt: m.safetensors: header length 3 exceeds the file's 10 bytes (truncated?)");
  bytes.assign(16, std::byte{0xFF});
  EXPECT_NE(error_of(bytes).find("header length 18446744073709551615 exceeds"), std::string::npos);
  bytes = file_of("{}", 0);
  bytes[3] = std::byte{2};  // 32 MiB
  const auto large = parse_safetensors_header(bytes, std::int64_t{1} << 40, "m");
  EXPECT_EQ(large.error().code, ErrorCode::kTooLarge);
  bytes[3] = std::byte{0};
  bytes[1] = std::byte{1};
  const auto cut = parse_safetensors_header(bytes, std::int64_t{1} << 40, "m");
  EXPECT_EQ(to_string(cut.error()), "corrupt: m: header is cut off at byte 10");
}

TEST(Safetensors, EachLieIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(7)", "tensor 'w': must be an object"},
      {R"({"shape":[4],"data_offsets":[0,16]})", "tensor 'w': dtype must be a string"},
      {R"({"dtype":"F32","shape":4,"data_offsets":[0,16]})", "shape must be a list"},
      {R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})", "shape must hold whole numbers"},
      {R"({"dtype":"F32","shape":[4.5],"data_offsets":[0,16]})", "shape must hold whole numbers"},
      {R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]})", "at most 8"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0,17]})",
       "data_offsets [0,17] lie outside the file's 16 bytes of data"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})", "data_offsets [16,0] lie outside"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0]})", "data_offsets [0] lie outside"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0,9223372036854775807]})",
       "data_offsets must hold whole numbers"},
      {R"({"dtype":"F32","shape":[5],"data_offsets":[0,16]})",
       "shape [5] of F32 does not take the 16 bytes of data_offsets"},
      {R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]})",
       "does not take the 16 bytes"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":[4,16]})",
       "leaves a gap before it at offset 4"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})", "4 bytes after the last tensor"},
  };
  for (const auto& [entry, expected] : cases) {
    const std::string error = error_of(file_of(R"({"w":)" + entry + "}", 16));
    EXPECT_NE(error.find(expected), std::string::npos) << entry << " gave " << error;
  }
}

TEST(Safetensors, OverlapsAndRepeatedNames) {
  EXPECT_NE(error_of(file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},
                                 "b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                             16))
                .find("tensor 'b': overlaps the one before it at offset 8"),
            std::string::npos);
  EXPECT_NE(error_of(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                                 "a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                             16))
                .find("key 'a' appears twice"),
            std::string::npos);
}

TEST(Safetensors, AnyDamageIsAnErrorOrAHeaderNeverACrash) {
  const std::vector<std::byte> good = file_of(R"({"__metadata__":{"format":"pt"},
    "b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
    "a":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]}})",
                                              34);
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng random(kSeed);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = good;
    for (int change = 0; change < 1 + round % 3; ++change) {
      const auto at =
          static_cast<std::size_t>(random.below(static_cast<std::int64_t>(bytes.size())));
      bytes[at] = static_cast<std::byte>(random.below(256));
    }
    bytes.resize(static_cast<std::size_t>(random.below(static_cast<std::int64_t>(good.size()))) +
                 (round % 2 == 0 ? good.size() : 1));
    const auto header = parse(bytes);
    if (header.ok()) {
      for (const TensorEntry& tensor : header->tensors) {
        EXPECT_LE(tensor.offset_bytes + tensor.size_bytes, static_cast<std::int64_t>(bytes.size()));
      }
    }
  }
}

TEST(SafetensorsIndex, NamesTheFileOfEachTensor) {
  const auto index = parse_safetensors_index(
      R"({"metadata":{"total_size":9},"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})",
      "i.json");
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->size(), 2u);
  EXPECT_EQ(index->at("b"), "y.safetensors");
}

TEST(SafetensorsIndex, RefusesWhatIsNotAPlainFileName) {
  for (const char* name : {R"("../x")", R"("/etc/passwd")", R"("")", R"("..")", R"("a\u0000b")"}) {
    const auto index =
        parse_safetensors_index(std::string(R"({"weight_map":{"a":)") + name + "}}", "i.json");
    ASSERT_FALSE(index.ok()) << name;
    EXPECT_NE(index.error().detail.find("i.json: tensor 'a': "), std::string::npos);
  }
  EXPECT_EQ(parse_safetensors_index("{}", "i.json").error().detail,
            "i.json: weight_map: must be an object");
  EXPECT_EQ(parse_safetensors_index(R"({"weight_map":{"a":1}})", "i.json").error().detail,
            "i.json: tensor 'a': the file must be a string");
}

}  // namespace
}  // namespace stemma
