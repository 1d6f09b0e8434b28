// HostPool with a codec: pages take less room and come back as the codec makes them, in every
// layout, whole or layer by layer; what is damaged or cannot be encoded is reported.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/float16.h"
#include "pool/host_pool.h"
#include "pool/page_codec.h"
#include "pool/pool_fixture.h"

namespace stemma {
namespace {

constexpr auto kAlways = [] { return true; };

KvShape shape() {
  return {
      .layers = 3, .pages = 4, .page_size = 5, .heads = 2, .head_dim = 15, .dtype = DType::kBF16};
}

// Numbers from -8 to 8 in every element: what was drawn is a finite bf16.
void fill_with_numbers(KvPool& pool, Prng& prng) {
  for (std::int64_t layer = 0; layer < pool.shape().layers; ++layer) {
    for (const auto& piece : pool.layer_pieces(layer)) {
      for (const PageId page : id_range(PageId(0), pool.shape().pages)) {
        for (std::int64_t i = 0; i < piece.bytes; i += 2) {
          const BFloat16 value =
              to_bfloat16(static_cast<float>(prng.below(1 << 16)) / 4096.0f - 8.0f);
          std::memcpy(piece.of(page) + i, &value, sizeof(value));
        }
      }
    }
  }
}

// The layers of a page as the codec makes them: the reference.
std::vector<std::byte> coded_and_back(const KvPool& pool, PageId page, PageCodec codec) {
  std::vector<std::byte> image;
  for (std::int64_t layer = 0; layer < pool.shape().layers; ++layer) {
    std::vector<std::byte> plain = expected_layer(pool, page, layer);
    std::vector<std::byte> coded(static_cast<std::size_t>(encoded_layer_bytes(codec, shape())));
    EXPECT_TRUE(try_encode_layer(codec, shape(), plain, coded));
    decode_layer(codec, shape(), coded, plain);
    image.insert(image.end(), plain.begin(), plain.end());
  }
  return image;
}

class CodedHostPool : public testing::TestWithParam<PageCodec> {
 protected:
  std::unique_ptr<HostPool> make_host(KvLayout layout) {
    ThreadPool threads(1);
    HostPoolOptions options;
    options.pages = 4;
    options.layers = shape().layers;
    options.layer_bytes = encoded_layer_bytes(PageCodec::kPlain, shape());
    options.layout = layout;
    options.codec = GetParam();
    options.device_shape = shape();
    return HostPool::create(options, threads).value();
  }
  static std::vector<PageMove> moves(std::int32_t shift) {
    std::vector<PageMove> moves;
    for (std::int32_t page = 0; page < 4; ++page) {
      PageKey key;
      key.bytes[0] = static_cast<std::uint8_t>(shift == 1 ? page : (page + 3) % 4);
      moves.push_back({PageId(page), PageId((page + shift) % 4), key});
    }
    return moves;
  }

  Prng prng_{20261122};
};

TEST_P(CodedHostPool, PagesComeBackAsTheCodecMakesThem) {
  for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
    const auto from = make_test_pool(shape(), KvLayout::kLayerFirst);
    const auto to = make_test_pool(shape(), KvLayout::kPageFirst);
    fill_with_numbers(*from, prng_);
    const auto host = make_host(layout);
    EXPECT_EQ(host->layer_bytes(), encoded_layer_bytes(GetParam(), shape()));
    EXPECT_LT(host->page_bytes(), from->shape().page_bytes());
    std::vector<PageMove> down = moves(1);
    host->backup(*from, down, kAlways);
    std::vector<PageMove> up = moves(3);
    for (std::int64_t layer = 0; layer < shape().layers; ++layer) {
      host->promote(*to, up, {layer, layer + 1}, kAlways);
    }
    for (std::size_t i = 0; i < up.size(); ++i) {
      EXPECT_EQ(up[i].verdict, MoveVerdict::kDone);
      const PageId source = PageId((up[i].from.value() + 3) % 4);
      EXPECT_EQ(expected_image(*to, up[i].to), coded_and_back(*from, source, GetParam()));
    }
  }
}

TEST_P(CodedHostPool, EveryFlippedBitIsReported) {
  const auto device = make_test_pool(shape(), KvLayout::kLayerFirst);
  fill_with_numbers(*device, prng_);
  const auto host = make_host(KvLayout::kPageFirst);
  std::vector<PageMove> down = moves(1);
  host->backup(*device, down, kAlways);
  const std::int64_t bits = 8 * host->layer_bytes();
  for (std::int64_t bit = 0; bit < bits; bit += 7) {
    std::byte& hit = host->layer_image(down[2].to, 1)[static_cast<std::size_t>(bit / 8)];
    hit ^= std::byte{1} << (bit % 8);
    std::vector<PageMove> up = moves(3);
    host->promote(*device, up, {0, shape().layers}, kAlways);
    for (const PageMove& move : up) {
      EXPECT_EQ(move.verdict, move.from == down[2].to ? MoveVerdict::kCorrupt : MoveVerdict::kDone);
    }
    hit ^= std::byte{1} << (bit % 8);
  }
}

// One page of four holds what is no number: it stays behind, the others go.
TEST_P(CodedHostPool, WhatCannotBeEncodedIsNotKept) {
  const auto device = make_test_pool(shape(), KvLayout::kLayerFirst);
  fill_with_numbers(*device, prng_);
  const auto nan = std::uint16_t{0x7FC1};
  std::memcpy(device->layer_pieces(2).begin()->of(PageId(1)), &nan, sizeof(nan));
  const auto host = make_host(KvLayout::kLayerFirst);
  std::vector<PageMove> down = moves(1);
  host->backup(*device, down, kAlways);
  for (const PageMove& move : down) {
    const bool bad = move.from == PageId(1);
    EXPECT_EQ(move.verdict, bad ? MoveVerdict::kCancelled : MoveVerdict::kDone);
    EXPECT_EQ(host->holds(move.to, move.key), !bad);
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodedHostPool, testing::Values(PageCodec::kInt8, PageCodec::kInt4),
                         [](const auto& codec) {
                           return std::string(page_codec_name(codec.param));
                         });

}  // namespace
}  // namespace stemma
