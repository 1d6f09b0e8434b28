// What is kept of a look-up is what looking again would find, on the device and in host memory, of
// texts that go on from what everybody shares too.
#include "cache/kept_probe.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"
#include "cache/held_copies_fixture.h"
#include "prefix/namespace_examples.h"

namespace stemma {
namespace {

struct Waiting {
  NamespaceId ns;
  std::vector<TokenId> tokens;
  KeptProbe probe;
};

class KeptProbeTest : public HeldCopies {
 protected:
  std::vector<TokenId> drawn_text() {
    std::vector<TokenId> tokens = {1, 2, 3, 4};
    if (prng.below(4) == 0) tokens[static_cast<std::size_t>(prng.below(4))] = 9;
    for (std::int64_t left = prng.below(12); left >= 0; --left) {
      tokens.push_back(static_cast<TokenId>(prng.below(3)));
    }
    return tokens;
  }

  void open_spaces() {
    const SharedPrefix shared = {digest_of(200), 4};
    spaces = {ns, *kv->try_open_namespace(shared.digest)};
    for (int tenant = 1; tenant <= 2; ++tenant) {
      spaces.push_back(*kv->try_open_namespace(digest_of(tenant), &shared));
    }
  }
  NamespaceId space() { return spaces[static_cast<std::size_t>(prng.below(std::ssize(spaces)))]; }

  // Something that may change what is found.
  void change() {
    const std::int64_t drawn = prng.below(100);
    if (drawn < 60) {
      ns = space();
      compute(drawn_text());
    } else if (drawn < 80) {
      kv->evict(prng.below(30));
    } else if (drawn < 98) {
      end_backups();
    } else {
      const NamespaceFamily family = family_of(digest_of(1));
      EXPECT_TRUE(kv->purge({&family, 1}).ok());
    }
  }

  void expect_equal(Waiting& text) {
    text.probe.look(*kv, text.ns, text.tokens);
    ASSERT_EQ(text.probe.device_tokens(), kv->probe(text.ns, text.tokens));
    ASSERT_EQ(text.probe.host_tokens(), kv->probe_host(text.ns, text.tokens));
  }

  void live(int operations) {
    open_spaces();
    std::vector<Waiting> waiting(40);
    for (Waiting& text : waiting) text = {.ns = space(), .tokens = drawn_text(), .probe = {}};
    for (int operation = 0; operation < operations; ++operation) {
      change();
      SCOPED_TRACE(operation);
      for (Waiting& text : waiting) {
        if (prng.below(3) > 0) expect_equal(text);
        if (HasFatalFailure()) return;
        if (prng.below(50) == 0) text = {.ns = space(), .tokens = drawn_text(), .probe = {}};
      }
    }
  }

  Prng prng{77};
  std::vector<NamespaceId> spaces;
};

TEST_F(KeptProbeTest, FindsWhatLookingAgainWouldFind) {
  open(48, /*stores=*/0);
  live(2000);
}

TEST_F(KeptProbeTest, SoWhereLayersHaveAWindow) {
  open(48, /*stores=*/0, {.windowed_pages = 32});
  live(500);
}

}  // namespace
}  // namespace stemma
