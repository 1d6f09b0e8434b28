// Promotion: one text whose pages are being brought up a tier, piece by piece.
//
// The pieces are asked for from the back, so that a request that will not wait can compute from the
// front meanwhile; whoever covers a piece first wins. A piece that has arrived belongs to the
// promotion until everything before it is in the target's tree, whoever put it there; then it is
// published. So nothing is ever published with a hole before it (I11).
//
// What host memory has comes in one piece, layer by layer. Where that is all that is missing it can
// be lent: a step names the pages before they are whole, asks for each layer when it needs it, and
// is void if they turn out to be wrong.
//
//   tree of the target   [ has ........ )( computed from the front ..)
//   pieces                               [ kWanted ][ kLoading ][ kArrived ][ kArrived ]
//
// Where some layers have a window, a text is brought up to the last end whose window is above or
// somewhere below: what lies behind it could not be gone on from. The windowed pages come in pieces
// of their own, and hang on their text's pages once these are published.
//
// Thread:     engine thread only.       Invariants: I1, I6, I9, I11, I12 (docs/INVARIANTS.md).
// Memory:     lists that keep their room.
// Cost:       advance O(pieces + pages published).
// Not here:   how many there may be, who waits for one (promotions).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/host_tier.h"
#include "cache/load_costs.h"
#include "cache/page_space.h"
#include "cache/purges.h"
#include "cache/removals.h"
#include "cache/tier_counters.h"
#include "cache/window_span.h"
#include "stemma/lower_tiers.h"
#include "stemma/page_store.h"
#include "stemma/prefix_cache.h"
#include "tier/transfer_ticket.h"

namespace stemma {

class Promotion {
 public:
  // Whether somebody will compute from the front what has not come when its turn is there.
  enum class Attendance : std::uint8_t { kAttended, kUnattended };

  // Everything must outlive it.
  struct Parts {
    RadixPrefixCache& device;
    PageSpace& device_space;
    WindowedPages* device_windowed_or_null;
    WindowSpan window;
    HostTier& host;
    TransferEngine& transfers;
    std::span<PageStore* const> stores;
    const Clock& clock;
    const TierOptions& options;
    LoadCosts& costs;
    TierCounters& counters;
    Removals& removals;
    Purges& purges;
  };
  explicit Promotion(const Parts& parts) : parts_(parts) {}

  // Looks for `tokens`, whole pages, below what the target's tree has of them, and begins to bring
  // them up. The target is Tier::kDevice, or Tier::kHost for a text that nobody will run yet, which
  // is never attended.
  // `cookie` names this promotion in its tickets. REQUIRES: !active().
  void begin(NamespaceId device_ns, std::span<const TokenId> tokens, Tier target,
             Attendance attendance, std::int64_t cookie);

  // From begin until nothing is on its way any more.
  bool active() const noexcept { return active_; }
  // Whether another text would find here what it wants.
  bool covers(NamespaceId device_ns, std::span<const TokenId> tokens, Tier target) const;
  // Whether more is on its way, or will be asked for.
  bool bringing() const noexcept;
  // Whether its text begins with `text`, whole pages.
  bool passes(const NamespaceDigest& digest, std::span<const TokenId> text) const;
  // The same of a text that was not given up, also once it has ended.
  bool serves(NamespaceId device_ns, std::span<const TokenId> text) const;
  // Whose text it is. REQUIRES: active().
  const NamespaceDigest& digest() const noexcept { return digest_; }
  // When whoever waits should wait no more; on the clock.
  std::int64_t wait_until_us() const noexcept { return wait_until_us_; }
  // Pages of the target that are its own by now: landed or on their way, not published.
  std::int64_t owned_pages() const;
  // Pages of its text in the target's tree that it locks, and that cannot be gone on from before
  // their windows have come.
  std::int64_t unusable_pages() const;
  // Adds to the holders of each of `pages`; how many of them are its own by now.
  std::int64_t count_windowed(const WindowedPages& pages, std::span<std::int32_t> holders) const;
  // The copy to the device that brings all that is still to come, right behind what the tree has;
  // nullptr if there is no such copy. Valid until the next poll.
  Transfer* lendable_or_null() const;
  // What was published by now, and what it took.
  PromotionOutcome outcome() const {
    PromotionOutcome so_far = outcome_;
    so_far.unfinished = bringing();
    return so_far;
  }
  std::int64_t cookie() const noexcept { return cookie_; }

  // Nobody waits for it or computes from its front: what lies behind a hole is given up.
  void leave() { attended_ = false; }
  // Somebody does again.
  void attend() { attended_ = target_ == Tier::kDevice; }
  // Takes a ticket of this promotion back.
  void landed(TransferTicket ticket);
  // Publishes what can be, asks for what is next, ends when there is nothing left.
  void advance();
  // Nobody needs it any more: asks for nothing further, gives up what has come and could not be
  // published, and ends when nothing is on its way. What a store still reads holds no page.
  void abandon();

