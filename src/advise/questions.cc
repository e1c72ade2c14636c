#include "advise/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/cover.h"

namespace ac {
namespace {

constexpr std::size_t kMaxFusionsShown = 6;
constexpr std::size_t kAll = static_cast<std::size_t>(-1);

// The kinds that the cost model knows least about, or what is worth a question by its time.
std::string why_ask(const Wanted& wanted, double share, double enough) {
  const Region& region = wanted.region;
  const auto products = std::count(region.ops.begin(), region.ops.end(), Op::linear) +
                        std::count(region.ops.begin(), region.ops.end(), Op::matmul);
  const auto epilogue = static_cast<std::ptrdiff_t>(region.ops.size()) - products;
  if (region.category == Category::mixed) return "a mixed region";
  if (region.category == Category::gemm_epilogue && epilogue > 1)
    return "a product with a complex epilogue";
  if (region.category == Category::reduction_pointwise) return "a reduction with arithmetic";
  return share >= enough ? fmt::format("{:.1f} % of the step", 100 * share) : "";
}

class Asker {
 public:
  Asker(const std::string& phase, const Regions& regions, const Plans& plans)
      : phase_(phase), regions_(regions), plans_(plans) {}

  std::vector<Question> run(double enough, bool of_all_cuts) {
    const auto cost = [&](int space) { return predicted(space); };
    // A region of layers is too long to ask about.
    for (const CoverPart& part :
         choose_cover(regions_, plans_, cost, without_layers(regions_, plans_, cost))) {
      add(part);
      total_ += cost_of(part);
    }
    if (of_all_cuts) {
      std::set<int> covered;
      for (const auto& [space, question] : questions_) covered.insert(space);
      for (const CoverPart& part : parts_of_all_cuts(regions_, plans_))
        if (covered.count(part.space) == 0) add(part);
    }
    std::vector<Question> asked;
    for (auto& [space, question] : questions_) {
      question.share /= total_;
      question.why = why_ask(question.wanted, question.share, enough);
      if (question.why.empty() || question.space.candidates.size() < 2) continue;
      question.legal = plan_space(regions_.step, question.wanted, question.at, question.device,
                                  kAll, plans_.options.families)
                           .candidates;
      asked.push_back(std::move(question));
    }
    return asked;
  }

 private:
  // Microseconds of the best.
  std::optional<double> predicted(int space) const {
    if (space < 0) return std::nullopt;
    const std::vector<Candidate>& all = plans_.spaces[static_cast<std::size_t>(space)].candidates;
    return all.empty() ? std::nullopt : std::optional(all[0].cost.microseconds);
  }

  double cost_of(const CoverPart& part) const {
    if (const auto microseconds = predicted(part.space)) return *microseconds;
    if (!part.wanted) return 0;
    const Amount work = evaluate(part.wanted->region.work, plans_.options.at);
    return (plans_.device.launch + double(work.bytes()) / plans_.device.bandwidth) * 1e6;
  }

  void add(const CoverPart& part) {
    const auto microseconds = predicted(part.space);
    if (!part.wanted || part.wanted->region.layers > 0 || !microseconds) return;
    const auto [known, is_new] = questions_.try_emplace(part.space);
    if (is_new)
      known->second = question_for(part);
    else
      ++known->second.uses;
    known->second.share += *microseconds;
  }

  Question question_for(const CoverPart& part) const {
    Question question;
    question.phase = phase_;
    question.step = &regions_.step;
    question.wanted = *part.wanted;
    question.device = plans_.device;
    question.at = plans_.options.at;
    question.space = plans_.spaces[static_cast<std::size_t>(part.space)];
    question.fusions = fusions_of(part.space);
    return question;
  }

  // Of the first neighbourhood that this space has a part in; the cheapest such cut is the current
  // one.
  std::vector<FusionChoice> fusions_of(int space) const {
    const auto has_it = [&](const FusionOption& option) {
      return std::any_of(option.parts.begin(), option.parts.end(),
                         [&](const Part& part) { return part.space == space; });
    };
    const std::vector<Neighbourhood>& all = plans_.neighbourhoods;
    for (std::size_t n = 0; n < all.size(); ++n) {
      const std::vector<FusionOption>& options = all[n].options;
      if (std::none_of(options.begin(), options.end(), has_it)) continue;
      std::vector<FusionChoice> choices;
      std::size_t current = kAll;
      for (std::size_t o = 0; o < options.size() && choices.size() < kMaxFusionsShown; ++o) {
        if (options[o].refused) continue;
        if (has_it(options[o]) &&
            (current == kAll || options[o].microseconds < choices[current].microseconds))
          current = choices.size();
        choices.push_back({options[o].text, options[o].microseconds, false, n, o});
      }
      if (current == kAll || choices.size() < 2) return {};
      choices[current].current = true;
      return choices;
    }
    return {};
  }

  const std::string& phase_;
  const Regions& regions_;
  const Plans& plans_;
  std::map<int, Question> questions_;  // by space
  double total_ = 0;                   // microseconds of the step
};

}  // namespace

std::vector<Question> questions_about(const std::string& phase, const Regions& regions,
                                      const Plans& plans, double share, bool of_all_cuts) {
  return Asker(phase, regions, plans).run(share, of_all_cuts);
}

}  // namespace ac
