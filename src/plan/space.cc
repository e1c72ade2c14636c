#include "plan/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"

namespace ac {
namespace {

// A grid that is resident as a whole is the same whether it is called persistent or not.
template <class Task>
bool is_repeated(const Task& task, typename Task::Plan plan, const DeviceInfo& device) {
  if constexpr (requires { plan.persistent; }) {
    if (plan.persistent) return false;
    const long long grid = task.footprint(plan, device).grid;
    plan.persistent = true;
    return task.footprint(plan, device).grid == grid;
  }
  return false;
}

template <class Task>
void add_candidates(const Task& task, const DeviceInfo& device, Space& space) {
  std::map<std::string_view, std::size_t> illegal;
  for (const typename Task::Plan& plan : task.plans()) {
    ++space.enumerated;
    Choice choice = Implementation<Task>{task, plan};
    if (const char* reason = why_illegal(choice, device)) {
      ++illegal[reason];
      continue;
    }
    if (is_repeated(task, plan, device)) {
      ++illegal["the same as a persistent grid"];
      continue;
    }
    ++space.legal;
    const Cost cost = predict(choice, device);
    space.candidates.push_back({{}, {}, std::move(choice), cost});
  }
  for (const auto& [reason, count] : illegal)
    space.illegal[fmt::format("{}: {}", Task::family, reason)] += count;
}

bool has_product(const StepGraph& step, const Region& region) {
  return std::ranges::any_of(region.nodes,
                             [&](NodeId id) { return step.graph[id].op == Op::linear; });
}

void keep_orders(Space& space, const std::set<std::string>& orders) {
  const auto left_out = std::erase_if(space.candidates, [&](const Candidate& candidate) {
    return !orders.contains(order_of(candidate.choice));
  });
  if (left_out == 0) return;
  space.legal -= left_out;
  space.illegal["another order of sums"] += left_out;
}

// Elements that a thread moves at once, where that is all that plans of equal cost differ in.
int vector_of(const Choice& choice) {
  return std::visit(
      [](const auto& made) {
        if constexpr (requires { made.plan.vector; })
          return made.plan.vector;
        else
          return 0;
      },
      choice);
}

// Best first. Costs of many plans are equal, as those of all that a small problem hides behind its
// launch: then fewer and wider loads are better, and at last ids decide, so that the order is one.
void rank(Space& space) {
  for (Candidate& candidate : space.candidates) {
    candidate.id = id_of(candidate.choice);
    candidate.kind = kind_of(candidate.choice);
  }
  // Places instead of candidates: those are large.
  std::vector<std::size_t> order(space.candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t i, std::size_t j) {
    const Candidate &a = space.candidates[i], &b = space.candidates[j];
    if (a.cost.microseconds != b.cost.microseconds)
      return a.cost.microseconds < b.cost.microseconds;
    if (a.cost.risk != b.cost.risk) return a.cost.risk < b.cost.risk;
    const int wide = vector_of(a.choice), other = vector_of(b.choice);
    if (wide != other) return wide > other;
    return a.id < b.id;
  });
  std::vector<Candidate> ranked;
  ranked.reserve(order.size());
  for (const std::size_t i : order) ranked.push_back(std::move(space.candidates[i]));
  space.candidates = std::move(ranked);
}

std::string outline(const Candidate& candidate) { return std::string(outline_of(candidate.id)); }

// The best of each kind, then by rank, but few of one outline; at last whatever there is.
void bound(std::vector<Candidate>& ranked, std::size_t limit) {
  if (ranked.size() <= limit) return;
  std::vector<bool> kept(ranked.size());
  std::size_t count = 0;
  const auto keep = [&](std::size_t i) {
    if (kept[i] || count == limit) return false;
    kept[i] = true;
    ++count;
    return true;
  };
  std::set<std::string> kinds;
  std::map<std::string, std::size_t> outlines;
  for (std::size_t i = 0; i < ranked.size(); ++i)
    if (kinds.insert(ranked[i].kind).second && keep(i)) ++outlines[outline(ranked[i])];
  const std::size_t each = std::max<std::size_t>(1, limit / 16);
  for (std::size_t i = 0; i < ranked.size(); ++i)
    if (outlines[outline(ranked[i])] < each && keep(i)) ++outlines[outline(ranked[i])];
  for (std::size_t i = 0; i < ranked.size(); ++i) keep(i);
  std::vector<Candidate> chosen;
  for (std::size_t i = 0; i < ranked.size(); ++i)
    if (kept[i]) chosen.push_back(std::move(ranked[i]));
  ranked = std::move(chosen);
}

// What computes a few tokens as one and is beyond the bound: the best of it.
std::vector<Candidate> further_for_several(const std::vector<Candidate>& ranked,
                                           std::size_t limit) {
  std::vector<Candidate> few;
  for (const Candidate& candidate : ranked)
    if (computes_few_as_one(family_of(candidate.choice))) few.push_back(candidate);
  bound(few, limit);
  for (Candidate& candidate : few) candidate.for_several = true;
  return few;
}

const char* why_left_out(std::string_view family, const std::vector<std::string>& families,
                         const DeviceInfo& device) {
  if (!families.empty())
    return std::ranges::find(families, family) == families.end() ? "it is not among --families"
                                                                 : nullptr;
  return device.sm > 0 ? nullptr : why_left_out_on_host(family);
}

}  // namespace