 private:
  enum class PieceState : std::uint8_t { kWanted, kLoading, kArrived, kGone };
  struct Piece {
    std::int64_t first_page = 0;
    std::int64_t pages = 0;
    Tier tier = Tier::kHost;
    int store = 0;
    PieceState state = PieceState::kWanted;
    bool by_doubt = false;  // kWanted although its tier was too slow so far
    OwnedPages arrived;

    std::int64_t end_page() const noexcept { return first_page + pages; }
  };
  // Windowed pages that have landed, from `first_page` on.
  struct WindowPiece {
    std::int64_t first_page = 0;
    TakenWindowedPages arrived;
  };

  bool is_of(const NamespaceDigest& digest, std::span<const TokenId> text) const;
  RadixPrefixCache& target_tree();
  PageSpace& target_space();
  std::int64_t page_size() const { return parts_.device.page_size(); }
  std::int64_t text_pages() const {
    return static_cast<std::int64_t>(tokens_.size()) / page_size();
  }
  std::span<const TokenId> text_to(std::int64_t end_page) const;
  const PageKey& key(std::int64_t page) const;

  void find_keys(std::int64_t first_page);
  void look_below(std::int64_t first_page);
  void look_in_stores(std::size_t store, std::int64_t first_page);
  std::span<const PageKey> keys_for_stores(std::int64_t first_page);
  void look_remote(int store, std::int64_t first_page);
  void add_pieces(std::int64_t first_page, std::int64_t end_page, Tier tier, int store);
  std::int64_t decide();
  bool may_doubt(const Piece& piece) const;
  void decline(Piece& piece);
  void join_host_pieces();
  bool take_pages_for(Piece& piece, TransferTicket& ticket);
  bool has_hole() const;
  void publish();
  void publish_piece(Piece& piece);
  void ask();
  bool ask_for(Piece& piece);
  void name_pages(Transfer& job, std::int64_t first_page, std::int64_t end_page) const;
  void fill(Transfer& job, const Piece& piece) const;
  void landed_lookup(const Transfer& job);
  void landed_piece(TransferTicket& ticket, Piece& piece);
  void count_losses(const Transfer& job, Tier tier, bool of_text = true);
  void let_host_go();
  void end();

  // Of windowed pages (promotion_windows.cc).
  bool windowed() const noexcept { return parts_.device_windowed_or_null != nullptr; }
  void copy_rows();
  std::int64_t usable_pages() const;
  WindowedPages& target_windows() const;
  bool has_window(std::int64_t page) const;
  bool is_window_near(std::int64_t page) const;
  std::int64_t wanted_end() const;
  void settle_window(std::size_t store);
  void bring_to(std::int64_t end_page);
  std::vector<PageKey> windowed_keys(std::int64_t first_page, std::int64_t end_page) const;
  bool may_ask_for_window(std::int64_t first_page, std::int64_t end_page);
  bool look_for_window(int store, std::int64_t first_page, std::int64_t end_page);
  void landed_window_lookup(const Transfer& job);
  void ask_for_window();
  bool is_room_coming() const;
  bool ask_for_window_piece(std::int64_t end_page, bool from_host);
  void landed_window(TransferTicket& ticket);
  void hang_windows();

  Parts parts_;
  bool active_ = false;
  bool abandoned_ = false;
  bool attended_ = false;  // a request may compute what is missing
  Tier target_ = Tier::kDevice;
  NamespaceId device_ns_;
  std::int64_t cookie_ = 0;
  std::int64_t wait_until_us_ = 0;
  std::vector<TokenId> tokens_;  // whole pages
  std::vector<PageKey> keys_;    // of pages from first_key_page_ on, one less being their parent
  std::int64_t first_key_page_ = 0;
  NamespaceDigest digest_;
  PrefixLock anchor_;  // on what the target's tree has
  PrefixLock host_;    // on what is read from host memory
  std::vector<Piece> pieces_;
  std::int64_t underway_ = 0;  // tickets
  std::int64_t lookups_ = 0;   // of these, such as are to say what there is
  bool asked_ = false;         // for any piece
  std::int64_t wrong_host_page_ = -1;
  PromotionOutcome outcome_;
  std::int64_t window_next_ = 0;  // page whose windowed one is to be asked for next
  std::int64_t window_end_ = 0;   // up to which they are needed, and the text is brought
  int window_store_ = -1;         // that has those which are nowhere nearer; -1: none
  std::vector<PageId> anchor_row_;
  std::vector<PageId> host_row_;
  std::vector<WindowPiece> window_pieces_;
};

}  // namespace stemma
