#include "select/choose_together.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "admit/trials.h"
#include "base/error.h"
#include "generate/each_row.h"
#include "ir/positions.h"
#include "select/choose_phase.h"
#include "select/decide.h"

namespace ac {
namespace {

class Chooser {
 public:
  Chooser(const PhaseSpec& spec, const StepGraph& step, const PhaseChoice& decode,
          const Program& program, const TogetherOptions& options, Lab& lab, Progress& progress)
      : step_(step), decode_(decode), options_(options), lab_(lab), progress_(progress) {
    CompiledPhase& record = made_.record;
    record.spec = spec;
    record.regions.step = step;
    for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
      record.regions.node_work.push_back(work_of(step.graph, static_cast<NodeId>(i)));
    record.plans.device = options.device;
    record.plans.options.at = priced_at(spec.tuned_at, program.max_context);
    record.ending = admit_ending_of_rows(step, program, lab);
    setting_.multiprocessors = options.device.multiprocessors;
    for (const StateSpec& state : program.states) setting_.slots.push_back(state.slots);
    setting_of_rows_ = setting_;
    setting_of_rows_.rows = static_cast<int>(std::min<std::int64_t>(tokens(), kMostRowsAtOnce));
    trial_setting_ = {spec.max_tokens, setting_, lab.on_gpu(), program.max_context};
    measure_.states = program.states;
  }

  PhaseChoice choose() {
    for (const StepVariant& of_one : decode_.variants) {
      StepVariant& variant = made_.variants.emplace_back();
      variant.from = of_one.from;
      for (std::size_t i = 0; i < of_one.choices.size(); ++i)
        // What only chooses the token comes behind the step, under each sequence's mask.
        if (of_one.choices[i].wanted)
          variant.parts.push_back(part_of(of_one.choices[i], of_one.parts[i]));
    }
    return std::move(made_);
  }

 private:
  const Bindings& at() const { return made_.record.plans.options.at; }
  std::int64_t tokens() const { return made_.record.spec.tuned_at; }

  Implemented part_of(const PartChoice& chosen, const Implemented& of_one) {
    Implemented each = of_one;
    each.each_row = true;
    if (!chosen.choice) return each;
    if (std::optional<Implemented> product = product_of(chosen, of_one)) return *product;
    if (at_once(chosen, of_one)) each.made = *rows_of(chosen);
    return each;
  }

  // Launches for all rows, if there can be any.
  std::optional<Generated> rows_of(const PartChoice& chosen) const {
    const Bindings one{.T = 1, .P = at().P};
    return for_rows(generate_for(decode_.record.regions.step, *chosen.wanted, *chosen.choice, one,
                                 setting_of_rows_),
                    kMostRowsAtOnce);
  }

  // Whether one launch for all rows is faster than one for each, and admitted.
  bool at_once(const PartChoice& chosen, const Implemented& of_one) {
    std::string entries;
    for (const KernelSource& source : of_one.made.sources) entries += source.entry + " ";
    const auto [known, is_new] = at_once_.try_emplace(entries);
    if (is_new && admit_rows(chosen, of_one)) known->second = made_.record.selections.size() - 1;
    if (!known->second) return false;
    ++made_.record.selections[*known->second].uses;
    return true;
  }

  bool admit_rows(const PartChoice& chosen, const Implemented& of_one) {
    const std::optional<Generated> rows = rows_of(chosen);
    if (!rows) return false;
    const StepGraph& one = decode_.record.regions.step;
    const Candidate candidate{id_of(*chosen.choice), kind_of(*chosen.choice), *chosen.choice, {}};
    TrialSetting setting = trial_setting_;
    setting.max_tokens = 1, setting.setting = setting_of_rows_;
    const auto quick = trial_of(one, chosen.wanted, candidate, setting);
    const auto used = confirmation_of(one, chosen.wanted, candidate, setting);
    if (!quick || !used) return false;
    std::vector<Request> requests{*quick};
    requests.insert(requests.end(), used->begin(), used->end());
    for (Request& request : requests) {
      auto of_rows = trial_of_rows(std::move(request));
      if (!of_rows) return false;
      request = *std::move(of_rows);
    }
    lab_.build(rows->sources);
    const std::vector<Outcome> outcomes = lab_.judge(requests);
    Selection selection;
    selection.signature = fmt::format("{} for each row", signature_of(*chosen.wanted));
    selection.ops = op_names(chosen.wanted->region);
    selection.category = chosen.wanted->region.category;
    selection.candidate = candidate.id, selection.family = family_of(*chosen.choice);
    selection.attempts = {{candidate.id, 0, {}, outcomes[0]}};
    for (const Outcome& outcome : outcomes)
      if (!outcome.admitted()) {
        progress_.note(fmt::format("{}: rows run one by one ({})", candidate.id, outcome.why));
        return false;
      }
    if (!is_faster(*rows, of_one, candidate.id)) return false;
    selection.trials = {to_json(requests[0].trial)};
    for (std::size_t i = 1; i < requests.size(); ++i)
      selection.confirmed.push_back({candidate.id, requests[i].trial.purpose, outcomes[i]});
    for (const KernelSource& source : rows->sources) selection.kernels.push_back(source.entry);
    made_.record.selections.push_back(std::move(selection));
    return true;
  }

