#include "study/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/files.h"
#include "study/plot.h"

namespace ac::study {
namespace {

std::string interval(const Interval& of, double scale = 1, int digits = 3) {
  return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", of.mean * scale, digits, of.low * scale, digits,
                     of.high * scale, digits);
}

std::vector<std::size_t> shown(const Replayed& replayed) {
  std::vector<std::size_t> attempts;
  for (const std::size_t n : kShown)
    if (n <= replayed.options.attempts) attempts.push_back(n);
  return attempts;
}

std::size_t searches(const ArmResult& arm) {
  std::size_t count = 0;
  for (const std::vector<Curve>& repetitions : arm.shares) count += repetitions.size();
  return count;
}

// A strategy without advice or proposals.
bool is_alone(const std::string& arm) {
  return !arm.starts_with("advice") && !arm.starts_with("proposals");
}

// The strategy of "proposals+tree (no feedback)".
std::string alone(const std::string& arm) {
  const std::size_t plus = arm.find('+'), end = arm.find(" (");
  return plus == std::string::npos ? "" : arm.substr(plus + 1, end - plus - 1);
}

// Of a difference, what is shown as 0.
constexpr double kNothing = 5e-5;
// The report shows at most so many requests of a space.
constexpr std::size_t kMostRequests = 100;

// Whether tree search beats random order, of spaces that are steps.
void add_finding(const Replayed& replayed, const ReplayGroup& group, std::string& out) {
  if (group.cases.size() > 1 || !replayed.cases[group.cases[0]].is_step) return;
  const auto found =
      std::find_if(group.comparisons.begin(), group.comparisons.end(),
                   [](const Comparison& of) { return of.arm == "tree" && of.against == "random"; });
  if (found == group.comparisons.end()) return;
  out +=
      "\nTree search against random order at equal attempts, in percentage points of the optimum "
      "(95 % interval):\n\n";
  for (const std::size_t n : shown(replayed)) {
    const Interval& of = found->difference[n - 1];
    const char* verdict = of.low > kNothing     ? "tree search is ahead"
                          : of.high < -kNothing ? "random order is ahead"
                                                : "the interval does not tell them apart";
    out += fmt::format("- after {}: {}; {}\n", n, interval(of, 100, 2), verdict);
  }
  out +=
      "\nOf one step the interval is of the seeds of random order: it says nothing of other "
      "steps.\n";
}

// Mean of best / optimum - 1 over searches that had measured something, and the part that had not.
struct Regret {
  double mean = 0, nothing = 0;
};
Regret regret(const ArmResult& arm, std::size_t attempts) {
  Regret regret;
  double weights = 0;
  for (const std::vector<Curve>& repetitions : arm.shares)
    for (const Curve& curve : repetitions) {
      const double weight = 1.0 / static_cast<double>(arm.shares.size() * repetitions.size());
      const double share = curve[attempts - 1];
      if (share > 0)
        regret.mean += weight * (1 / share - 1), weights += weight;
      else
        regret.nothing += weight;
    }
  if (weights > 0) regret.mean /= weights;
  return regret;
}

std::string file_of(std::size_t group) {
  return group == 0 ? "curves.svg" : fmt::format("curves-{}.svg", group);
}

std::string recorded_sum(double of) {
  return of > 0 ? fmt::format("{:.0f}, as far as they were recorded", of) : "not recorded";
}

// Text from outside in a cell of a table.
std::string cell(const std::string& text) {
  std::string shown;
  for (const char c : text)
    if (c == '<')
      shown += "&lt;";
    else if (std::string_view("|\\`*_[]").find(c) != std::string_view::npos)
      shown += {'\\', c};
    else
      shown += c;
  return shown;
}

void add_requests_made(const Replayed& replayed, std::string& out) {
  out +=
      "\n## Requests\n\nWhat people were asked to add to a space, in the advisor's words. It was "
      "not looked at further, and nothing of it was run.\n\n";
  std::string rows;
  for (std::size_t i = 0; i < replayed.cases.size(); ++i)
    for (std::size_t r = 0; r < replayed.requests[i].size(); ++r) {
      const auto& [of, times] = replayed.requests[i][r];
      if (r == kMostRequests) {
        rows += fmt::format("| {} | | and {} more | | | |\n", cell(replayed.cases[i].name),
                            replayed.requests[i].size() - r);
        break;
      }
      rows += fmt::format("| {} | {} | {} = {} | {} | {} | {} |\n", cell(replayed.cases[i].name),
                          cell(of.site), cell(of.field), cell(of.value), times,
                          of.is_known ? "known: the space has it" : "", cell(of.why));
    }
  out += rows.empty()
             ? "There is none.\n"
             : "| space | site | request | times | | why |\n|---|---|---|---|---|---|\n" + rows;
}

void add_sources(const Replayed& replayed, std::string& out) {
  out += "## Tables\n\n";
  for (const Json& header : replayed.headers) {
    const auto text = [&](const char* field) {
      const Json value = header.value(field, Json());
      return value.is_string() ? value.get<std::string>() : value.dump();
    };
    out +=
        fmt::format("- {}: {}, driver {}, {}, commit {}, {}: `{}`\n", text("model"), text("device"),
                    text("driver"), text("toolkit"), text("commit"), text("date"), text("command"));
    for (const Json& resumed : header.value("resumed", Json::array()))
      out += fmt::format("  - resumed with commit {}, {}: `{}`\n", resumed.value("commit", ""),
                         resumed.value("date", ""), resumed.value("command", ""));
  }
  std::size_t points = 0, failures = 0, unjudged = 0;
  for (const Case& of : replayed.cases)
    points += of.outcomes.size(), failures += of.failures, unjudged += of.unjudged;
  out += fmt::format(
      "\n{} spaces with {} points, of which {} could not be measured. {} were timed without having "
      "been admitted.\n",
      replayed.cases.size(), points, failures, unjudged);
  for (const std::string& skipped : replayed.skipped)
    out += fmt::format("- left out: {}\n", skipped);
  if (replayed.proposed.calls > 0)
    out += fmt::format("\n## Proposals\n\n{} calls were answered by {}, {}.\n",
                       replayed.proposed.calls,
                       replayed.proposed.models.empty() ? "nobody that was named"
                                                        : *replayed.proposed.models.begin(),
                       fmt::join(replayed.proposed.dates, ", "));
  if (replayed.takes_requests) add_requests_made(replayed, out);
  out += "\n## Advice\n\n";
  if (replayed.other_replies > 0)
    out += fmt::format("{} replies are about regions of no table.\n\n", replayed.other_replies);
  if (replayed.advisors.empty()) {
    out +=
        "No replies of an LLM are about what is searched: its arm, and the falsifiers of its "
        "advice, are empty.\n";
    return;
  }
  out += fmt::format("{} replies of:\n", replayed.replies);
  for (const std::string& advisor : replayed.advisors) out += fmt::format("- {}\n", advisor);
  out += fmt::format(
      "\nTokens: {}; seconds: {}. {} of the {} plans that they name are in these tables; the rest "
      "is "
      "left out.\n",
      recorded_sum(replayed.reply_tokens), recorded_sum(replayed.reply_seconds),
      replayed.known_plans, replayed.named_plans);
  if (!replayed.unadvised.empty())
    out +=
        "\nNo reply is about these. Arms with advice are compared, with each other and with arms "
        "without it, on the other regions alone:\n";
  for (const std::string& name : replayed.unadvised) out += fmt::format("- {}\n", name);
}

bool is_strategy(const std::string& arm) {
  return arm != "oracle" && arm != "random (exact)" && is_alone(arm);
}

// The arm without advice that needs the fewest attempts on a case of the group, and how many.
std::pair<std::string, double> easiest(const ReplayGroup& group, std::size_t of) {
  std::pair<std::string, double> best;
  for (const ArmResult& arm : group.arms)
    if (is_strategy(arm.name) && (best.first.empty() || arm.attempts[of] < best.second))
      best = {arm.name, arm.attempts[of]};
  return best;
}

void add_arms(const Replayed& replayed, const ReplayGroup& group, std::string& out) {
  out +=
      "Optimum over the best so far (1 is the optimum, 0 that nothing was measured yet), mean "
      "over spaces, with 95 % intervals:\n\n| arm | spaces | searches |";
  const std::vector<std::size_t> at = shown(replayed);
  for (const std::size_t n : at) out += fmt::format(" {} |", n);
  out += "\n|---|---|---|";
  for (std::size_t i = 0; i < at.size(); ++i) out += "---|";
  out += "\n";
  for (const ArmResult& arm : group.arms) {
    out += fmt::format("| {} | {} | {} |", arm.name, arm.cases.size(), searches(arm));
    for (const std::size_t n : at) out += fmt::format(" {} |", interval(arm.band[n - 1]));
    out += "\n";
  }
  out += fmt::format(
      "\nMean attempts to within 1, 5 and 10 % of the optimum; a search that does not get there in "
      "{} counts as {} (in brackets: the part that gets there). Simple regret: best so far over "
      "optimum, less 1.\n\n| arm | 1 % | 5 % | 10 % |",
      replayed.options.attempts, replayed.options.attempts + 1);
  for (const std::size_t n : at) out += fmt::format(" regret {} |", n);
  out += "\n|---|---|---|---|";
  for (std::size_t i = 0; i < at.size(); ++i) out += "---|";
  out += "\n";
  for (const ArmResult& arm : group.arms) {
    out += fmt::format("| {} |", arm.name);
    for (const Hit& hit : arm.hits)
      out += fmt::format(" {:.1f} ({:.0f} %) |", hit.attempts, 100 * hit.reached);
    for (const std::size_t n : at) {
      if (arm.name == "random (exact)") {
        out += " |";  // only the expected share is known exactly
        continue;
      }
      const Regret at_n = regret(arm, n);
      out += fmt::format(
          " {:.2f} %{} |", 100 * at_n.mean,
          at_n.nothing > 0 ? fmt::format(" ({:.0f} % nothing)", 100 * at_n.nothing) : "");
    }
    out += "\n";
  }
  const ArmResult* least = nullptr;
  for (const ArmResult& arm : group.arms)
    if (is_strategy(arm.name) &&
        (!least || arm.hits[kCounted].attempts < least->hits[kCounted].attempts))
      least = &arm;
  if (!least) return;
  out += fmt::format(
      "\nWithout advice, {} needs the fewest attempts to within 5 % of the optimum: {:.1f}. ",
      least->name, least->hits[kCounted].attempts);
  std::string hard;
  std::size_t count = 0;
  for (std::size_t i = 0; i < group.cases.size(); ++i) {
    const auto& [arm, attempts] = easiest(group, i);
    if (attempts < kHard) continue;
    ++count;
    hard += fmt::format("\n- {}: {}, {:.1f}", replayed.cases[group.cases[i]].name, arm, attempts);
  }
  out += fmt::format("{} of {} spaces need {} or more of the arm that is best for them{}\n", count,
                     group.cases.size(), kHard, hard.empty() ? "." : ":\n" + hard);
}

void add_comparisons(const Replayed& replayed, const ReplayGroup& group, std::string& out) {
  const std::vector<std::size_t> at = shown(replayed);
  out +=
      "\nDifferences in attempts to within 5 % of the optimum and, after so many attempts, in "
      "percentage points, paired by space, with 95 % intervals";
  out += group.cases.size() > 1
             ? " and p of a sign-flip test over kinds of spaces, which is at least 2 to the power "
               "of 1 less their number. Neither is corrected for how many there are: of twenty "
               "differences that are none, one is expected to have an interval without 0.\n\n"
             : "; of one space, intervals speak of seeds only:\n\n";
  out += "| arm | against | spaces | attempts to within 5 % |";
  for (const std::size_t n : at) out += fmt::format(" {} |", n);
  out += "\n|---|---|---|---|";
  for (std::size_t i = 0; i < at.size(); ++i) out += "---|";
  out += "\n";
  for (const Comparison& compared : group.comparisons) {
    out += fmt::format(
        "| {} | {} | {}{} |", compared.arm, compared.against, compared.spaces,
        compared.kinds < compared.spaces ? fmt::format(" of {} kinds", compared.kinds) : "");
    if (compared.attempts) out += " " + interval(*compared.attempts, 1, 1);
    if (compared.attempts && compared.spaces > 1)
      out += fmt::format(", p {:.3f}", compared.attempts_p);
    out += " |";
    for (std::size_t i = 0; i < at.size(); ++i) {
      out += fmt::format(" {}", interval(compared.difference[at[i] - 1], 100, 2));
      if (compared.spaces > 1) out += fmt::format(", p {:.3f}", compared.p[i]);
      out += " |";
    }
    out += "\n";
  }
}

void add_spaces(const Replayed& replayed, const ReplayGroup& group, std::string& out) {
  out +=
      "\nThe optimum is the least of so many medians, and so a little less than what that plan "
      "takes; "
      "by how much, the spread tells: the slowest of a point's samples over its fastest, less 1 "
      "(median over points). Where it is near 1 %, to be within 1 % is partly luck.\n\n"
      "| space | points | failures | optimum, us | within 5 % of it | spread | drift of the "
      "reference | rank correlation of prediction | of advice "
      "|\n|---|---|---|---|---|---|---|---|---|\n";
  for (const std::size_t index : group.cases) {
    const Case& of = replayed.cases[index];
    std::string advised;
    for (const double correlation : of.advised_correlation)
      advised += fmt::format("{}{:.2f}", advised.empty() ? "" : ", ", correlation);
    out += fmt::format("| {} | {} | {} | {:.3f} | {} | {:.1f} % | {} | {:.2f} | {} |\n", of.name,
                       of.outcomes.size(), of.failures, of.optimum, of.good, 100 * of.spread,
                       of.drift > 0 ? fmt::format("{:.1f} %", 100 * of.drift) : "",
                       of.predicted_correlation, advised);
  }
}

std::string tokens_text(const CallCosts& costs) {
  const char* const about = costs.counted < costs.calls ? "about " : "";
  return fmt::format("{}{:.0f} | {}{:.0f}", about, costs.prompt_tokens, about, costs.reply_tokens);
}

void add_hypotheses(const ReplayGroup& group, std::string& out) {
  const std::vector<Hypothesis> hypotheses = hypotheses_of(group);
  if (hypotheses.empty()) return;
  out +=
      "\nWhat the protocol asks: fewer attempts to within 5 % of the optimum. Where it asks two "
      "things, p is the larger; the last column is corrected for how many there are (Holm).\n\n"
      "| arm | fewer than | difference | p | corrected |\n|---|---|---|---|---|\n";
  for (const Hypothesis& of : hypotheses) {
    std::string against, difference;
    for (const Comparison* comparison : of.comparisons) {
      const char* const and_ = against.empty() ? "" : "; ";
      against += and_ + comparison->against;
      difference += and_ + interval(*comparison->attempts, 1, 1);
    }
    out += fmt::format("| {} | {} | {} | {:.3f} | {:.3f} |\n", of.arm, against, difference, of.p,
                       of.corrected);
  }
}

// Of arms that somebody was asked for, what that cost and when it pays.
void add_costs(const Replayed& replayed, const ReplayGroup& group, std::string& out) {
  if (std::ranges::none_of(group.arms, [](const ArmResult& arm) { return arm.costs.has_value(); }))
    return;
  const auto& prices = replayed.options.prices;
  out +=
      "\nWhat it cost to ask, mean of a search. A token that no service counted is taken for four "
      "bytes. What is saved is attempts to within 5 % of the optimum, against the same strategy "
      "alone; the break-even is what an attempt would have to take so that what is saved is worth "
      "the advisor's seconds";
  out += prices ? fmt::format(
                      ", or its price ({}: {} and {} for a million tokens of prompts and "
                      "replies, {} for an hour of the GPU).\n\n",
                      prices->whose, prices->input, prices->output, prices->gpu)
                : ". No prices were given.\n\n";
  out +=
      "| arm | calls | tokens of prompts | of replies | seconds | price | attempts saved | "
      "break-even by seconds | by price |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const ArmResult& arm : group.arms) {
    if (!arm.costs) continue;
    const std::string strategy = alone(arm.name);
    const auto against = std::ranges::find_if(group.comparisons, [&](const Comparison& of) {
      return of.arm == arm.name && of.against == strategy && of.attempts;
    });
    std::string saved, by_seconds, by_price;
    if (against != group.comparisons.end()) {
      const Interval& of = *against->attempts;
      saved = interval({-of.mean, -of.high, -of.low}, 1, 1);
      const BreakEven even = break_even(*arm.costs, -of.mean, prices);
      const auto seconds = [&](const std::optional<double>& at) {
        return at ? fmt::format("{:.3g} s", *at) : of.mean < 0 ? "" : "none: nothing is saved";
      };
      by_seconds = seconds(even.by_seconds), by_price = seconds(even.by_money);
    }
    out += fmt::format(
        "| {} | {:.1f} | {} | {} | {} | {} | {} | {} |\n", arm.name, arm.costs->calls,
        tokens_text(*arm.costs),
        arm.costs->seconds > 0 ? fmt::format("{:.1f}", arm.costs->seconds) : "not recorded",
        prices ? fmt::format("{:.4g}", arm.costs->money(*prices)) : "", saved, by_seconds,
        by_price);
  }
  for (const std::size_t index : group.cases) {
    const Case& of = replayed.cases[index];
    out +=
        of.attempt_seconds > 0
            ? fmt::format("\nAn attempt of {} took {:.3g} s to time", of.name, of.attempt_seconds)
            : fmt::format("\nWhat an attempt of {} took is not recorded", of.name);
    if (of.choice_seconds > 0)
      out += fmt::format(
          "; before, to plan, build and judge its choices took {:.3g} s for each, less where a "
          "cache had them",
          of.choice_seconds);
    out += ".\n";
  }
}

