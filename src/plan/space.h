// The candidates of one region on one device: legal, priced, ranked, of several kinds, and no more
// than a bound.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "device/device_info.h"
#include "families/list.h"

namespace ac {

struct Candidate {
  std::string id;    // "gemv/R256x1x8/512": stable, and different for every plan
  std::string kind;  // "gemv registers": what the diversity filter keeps one of
  Choice choice;
  Cost cost;
  // It is there beyond the bound, for decode that several sequences share.
  bool for_several = false;
};

struct Refusal {
  std::string_view family;
  std::string why;
};

struct Space {
  std::string signature;              // of the region; with "; argmax" where that is wanted
  std::vector<Candidate> candidates;  // best first
  std::vector<Refusal> refusals;      // families that cannot compute the region
  std::size_t enumerated = 0;         // of all families: legal + illegal
  std::size_t legal = 0;              // before the bound
  std::map<std::string, std::size_t> illegal;  // by family and reason

  // Why there is nothing but the fallback; empty where there are candidates.
  std::string no_family() const;
};

// For few attempts: the best of each outline (ring, threads, tiles), then the second best of each,
// and so on, as indices of candidates. Those for several sequences come last.
std::vector<std::size_t> diverse_order(const Space& space);
// What two plans share that differ only in where the grid ends, cache hints and signals: the id up
// to the first of these, or to the vectors that rows are read in.
std::string_view outline_of(std::string_view id);

// Of these families; of none, all but those that the host has only for what names them. With
// orders, products with weights have candidates of these alone (order_of). Where several sequences
// share products, some that compute a few tokens as one follow beyond the bound.
Space plan_space(const StepGraph& step, const Wanted& wanted, const Bindings& at,
                 const DeviceInfo& device, std::size_t max_candidates,
                 const std::vector<std::string>& families = {},
                 const std::set<std::string>& orders = {}, bool shared = false);
// Of the sampling kernel alone, over the logits that another kernel has written.
Space plan_sampling(DType logits, std::int64_t vocab, const DeviceInfo& device,
                    std::size_t max_candidates);
std::string signature_of(const Wanted& wanted);

// The candidate with this id.
std::optional<std::size_t> index_in(const Space& space, const std::string& id);
// The same, where the bound may have left it out: it is added then. An advisor may have thought of
// it, or the bound have been another one.
std::optional<std::size_t> find_candidate(const StepGraph& step, const Wanted& wanted,
                                          const Bindings& at, const DeviceInfo& device,
                                          Space& space, const std::string& id);

}  // namespace ac