  // Than a launch for each row. Where nothing is timed, it is taken to be.
  bool is_faster(const Generated& rows, const Implemented& of_one, const std::string& id) {
    if (!lab_.measures()) return true;
    MeasureOptions all = measure_;
    all.tokens = 1, all.rows = tokens();
    all.position = made_.record.plans.options.at.P;
    const Lab::Race race =
        lab_.race(decode_.record.regions.step, {{id + " at once", rows}, {id, of_one.made}}, all);
    if (!race.failed.empty()) {
      progress_.note(fmt::format("{}: rows run one by one (not timed: {})", id, race.failed));
      return false;
    }
    progress_.note(fmt::format("{} rows of {}: {:.1f} us at once, {:.1f} us one by one", tokens(),
                               id, race.microseconds[0], race.microseconds[1]));
    return race.microseconds[0] < race.microseconds[1];
  }

  std::optional<Implemented> product_of(const PartChoice& chosen, const Implemented& of_one) {
    std::vector<NodeId> nodes;
    for (const NodeId id : chosen.wanted->region.nodes)
      if (is_compute(step_.graph[id])) nodes.push_back(id);
    auto region = make_region(step_, nodes);
    if (!std::holds_alternative<Region>(region)) return std::nullopt;
    const Wanted wanted{std::get<Region>(std::move(region))};
    const auto matched = match_again(*chosen.choice, step_, wanted, at());
    if (!matched) return std::nullopt;
    const std::string order = order_of(with_plan_of(*chosen.choice, *matched));
    if (order.empty()) return std::nullopt;
    const auto [known, is_new] = products_.try_emplace({signature_of(wanted), order});
    if (is_new) known->second = select(wanted, order, *chosen.choice, of_one);
    if (!known->second.candidate) return std::nullopt;
    if (known->second.selection) ++made_.record.selections[*known->second.selection].uses;
    const Candidate& candidate = *known->second.candidate;
    const std::string& module = wanted.region.module;
    return Implemented{generate_for(step_, wanted, candidate.choice, at(), setting_),
                       candidate.id + (module.empty() ? "" : " at " + module)};
  }

  // A product of several tokens; without a candidate, each row is computed by itself.
  struct Product {
    std::optional<Candidate> candidate = {};
    std::optional<std::size_t> selection = {};
  };

  // Microseconds of all rows, if each is computed by itself; nothing where nothing is timed.
  std::optional<double> time_each(const Implemented& of_one) {
    MeasureOptions one = measure_;
    one.tokens = 1;
    const Lab::Race race =
        lab_.race(decode_.record.regions.step, {{of_one.note, of_one.made}}, one);
    if (!race.failed.empty()) return std::nullopt;
    return race.microseconds.at(0) * static_cast<double>(tokens());
  }