// How good the models are that answer what was not recorded.
void add_models(const Replayed& replayed, const ReplayGroup& group, std::string& out) {
  for (const std::size_t index : group.cases)
    if (const auto& model = replayed.cases[index].model)
      out += fmt::format(
          "\nWhat was not timed of {}, a model answers: a term for each choice of a site and each "
          "pair of choices of following sites, fitted to {} schedules. Of {} others it errs by "
          "{:.3f} "
          "% (median; 95th percentile {:.3f} %; median of the fastest 5 %: {:.3f} %), rank "
          "correlation {:.4f}. The noise of a timing is {:.3f} % (95th percentile of {} timings of "
          "the reference). The optimum is the best that was timed.\n",
          replayed.cases[index].name, model->fitted, model->held_out, 100 * model->median,
          100 * model->most, 100 * model->median_of_fastest, model->rank_correlation,
          100 * model->noise, model->references);
}

// Curves that can be told apart are few: of the falsifiers, those of advice alone.
bool is_drawn(const std::string& arm) {
  if (arm == "oracle" || arm == "random") return false;
  return arm.rfind("advice+", 0) != 0 || arm.find('(') == std::string::npos;
}

Json interval_json(const Interval& of) { return {of.mean, of.low, of.high}; }

Json intervals_json(const std::vector<Interval>& of) {
  Json json = Json::array();
  for (const Interval& one : of) json.push_back(interval_json(one));
  return json;
}

}  // namespace

