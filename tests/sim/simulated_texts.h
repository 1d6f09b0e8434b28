// SimulatedTexts: what the users of a simulation ask: conversations that go on from their answers,
// families of texts that begin alike, repetitions, branches, and texts that nobody knows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "sim/stamp_model.h"
#include "stemma/engine.h"

namespace stemma {

class SimulatedTexts {
 public:
  struct Extent {
    std::int64_t families = 1;
    std::int64_t conversations = 1;
    std::int64_t namespaces = 1;
    std::int64_t tokens_max = 2;  // prompt and output together
  };
  // A prompt, and the conversation that its answer continues.
  struct Question {
    RequestSpec spec;
    std::size_t conversation = 0;
  };

  // `prng` must outlive it.
  SimulatedTexts(const Extent& extent, Prng& prng) : extent_(extent), prng_(prng) {
    for (std::int64_t i = 0; i < extent.families; ++i) {
      families_.push_back(fresh(1 + prng.below(std::max<std::int64_t>(extent.tokens_max / 2, 1))));
    }
    conversations_.resize(static_cast<std::size_t>(extent.conversations));
    for (Conversation& conversation : conversations_) begin(conversation);
  }

  Question ask() {
    Question question;
    question.conversation = static_cast<std::size_t>(prng_.below(extent_.conversations));
    Conversation& conversation = conversations_[question.conversation];
    RequestSpec& spec = question.spec;
    spec.prompt = prompt_of(conversation);
    const auto prompt = static_cast<std::int64_t>(spec.prompt.size());
    const std::int64_t room = extent_.tokens_max - prompt;
    spec.max_tokens = 1 + prng_.below(prng_.below(4) == 0 ? room : std::min<std::int64_t>(room, 6));
    spec.priority = conversation.priority;
    spec.namespace_digest.bytes[0] = static_cast<std::uint8_t>(conversation.space);
    if (prng_.below(8) == 0) {
      spec.stop_tokens.push_back(static_cast<TokenId>(prng_.below(kStampVocab)));
    }
    return question;
  }

  // What texts begin with, many of each.
  const std::vector<std::vector<TokenId>>& families() const { return families_; }

  // The conversation goes on from here.
  void answered(std::size_t number, const std::vector<TokenId>& prompt,
                const std::vector<TokenId>& answer) {
    Conversation& conversation = conversations_[number];
    if (prompt.size() < conversation.text.size()) return;
    conversation.text = prompt;
    conversation.text.insert(conversation.text.end(), answer.begin(), answer.end());
    if (tokens_of(conversation) + 2 > extent_.tokens_max) begin(conversation);
  }

  std::vector<TokenId> fresh(std::int64_t tokens) {
    std::vector<TokenId> text;
    for (std::int64_t i = 0; i < tokens; ++i) {
      text.push_back(static_cast<TokenId>(prng_.below(kStampVocab)));
    }
    return text;
  }

 private:
  struct Conversation {
    std::vector<TokenId> text;
    std::int64_t space = 0;
    std::int32_t priority = 0;
  };

  static std::int64_t tokens_of(const Conversation& conversation) {
    return static_cast<std::int64_t>(conversation.text.size());
  }

  void begin(Conversation& conversation) {
    conversation.text = families_[static_cast<std::size_t>(prng_.below(extent_.families))];
    conversation.space = prng_.below(extent_.namespaces);
    conversation.priority = static_cast<std::int32_t>(prng_.below(3));
  }

  // At least one token, and room for one more.
  std::vector<TokenId> prompt_of(const Conversation& conversation) {
    std::vector<TokenId> prompt = conversation.text;
    const std::int64_t kind = prng_.below(10);
    if (kind >= 7)
      prompt.resize(static_cast<std::size_t>(prng_.below(tokens_of(conversation) + 1)));
    if (kind == 9) prompt.clear();
    if (kind != 0) append(prompt, fresh(1 + prng_.below(kind < 4 ? 4 : 30)));
    const auto tokens_max = static_cast<std::size_t>(extent_.tokens_max - 1);
    if (prompt.size() > tokens_max) prompt.resize(tokens_max);
    return prompt;
  }

  static void append(std::vector<TokenId>& text, const std::vector<TokenId>& more) {
    text.insert(text.end(), more.begin(), more.end());
  }

  Extent extent_;
  Prng& prng_;
  std::vector<std::vector<TokenId>> families_;
  std::vector<Conversation> conversations_;
};

}  // namespace stemma
