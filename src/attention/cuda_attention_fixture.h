// CudaAttentionFixture: sequences with known K, V and Q, planned and computed by CudaAttention on
// the GPU of the tests, and what a reference gives.
//
// Thread:     a test's.
// Memory:     small pools of the host, copied to the GPU for each batch.
// Cost:       on the emulated GPU milliseconds a row.
// Not here:   what is expected (the tests), the sequences (attention_fixture).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention_fixture.h"
#include "attention/cuda_attention.h"
#include "base/float16.h"
#include "device/cuda_fixture.h"

namespace stemma {

struct CudaCase {
  std::string name;
  AttentionCase world;
  std::vector<std::int64_t> tokens = {70, 5, 530};
  DType row_dtype = DType::kBF16;
  std::int64_t rows_max = 1000;  // of a step
  bool share_prefixes = true;
  std::int64_t sums_bytes_max = std::int64_t{1} << 20;
  std::int64_t choice_bytes_max = std::int64_t{1} << 22;
  bool hopper_chunks = false;
  bool hopper_latent = false;
  // As few as make batches of these tests as large as others are for a GPU: teams have several
  // items, and items several partitions.
  std::int64_t multiprocessors_max = 4;
};

// 2^-p is half of the last place of a number of this type near 1.
inline double half_of_last_place(DType dtype) {
  return dtype == DType::kF32 ? 0x1p-24 : (dtype == DType::kBF16 ? 0x1p-9 : 0x1p-12);
}

// What is multiplied: elements of the pool, codes as f16.
inline DType operand_of(const CudaCase& c) {
  return is_scaled(c.world.dtype) ? DType::kF16 : c.world.dtype;
}

// Each weight is rounded to the operands' type by up to half of its last place. So is their sum,
// which is one of the rounded ones, where they are not codes'. The output is rounded to the rows'
// type. Values are at most 2.
inline double tolerance(const CudaCase& c) {
  // Powers within 2^-22 of their exponent's, sums of up to 600 roundings.
  if (c.world.dtype == DType::kF32) return 4 * half_of_last_place(c.row_dtype) + 5e-5;
  const double operand = half_of_last_place(operand_of(c));
  const bool codes = is_scaled(c.world.dtype);
  const double roundings = codes ? 1 : 2;
  return 2 * (roundings * operand + half_of_last_place(c.row_dtype)) + (codes ? 5e-5 : 1e-5);
}

inline float rounded(DType dtype, float value) {
  if (dtype == DType::kF32) return value;
  return dtype == DType::kBF16 ? to_float(to_bfloat16(value)) : to_float(to_float16(value));
}

inline std::vector<std::byte> as_rows(DType dtype, const std::vector<float>& values) {
  const auto size = static_cast<std::size_t>(dtype_bytes(dtype));
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[i * size], &values[i], size);
    } else {
      const std::uint16_t bits =
          dtype == DType::kBF16 ? to_bfloat16(values[i]).bits : to_float16(values[i]).bits;
      std::memcpy(&bytes[i * size], &bits, size);
    }
  }
  return bytes;
}

inline std::vector<float> from_rows(DType dtype, const std::vector<std::byte>& bytes) {
  const auto size = static_cast<std::size_t>(dtype_bytes(dtype));
  std::vector<float> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&values[i], &bytes[i * size], size);
    } else {
      std::uint16_t bits = 0;
      std::memcpy(&bits, &bytes[i * size], size);
      values[i] = dtype == DType::kBF16 ? to_float(BFloat16{bits}) : to_float(Float16{bits});
    }
  }
  return values;
}

// Rows and pool of bf16.
inline AttentionCase bf16_world(std::int64_t query_heads, std::int64_t kv_heads,
                                std::int64_t head_dim) {
  AttentionCase c;
  c.shape = {
      .query_heads = query_heads, .kv_heads = kv_heads, .head_dim = head_dim, .scale = 0.125f};
  c.dtype = DType::kBF16;
  return c;
}

class CudaAttentionFixture : public CudaFixture {
 protected:
  // As many as GPUs have that the tests are to say something of.
  simt::Machine::Options machine_options() const override {
    simt::Machine::Options options = CudaFixture::machine_options();
    options.multiprocessors = 132;
    return options;
  }

  static AttentionLimits limits_of(const CudaCase& c) {
    return {.rows_max = c.rows_max,
            .requests_max = static_cast<std::int64_t>(c.tokens.size()),
            .context_tokens_max = *std::max_element(c.tokens.begin(), c.tokens.end())};
  }

  std::unique_ptr<CudaAttention> make(const CudaCase& c) {
    auto attention = CudaAttention::create(device(), stream(), c.world.shape, limits_of(c),
                                           {.row_dtype = c.row_dtype,
                                            .kv_dtype = c.world.dtype,
                                            .page_size = c.world.page_size,
                                            .share_prefixes = c.share_prefixes,
                                            .sums_bytes_max = c.sums_bytes_max,
                                            .dial = c.world.dial,
                                            .choice_bytes_max = c.choice_bytes_max,
                                            .hopper_chunks = c.hopper_chunks,
                                            .hopper_latent = c.hopper_latent,
                                            .multiprocessors_max = c.multiprocessors_max});
    EXPECT_TRUE(attention.ok()) << attention.error().detail;
    return attention.ok() ? std::move(attention).value() : nullptr;
  }