std::string to_markdown(const Replayed& replayed) {
  const ReplayOptions& options = replayed.options;
  std::string out = fmt::format(
      "# Replayed searches\n\nEach search may try {} points; failures count. What depends on a "
      "seed "
      "was repeated {} times on each space (seed {}); the rest does the same each time. Intervals: "
      "hierarchical bootstrap over kinds of spaces (regions with the same ops), spaces, replies "
      "and "
      "repetitions, {} resamples. Each space counts as much as any other, whatever its share of a "
      "step.\n\n",
      options.attempts, options.repetitions, options.seed, options.resamples);
  add_sources(replayed, out);
  for (std::size_t g = 0; g < replayed.groups.size(); ++g) {
    const ReplayGroup& group = replayed.groups[g];
    out += fmt::format("\n## {}\n\n![best so far]({})\n\n", group.name, file_of(g));
    add_arms(replayed, group, out);
    add_finding(replayed, group, out);
    add_comparisons(replayed, group, out);
    add_hypotheses(group, out);
    add_costs(replayed, group, out);
    add_spaces(replayed, group, out);
    add_models(replayed, group, out);
  }
  return out;
}

Json to_json(const Replayed& replayed) {
  const ReplayOptions& options = replayed.options;
  Json cases = Json::array(), groups = Json::array();
  for (const Case& of : replayed.cases) {
    cases.push_back({{"name", of.name},
                     {"signature", of.signature},
                     {"points", of.outcomes.size()},
                     {"failures", of.failures},
                     {"not_admitted", of.unjudged},
                     {"optimum_us", of.optimum},
                     {"kind", of.kind},
                     {"within_5_percent", of.good},
                     {"spread", of.spread},
                     {"reference_drift", of.drift},
                     {"attempt_seconds", of.attempt_seconds},
                     {"choice_seconds", of.choice_seconds},
                     {"predicted_rank_correlation", of.predicted_correlation},
                     {"advised_rank_correlation", of.advised_correlation}});
    if (const auto& model = of.model)
      cases.back()["model"] = {{"fitted", model->fitted},
                               {"held_out", model->held_out},
                               {"median_error", model->median},
                               {"error_95", model->most},
                               {"median_error_of_fastest", model->median_of_fastest},
                               {"rank_correlation", model->rank_correlation},
                               {"noise", model->noise},
                               {"references", model->references}};
  }
  for (const ReplayGroup& group : replayed.groups) {
    Json arms = Json::array(), comparisons = Json::array();
    for (const ArmResult& arm : group.arms) {
      Json hits = Json::array(), by_case = Json::array();
      for (std::size_t goal = 0; goal < kGoals; ++goal)
        hits.push_back({{"within", kWithin[goal]},
                        {"attempts", arm.hits[goal].attempts},
                        {"reached", arm.hits[goal].reached}});
      for (std::size_t i = 0; i < arm.cases.size(); ++i) {
        std::vector<double> mean(options.attempts);
        for (const Curve& curve : arm.shares[i])
          for (std::size_t n = 0; n < mean.size(); ++n)
            mean[n] += curve[n] / static_cast<double>(arm.shares[i].size());
        Json at = Json::array();
        for (const std::size_t n : shown(replayed)) at.push_back(mean[n - 1]);
        by_case.push_back({{"case", arm.cases[i]},
                           {"share", std::move(at)},
                           {"share_at_end", mean.back()},
                           {"attempts_to_5_percent", arm.attempts[i]}});
      }
      arms.push_back({{"arm", arm.name},
                      {"searches", searches(arm)},
                      {"share", intervals_json(arm.band)},
                      {"to_within", std::move(hits)},
                      {"by_case", std::move(by_case)}});
      if (!arm.costs) continue;
      arms.back()["costs"] = {{"calls", arm.costs->calls},
                              {"counted_calls", arm.costs->counted},
                              {"prompt_tokens", arm.costs->prompt_tokens},
                              {"reply_tokens", arm.costs->reply_tokens},
                              {"seconds", arm.costs->seconds}};
      if (options.prices) arms.back()["costs"]["price"] = arm.costs->money(*options.prices);
    }
    for (const Comparison& compared : group.comparisons) {
      comparisons.push_back({{"arm", compared.arm},
                             {"against", compared.against},
                             {"spaces", compared.spaces},
                             {"kinds", compared.kinds},
                             {"difference", intervals_json(compared.difference)},
                             {"p", compared.p}});
      if (!compared.attempts) continue;
      comparisons.back()["attempts_to_5_percent"] = interval_json(*compared.attempts);
      comparisons.back()["attempts_p"] = compared.attempts_p;
    }
    Json hypotheses = Json::array();
    for (const Hypothesis& of : hypotheses_of(group)) {
      Json against = Json::array();
      for (const Comparison* comparison : of.comparisons) against.push_back(comparison->against);
      hypotheses.push_back({{"arm", of.arm},
                            {"against", std::move(against)},
                            {"p", of.p},
                            {"corrected_p", of.corrected}});
    }
    groups.push_back({{"group", group.name},
                      {"hypotheses", std::move(hypotheses)},
                      {"cases", group.cases},
                      {"arms", std::move(arms)},
                      {"comparisons", std::move(comparisons)}});
  }
  Json document{{"attempts", options.attempts},        {"shown", shown(replayed)},
                {"repetitions", options.repetitions},  {"seed", options.seed},
                {"resamples", options.resamples},      {"tables", replayed.headers},
                {"skipped", replayed.skipped},         {"advisors", replayed.advisors},
                {"replies", replayed.replies},         {"other_replies", replayed.other_replies},
                {"named_plans", replayed.named_plans}, {"known_plans", replayed.known_plans},
                {"unadvised", replayed.unadvised},     {"cases", std::move(cases)},
                {"groups", std::move(groups)}};
  if (replayed.proposed.calls > 0)
    document["proposals"] = {{"models", replayed.proposed.models},
                             {"dates", replayed.proposed.dates}};
  if (replayed.takes_requests) {
    Json& requests = document["requests"] = Json::array();
    for (std::size_t i = 0; i < replayed.cases.size(); ++i)
      for (const auto& [of, times] : replayed.requests[i])
        requests.push_back({{"case", i},
                            {"site", of.site},
                            {"field", of.field},
                            {"value", of.value},
                            {"why", of.why},
                            {"known", of.is_known},
                            {"times", times}});
  }
  if (const auto& prices = options.prices)
    document["prices"] = {{"whose", prices->whose},
                          {"input", prices->input},
                          {"output", prices->output},
                          {"gpu_hour", prices->gpu}};
  return document;
}

void write_report(const Replayed& replayed, const std::filesystem::path& to) {
  std::filesystem::create_directories(to);
  for (std::size_t g = 0; g < replayed.groups.size(); ++g) {
    std::vector<Line> lines;
    for (const ArmResult& arm : replayed.groups[g].arms)
      if (is_drawn(arm.name)) lines.push_back({arm.name, arm.band});
    write_file_atomically(to / file_of(g),
                          plot(replayed.groups[g].name, "optimum / best so far", lines));
  }
  write_file_atomically(to / "report.md", to_markdown(replayed));
  write_file_atomically(to / "report.json", to_json(replayed).dump() + "\n");
}

}  // namespace ac::study
