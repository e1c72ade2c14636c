// The candidates of one region on one device: legal, priced, ranked, of several kinds, and no more
// than a bound.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/device_info.h"
#include "plan/match.h"

namespace ac {

// What holds a kernel up, by the cost model.
enum class Limit : std::uint8_t { launch, memory, latency, compute };
std::string_view to_string(Limit limit);

// A roofline, with the share of it that loads in flight and occupancy allow. It ranks plans of one
// task; it is no measurement.
struct Cost {
  double microseconds = 0;
  double bytes = 0, flops = 0;
  double occupancy = 0;  // resident threads of those that an SM can have
  Limit limit = Limit::memory;
};
Cost predict(const Choice& choice, const DeviceInfo& device);

// How likely a candidate is not to work out, for whoever orders attempts.
enum class Risk : std::uint8_t { low, medium, high };
std::string_view to_string(Risk risk);

struct Candidate {
  std::string id;    // "gemv/R256x1x8/512": stable, and different for every plan
  std::string kind;  // "gemv registers": what the diversity filter keeps one of
  Choice choice;
  Cost cost;
  Risk risk = Risk::low;
};

std::string_view family_of(const Choice& choice);
std::string id_of(const Choice& choice);
std::string kind_of(const Choice& choice);
Risk risk_of(const Choice& choice, const DeviceInfo& device);
// The op and the plan as C++ initialisers, for generated source: "{.threads = 256, ...}".
std::string op_text(const Choice& choice);
std::string plan_text(const Choice& choice);
// The plan's fields in that order, their values without a type: {"threads", "256"}, {"ring",
// "none"}. They are read from plan_text(), so that no field can be forgotten.
struct PlanField {
  std::string name, value;
};
std::vector<PlanField> plan_fields(const Choice& choice);
// The fields that ids of its family leave out as long as they have these values.
std::vector<PlanField> unsaid_fields(const Choice& choice);
// Of the kernel that goes before prefill attention.
std::string op_text(const kernels::RopeAppendOp& op);
std::string plan_text(const kernels::RopeAppendPlan& plan);

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
// and so on, as indices of candidates.
std::vector<std::size_t> diverse_order(const Space& space);
// What two plans share that differ only in where the grid ends, cache hints and signals: the id up
// to the first of these.
std::string_view outline_of(std::string_view id);

// Of these families; of none, all but those that the host has only for what names them.
Space plan_space(const StepGraph& step, const Wanted& wanted, const Bindings& at,
                 const DeviceInfo& device, std::size_t max_candidates,
                 const std::vector<std::string>& families = {});
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