  Product select(const Wanted& wanted, const std::string& order, const Choice& of_decode,
                 const Implemented& of_one) {
    Space space = plan_space(step_, wanted, at(), options_.device, options_.max_candidates,
                             options_.families, {order});
    std::vector<std::size_t> indices = diverse_order(space);
    indices.resize(std::min(indices.size(), options_.tries));
    std::vector<KernelSource> sources;
    const auto made_of = [&](std::size_t i) {
      return generate_for(step_, wanted, space.candidates[i].choice, at(), setting_);
    };
    for (const std::size_t i : indices)
      for (const KernelSource& source : made_of(i).sources) sources.push_back(source);
    lab_.build(sources);
    std::erase_if(indices, [&](std::size_t i) {
      return std::ranges::any_of(made_of(i).sources, [&](const KernelSource& source) {
        return lab_.failure(source.entry) != nullptr;
      });
    });

    Selection selection;
    selection.signature = space.signature;
    selection.ops = op_names(wanted.region);
    selection.category = wanted.region.category;
    selection.work = evaluate(wanted.region.work, at());
    selection.enumerated = space.enumerated, selection.legal = space.legal;
    selection.illegal = space.illegal, selection.refusals = space.refusals;
    std::map<std::size_t, double> measured;
    std::optional<double> each;
    if (lab_.measures() && !indices.empty()) {
      each = time_each(of_one);
      std::vector<Contender> contenders;
      for (const std::size_t i : indices)
        contenders.push_back({space.candidates[i].id, made_of(i)});
      MeasureOptions all = measure_;
      all.tokens = tokens();
      const Lab::Race race = lab_.race(step_, contenders, all);
      selection.why_unmeasured = race.failed;
      for (std::size_t c = 0; c < race.microseconds.size(); ++c)
        measured[indices[c]] = race.microseconds[c];
      if (race.failed.empty())
        std::ranges::stable_sort(indices, {}, [&](std::size_t i) { return measured.at(i); });
    }
    Product product;
    for (const std::size_t i : indices) {
      const Candidate& candidate = space.candidates[i];
      if (each && measured.contains(i) && measured.at(i) >= *each) break;
      Attempt attempt{candidate.id, candidate.cost.microseconds, {}, {}};
      if (measured.contains(i)) attempt.measured = measured.at(i);
      const bool admitted = admit(wanted, candidate, attempt, selection);
      selection.attempts.push_back(attempt);
      if (!admitted) continue;
      selection.candidate = candidate.id, selection.family = family_of(candidate.choice);
      selection.predicted = candidate.cost.microseconds;
      selection.measured = attempt.measured;
      for (const KernelSource& source : made_of(i).sources)
        selection.kernels.push_back(source.entry);
      product.candidate = candidate;
      product.selection = made_.record.selections.size();
      break;
    }
    progress_.note(
        fmt::format("{} tokens of {}: {}{}", tokens(), id_of(of_decode),
                    product.candidate ? product.candidate->id : "each by itself",
                    each && selection.measured
                        ? fmt::format(", {:.1f} us, and {:.1f} us if each is computed by itself",
                                      *selection.measured, *each)
                        : ""));
    if (!product.candidate) return product;
    made_.record.regions.regions.push_back(wanted.region);
    made_.record.plans.space_of_region.push_back(
        static_cast<int>(made_.record.plans.spaces.size()));
    made_.record.plans.spaces.push_back(std::move(space));
    made_.record.selections.push_back(std::move(selection));
    return product;
  }

  // By the quick trial, and as it is used.
  bool admit(const Wanted& wanted, const Candidate& candidate, Attempt& attempt,
             Selection& selection) {
    const auto quick = trial_of(step_, wanted, candidate, trial_setting_);
    const auto used = confirmation_of(step_, wanted, candidate, trial_setting_);
    if (!quick || !used) {
      attempt.outcome = does_not_fit();
      return false;
    }
    std::vector<Request> requests{*quick};
    requests.insert(requests.end(), used->begin(), used->end());
    const std::vector<Outcome> outcomes = lab_.judge(requests);
    attempt.outcome = outcomes[0];
    for (const Outcome& outcome : outcomes)
      if (!outcome.admitted()) {
        attempt.outcome = outcome;
        return false;
      }
    selection.trials = {to_json(quick->trial)};
    selection.confirmed.clear();
    for (std::size_t i = 1; i < requests.size(); ++i)
      selection.confirmed.push_back({candidate.id, requests[i].trial.purpose, outcomes[i]});
    return true;
  }

  const StepGraph& step_;
  const PhaseChoice& decode_;
  const TogetherOptions& options_;
  Lab& lab_;
  Progress& progress_;
  Setting setting_, setting_of_rows_;
  TrialSetting trial_setting_;
  MeasureOptions measure_;
  // The selection of those that do, by the kernels of one row.
  std::map<std::string, std::optional<std::size_t>> at_once_;
  std::map<std::pair<std::string, std::string>, Product> products_;  // by signature and order
  PhaseChoice made_;
};

}  // namespace

PhaseChoice choose_together(const PhaseSpec& spec, const StepGraph& step, const PhaseChoice& decode,
                            const Program& program, const TogetherOptions& options, Lab& lab,
                            Progress& progress) {
  return Chooser(spec, step, decode, program, options, lab, progress).choose();
}

}  // namespace ac
