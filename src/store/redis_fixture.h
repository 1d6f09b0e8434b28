// RedisFixture: pages that say what they must be, and what every test of a remote store asks of it:
// after whatever happened, each page that is called read is right, byte by byte.
//
// Thread:     one thread.
// Memory:     a few frames.
// Cost:       none of note.
// Not here:   servers (redis_process, fake_redis).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/digest.h"
#include "base/prng.h"
#include "store/redis_page_store.h"
#include "tier/page_frame.h"

namespace stemma {

// The page of a number: its key, and the only frame that is right for it.
inline PageKey redis_test_key(std::int64_t page) {
  const std::string text = "page " + std::to_string(page);
  PageKey key;
  key.bytes = sha256(std::as_bytes(std::span(text)));
  return key;
}

inline std::vector<std::byte> redis_test_frame(std::int64_t page, std::size_t frame_bytes) {
  std::vector<std::byte> frame(frame_bytes);
  Prng prng(static_cast<std::uint64_t>(page) * 2 + 1);
  for (std::byte& byte : frame) byte = static_cast<std::byte>(prng());
  return frame;
}

// Frames whose headers say whose they are; what they hold is of no account to a remote store.
inline NamespaceDigest redis_test_owner(std::uint8_t number) {
  NamespaceDigest digest;
  digest.bytes[0] = number;
  return digest;
}

inline std::vector<std::byte> redis_owned_frame(std::uint8_t owner, std::int64_t ordinal = 0,
                                                std::int64_t layer_bytes = 64) {
  PageFormat format;
  format.layers = 1;
  format.layer_bytes = layer_bytes;
  format.page_size = 1;
  std::vector<std::byte> frame(frame_bytes(format));
  const TokenId token = 0;
  const std::uint32_t sum = 0;
  PageIdentity identity;
  identity.namespace_digest = redis_test_owner(owner);
  identity.ordinal = ordinal;
  identity.tokens = std::span(&token, 1);
  encode_frame(format, identity, std::span(&sum, 1), 1, frame);
  return frame;
}

class NumbersVisitor final : public MetricVisitor {
 public:
  void counter(std::string_view name, std::int64_t value) override {
    numbers[std::string(name)] = value;
  }
  void gauge(std::string_view name, std::int64_t value) override {
    numbers[std::string(name)] = value;
  }
  std::map<std::string, std::int64_t> numbers;
};

class RedisFixture : public ::testing::Test {
 protected:
  static constexpr std::int64_t kLongUs = 20'000'000;

  static RedisPageStoreOptions options_for(const std::string& url) {
    RedisPageStoreOptions options;
    options.url = url;
    options.operation_us_max = kLongUs;
    options.connect_us_max = 5'000'000;
    options.refresh_us = 0;
    options.full_pause_us = 0;
    return options;
  }
  std::unique_ptr<RedisPageStore> open_store(const RedisPageStoreOptions& options) {
    auto store = RedisPageStore::open(options, clock_);
    EXPECT_TRUE(store.ok());
    return std::move(store).value();
  }
  std::int64_t deadline_us(std::int64_t limit_us = kLongUs) const {
    return clock_.now_us() + limit_us;
  }

  // Writes pages [first, end): one letter a page: d(one), m(issing), r(efused), f(ailed).
  std::string write(RedisPageStore& store, std::int64_t first, std::int64_t end,
                    std::int64_t limit_us = kLongUs) {
    std::vector<std::vector<std::byte>> frames;
    std::vector<PageWrite> writes;
    for (std::int64_t page = first; page < end; ++page) {
      frames.push_back(redis_test_frame(page, frame_bytes_));
      writes.push_back({redis_test_key(page), frames.back()});
    }
    store.write(writes, deadline_us(limit_us));
    std::string letters;
    for (const PageWrite& write : writes) letters += letter(write.verdict);
    return letters;
  }
  // The same; and what was read is compared.
  std::string read(RedisPageStore& store, std::int64_t first, std::int64_t end,
                   std::int64_t limit_us = kLongUs) {
    std::vector<std::vector<std::byte>> frames;
    std::vector<PageRead> reads;
    for (std::int64_t page = first; page < end; ++page) {
      frames.emplace_back(frame_bytes_, std::byte{0xEE});
      reads.push_back({redis_test_key(page), frames.back()});
    }
    store.read(reads, deadline_us(limit_us));
    std::string letters;
    for (std::size_t i = 0; i < reads.size(); ++i) {
      letters += letter(reads[i].verdict);
      if (reads[i].verdict != PageVerdict::kDone) continue;
      const std::int64_t page = first + static_cast<std::int64_t>(i);
      EXPECT_TRUE(frames[i] == redis_test_frame(page, frame_bytes_)) << "page " << page;
    }
    return letters;
  }
  std::int64_t lookup(RedisPageStore& store, std::int64_t first, std::int64_t end) {
    std::vector<PageKey> keys;
    for (std::int64_t page = first; page < end; ++page) keys.push_back(redis_test_key(page));
    const auto found = store.lookup(keys, deadline_us());
    return found.ok() ? *found : -1;
  }
  std::int64_t renew(RedisPageStore& store, std::int64_t first, std::int64_t end,
                     std::int64_t limit_us = kLongUs) {
    std::vector<PageKey> keys;
    for (std::int64_t page = first; page < end; ++page) keys.push_back(redis_test_key(page));
    return store.renew(keys, deadline_us(limit_us));
  }
  // Writes pages of that namespace; their keys.
  std::vector<PageKey> write_owned(RedisPageStore& store, std::uint8_t owner, std::int64_t pages) {
    std::vector<std::vector<std::byte>> frames;
    std::vector<PageKey> keys;
    for (std::int64_t page = 0; page < pages; ++page) {
      frames.push_back(redis_owned_frame(owner, page));
      keys.push_back(redis_test_key(1'000'000 * owner + page));
    }
    std::vector<PageWrite> writes;
    for (std::size_t page = 0; page < keys.size(); ++page) {
      writes.push_back({keys[page], frames[page]});
    }
    store.write(writes, deadline_us());
    for (const PageWrite& write : writes) EXPECT_EQ(write.verdict, PageVerdict::kDone);
    return keys;
  }
  std::int64_t count_found(RedisPageStore& store, std::span<const PageKey> keys) {
    std::int64_t found = 0;
    for (const PageKey& key : keys) {
      const auto one = store.lookup({&key, 1}, deadline_us());
      found += one.ok() ? *one : 0;
    }
    return found;
  }
  void remove(RedisPageStore& store, std::int64_t page, std::span<const std::byte> frame) {
    const PageRemoval removal = {redis_test_key(page), frame};
    store.remove({&removal, 1}, deadline_us());
  }
  static std::int64_t metric(const RedisPageStore& store, const std::string& name) {
    NumbersVisitor visitor;
    store.visit_metrics(visitor);
    EXPECT_TRUE(visitor.numbers.contains("stemma_remote_" + name)) << name;
    return visitor.numbers["stemma_remote_" + name];
  }
  static std::string value_name(std::int64_t page) {
    return "stemma:1:" + to_hex(redis_test_key(page).bytes);
  }

  static char letter(PageVerdict verdict) {
    switch (verdict) {
      case PageVerdict::kDone:
        return 'd';
      case PageVerdict::kMissing:
        return 'm';
      case PageVerdict::kRefused:
        return 'r';
      case PageVerdict::kCorrupt:
        return 'c';
      case PageVerdict::kFailed:
        return 'f';
    }
    return '?';
  }

  MonotonicClock clock_;
  std::size_t frame_bytes_ = 4096;
};

}  // namespace stemma