std::string Space::no_family() const {
  if (!candidates.empty()) return {};
  std::string text = "no family fits:";
  for (const Refusal& refusal : refusals)
    text += fmt::format(" {}: {};", refusal.family, refusal.why);
  if (enumerated > 0) text += fmt::format(" none of {} plans is legal;", enumerated);
  text.pop_back();
  return text;
}

std::string signature_of(const Wanted& wanted) {
  return wanted.region.signature + (wanted.argmax ? "; argmax" : "");
}

Space plan_space(const StepGraph& step, const Wanted& wanted, const Bindings& at,
                 const DeviceInfo& device, std::size_t max_candidates,
                 const std::vector<std::string>& families, const std::set<std::string>& orders,
                 bool shared) {
  if (max_candidates == 0) wrong_usage("a region needs room for at least one candidate");
  Space space;
  space.signature = signature_of(wanted);
  for (const FamilyMatch& found : match_families(step, wanted, at)) {
    if (const auto* why = std::get_if<std::string>(&found.match))
      space.refusals.push_back({found.family, *why});
    else if (const char* reason = why_left_out(found.family, families, device))
      space.refusals.push_back({found.family, reason});
    else
      std::visit([&](const auto& matched) { add_candidates(matched.task, device, space); },
                 std::get<AnyMatched>(found.match));
  }
  if (!orders.empty() && has_product(step, wanted.region)) keep_orders(space, orders);
  rank(space);
  std::vector<Candidate> further;
  if (shared) further = further_for_several(space.candidates, max_candidates / 2);
  bound(space.candidates, max_candidates);
  for (Candidate& candidate : further)
    if (!index_in(space, candidate.id)) space.candidates.push_back(std::move(candidate));
  return space;
}

std::string_view outline_of(std::string_view id) {
  const std::size_t end = id.find('/', id.find('/') + 1);
  // The id of a kernel over rows goes on with how threads read a row, which belongs to the outline
  // ("norm/block128/shared/v8/full256").
  const std::size_t vector = id.find("/v", end);
  return id.substr(0, vector < id.size() ? id.find('/', vector + 1) : end);
}

std::vector<std::size_t> diverse_order(const Space& space) {
  std::map<std::string, std::size_t> seen;
  std::vector<std::tuple<bool, std::size_t, std::size_t>> order;  // for several, turn, rank
  for (std::size_t i = 0; i < space.candidates.size(); ++i) {
    const Candidate& candidate = space.candidates[i];
    order.emplace_back(candidate.for_several, seen[outline(candidate)]++, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> ranks;
  for (const auto& [for_several, turn, rank] : order) ranks.push_back(rank);
  return ranks;
}

Space plan_sampling(DType logits, std::int64_t vocab, const DeviceInfo& device,
                    std::size_t max_candidates) {
  Space space;
  space.signature = fmt::format("argmax {}[{}]", short_name(logits), vocab);
  const SamplingTask task{{.logits = kernel_type(logits).value_or(kernels::Type::bf16)},
                          static_cast<int>(vocab)};
  add_candidates(task, device, space);
  rank(space);
  bound(space.candidates, max_candidates);
  return space;
}

std::optional<std::size_t> index_in(const Space& space, const std::string& id) {
  const auto found = std::ranges::find(space.candidates, id, &Candidate::id);
  if (found == space.candidates.end()) return std::nullopt;
  return static_cast<std::size_t>(found - space.candidates.begin());
}

std::optional<std::size_t> find_candidate(const StepGraph& step, const Wanted& wanted,
                                          const Bindings& at, const DeviceInfo& device,
                                          Space& space, const std::string& id) {
  if (const auto index = index_in(space, id)) return index;
  const Space all = plan_space(step, wanted, at, device, std::numeric_limits<std::size_t>::max());
  const auto index = index_in(all, id);
  if (!index) return std::nullopt;
  space.candidates.push_back(all.candidates[*index]);
  return space.candidates.size() - 1;
}

}  // namespace ac