  // A layer of a pool of the host on the device: all from its first row to its last.
  struct DeviceLayer {
    CudaMemory k, v, k_scales, v_scales, labels, heavy_channels;
    KvLayerView view;
  };
  DeviceLayer upload_layer(const KvLayerView& host) {
    const auto bytes = static_cast<std::size_t>(
        ((host.pages - 1) * host.page_stride + (host.page_size - 1) * host.token_stride +
         (host.heads - 1) * host.head_stride + host.head_dim) *
        dtype_bytes(host.dtype));
    DeviceLayer layer;
    layer.k = upload(std::span(static_cast<const std::byte*>(host.k), bytes));
    layer.view = host;
    layer.view.k = layer.view.v = layer.k.bytes();
    if (host.v != host.k) {
      layer.v = upload(std::span(static_cast<const std::byte*>(host.v), bytes));
      layer.view.v = layer.v.bytes();
    }
    if (host.labels != nullptr) upload_labels(host, layer);
    if (!is_scaled(host.dtype)) return layer;
    const auto scales =
        static_cast<std::size_t>((host.pages - 1) * host.scale_page_stride +
                                 (host.heads - 1) * host.scale_head_stride + host.page_size);
    layer.k_scales = upload(std::span(host.k_scales, scales));
    layer.view.k_scales = layer.k_scales.as<float>();
    if (host.v_scales == nullptr) return layer;  // latent rows
    layer.v_scales = upload(std::span(host.v_scales, scales));
    layer.view.v_scales = layer.v_scales.as<float>();
    return layer;
  }

  void upload_labels(const KvLayerView& host, DeviceLayer& layer) {
    const auto bytes =
        static_cast<std::size_t>(((host.pages - 1) * host.label_page_stride +
                                  (host.page_size - 1) * host.label_token_stride +
                                  (host.heads - 1) * host.label_head_stride + host.label_channels) *
                                 dtype_bytes(host.dtype));
    layer.labels = upload(std::span(static_cast<const std::byte*>(host.labels), bytes));
    layer.view.labels = layer.labels.bytes();
    layer.heavy_channels = upload(
        std::span(host.heavy_channels, static_cast<std::size_t>(host.heads * host.label_channels)));
    layer.view.heavy_channels = layer.heavy_channels.as<std::int32_t>();
  }

  static std::size_t outputs(const CudaCase& c, const KvBatch& batch) {
    return static_cast<std::size_t>(batch.rows() * c.world.shape.query_heads *
                                    c.world.shape.value_dim());
  }

  // Outputs of all of a batch, computed on the device.
  std::vector<float> attend(const CudaCase& c, CudaAttention& attention,
                            const AttentionWorld& world) {
    return attend(c, attention, world.batch(), world.layer(), world.queries());
  }
  std::vector<float> attend(const CudaCase& c, CudaAttention& attention, const KvBatch& batch,
                            const KvLayerView& host, const std::vector<float>& queries) {
    const std::size_t bytes =
        outputs(c, batch) * static_cast<std::size_t>(dtype_bytes(c.row_dtype));
    const DeviceLayer layer = upload_layer(host);
    const CudaMemory q = upload(as_rows(c.row_dtype, queries));
    const CudaMemory out = allocate<std::byte>(bytes);
    EXPECT_TRUE(attention.plan(stream(), batch).ok());
    EXPECT_TRUE(attention.run(stream(), layer.view, q.bytes(), out.bytes()).ok());
    return from_rows(c.row_dtype, download<std::byte>(out.bytes(), bytes));
  }

  // The same by the reference, with queries as the kernels multiply them.
  static std::vector<float> expected(const CudaCase& c, const AttentionWorld& world) {
    return expected(c, world.batch(), world.layer(), world.queries());
  }
  static std::vector<float> expected(const CudaCase& c, const KvBatch& batch,
                                     const KvLayerView& layer, std::vector<float> q) {
    ThreadPool threads(1);
    auto reference = make_attention("reference", c.world.shape, limits_of(c), threads);
    EXPECT_TRUE(reference.ok());
    for (float& value : q) value = rounded(operand_of(c), rounded(c.row_dtype, value));
    std::vector<float> out(outputs(c, batch));
    reference.value()->plan(batch);
    reference.value()->run(layer, q.data(), out.data());
    return out;
  }

  // What the attention gives for the world's batch is near what the reference does.
  void expect_reference(const CudaCase& c, CudaAttention& attention, AttentionWorld& world) {
    const std::vector<float> actual = attend(c, attention, world);
    const std::vector<float> wanted = expected(c, world);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(actual[i], wanted[i], tolerance(c))
          << "output " << i << ", seed " << testing::UnitTest::GetInstance()->random_seed();
    }
  }

  // Of all sequences, computed in `steps`.
  Outputs attend_all_on_device(const CudaCase& c, const std::vector<Step>& steps) {
    AttentionWorld world(c.world, c.tokens);
    const auto attention = make(c);
    Outputs collected(c.tokens.size());
    for (const Step& step : steps) {
      world.prepare(step);
      const std::vector<float> out = attend(c, *attention, world);
      auto from = out.begin();
      for (const StepRows& part : step) {
        const auto count = static_cast<std::ptrdiff_t>(part.rows * c.world.shape.query_heads *
                                                       c.world.shape.value_dim());
        collected[part.sequence].insert(collected[part.sequence].end(), from, from + count);
        from += count;
      }
    }
    return collected;
  }
};

}  // namespace stemma
