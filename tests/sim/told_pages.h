// ToldPages: what somebody knows of an engine's cache who is told of its events alone, compared
// with what the cache says of texts that were asked for.
//
// Thread:     tests.
// Memory:     a map entry a page, and a text a namespace.
// Cost:       a hash a page of each text.
// Not here:   what events must not say (event_mirror).
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prefix/event_mirror.h"
#include "prefix/page_key.h"
#include "stemma/engine.h"

namespace stemma {

class ToldPages {
 public:
  // Remembers the text, of each namespace and prefix that it shares the last one.
  void note_asked(const RequestSpec& spec) {
    const SharedPrefix shared = spec.shared_prefix.value_or(SharedPrefix());
    texts_[{spec.namespace_digest, shared.tokens}] = {shared, spec.prompt};
  }

  // Takes what changed, and now and then compares; the first contradiction, or nullopt. Where
  // layers look back over a window, less than what events tell of may be gone on from.
  std::optional<std::string> check(Engine& engine) {
    if (engine.kv().options().events_pages_max == 0) return std::nullopt;
    engine.drain_kv_events(mirror_);
    if (testing::Test::HasFailure()) return std::string("events contradict each other");
    if (++checks_ % 8 != 0) return std::nullopt;
    const std::int64_t page_size = engine.kv().page_size();
    const bool windowed = engine.kv().options().window_tokens > 0;
    for (const auto& [key, text] : texts_) {
      const auto* const shared = text.shared.tokens > 0 ? &text.shared : nullptr;
      const auto explanation = engine.explain(key.first, text.tokens, 0, shared);
      if (!explanation.has_value()) continue;
      const std::int64_t has = explanation->device_tokens;
      const std::int64_t told = told_tokens(key.first, text, page_size);
      if (told == has || (windowed && told > has)) continue;
      return fmt::format(
          "events tell of {} tokens of a text of namespace {} behind {}, {} are found", told,
          key.first.bytes[0], text.shared.tokens, has);
    }
    return std::nullopt;
  }

  // Another engine begins; how often the one before told everything anew.
  int forget() { return std::exchange(mirror_, EventMirror()).cleared_events; }

 private:
  struct Text {
    SharedPrefix shared;
    std::vector<TokenId> tokens;
  };

  // Of what a look-up may find: never the last token.
  std::int64_t told_tokens(const NamespaceDigest& digest, const Text& text,
                           std::int64_t page_size) const {
    const std::int64_t end = std::ssize(text.tokens) - 1;
    std::int64_t told = 0;
    const auto follow = [&](const NamespaceDigest& part, std::int64_t part_end) {
      PageKeyChain chain(part);
      for (; told + page_size <= part_end; told += page_size) {
        const auto rest = std::span(text.tokens).subspan(static_cast<std::size_t>(told));
        if (!mirror_.pages.contains(chain.append(rest.first(static_cast<std::size_t>(page_size)))))
          return;
      }
    };
    if (text.shared.tokens > 0) follow(text.shared.digest, std::min(text.shared.tokens, end));
    if (told == text.shared.tokens) follow(digest, end);
    return told;
  }

  EventMirror mirror_;
  std::int64_t checks_ = 0;
  std::map<std::pair<NamespaceDigest, std::int64_t>, Text> texts_;
};

}  // namespace stemma
