// RankedTrial: a model with an engine over it on several ranks, which are threads of one process.
//
// Thread:     one, and one a rank within serve_on_ranks.
// Memory:     the model's, on each rank.
// Cost:       opening a model.
// Not here:   what is asked, and compared (engine_trial), ranks as processes (tests/ranks).
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "device/thread_ranks_fixture.h"
#include "transparency/served_trial.h"

namespace stemma {

// Each of `ranks` opens `options` and calls opened(model, rank); then rank 0 calls work(trial), and
// the others follow. All of them have ended when this returns.
template <typename Work, typename Opened>
void serve_on_ranks(int ranks, const ServedModelOptions& options, const Work& work,
                    const Opened& opened) {
  ThreadRanks(ranks).run([&](RankGroup& group) {
    ServedModelOptions own = options;
    own.ranks = &group;
    if (group.rank() == 0) {
      ServedTrial trial = open_trial(own);
      opened(*trial.model, 0);
      work(trial);
      return;
    }
    const auto model = opened_for_trial(ServedModel::open(own));
    opened(*model, group.rank());
    EXPECT_TRUE(model->follow().ok());
  });
}
template <typename Work>
void serve_on_ranks(int ranks, const ServedModelOptions& options, const Work& work) {
  serve_on_ranks(ranks, options, work, [](ServedModel&, int) {});
}

}  // namespace stemma
