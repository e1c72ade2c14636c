// How many small mistakes in the kernels the admission gate finds: makes mutants of their sources,
// judges them, and writes one line of JSON each. A run goes on where the last one with this --out
// stopped. tests/mutants/README.md says how to read the results.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "build/headers.h"
#include "tests/mutants/judge.h"
#include "tests/mutants/report.h"
#include "tests/mutants/trials.h"
#include "tests/tools/source_folder.h"

namespace ac::mutants {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  JudgeOptions judge;
  fs::path out;
  std::string family, only;
  fs::path names;
  std::size_t sample = 0;
  unsigned seed = 1, shard = 0, shards = 1;
  bool list = false;
  int limit_s = 0, per_family = 0;
  fs::path equivalent = source_folder() / "tests/mutants/equivalent.txt";
  fs::path known = source_folder() / "tests/mutants/survivors.txt";
  fs::path report;
  bool check = false;
};

// A number that orders mutants at random, and stays the same when others come or go.
std::uint64_t lot_of(const Mutant& mutant, unsigned seed) {
  std::uint64_t lot = 14695981039346656037u + seed * 0x9e3779b97f4a7c15u;
  for (const char c : mutant.id) lot = (lot ^ static_cast<unsigned char>(c)) * 1099511628211u;
  lot ^= lot >> 32, lot *= 0xd6e8feb86659fd93u, lot ^= lot >> 32;
  return lot;
}

// A file's ids, one a line with anything behind it; or, of results, those of the survivors.
std::set<std::string> names_in(const fs::path& file) {
  std::ifstream in(file);
  if (!in) bad_input("{}: cannot be read", file.string());
  std::set<std::string> names;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.starts_with("#")) continue;
    if (!line.starts_with("{")) {
      names.insert(line.substr(0, line.find(' ')));
      continue;
    }
    const Json result = parse_json(line, file.string());
    if (result.at("outcome") == to_string(Outcome::survived))
      names.insert(result.at("id").get<std::string>());
  }
  return names;
}

// As many of each family, as far as it has them, in an order that mixes them.
std::vector<Mutant> chosen(const std::map<std::string, std::string>& headers,
                           const Arguments& arguments) {
  std::map<std::string, std::vector<std::pair<std::uint64_t, Mutant>>> families;
  std::set<std::string> names;
  if (!arguments.names.empty()) names = names_in(arguments.names);
  for (const auto& [name, text] : headers)
    for (Mutant& mutant : mutants_of(name, text)) {
      const std::string family = family_of_header(name);
      if (!arguments.names.empty() && names.erase(mutant.id) == 0) continue;
      if (!arguments.family.empty() && arguments.family != family) continue;
      if (mutant.id.find(arguments.only) == std::string::npos) continue;
      families[family].emplace_back(lot_of(mutant, arguments.seed), std::move(mutant));
    }
  for (const std::string& name : names)
    fmt::print(stderr, "{}: no mutant has this name now\n", name);
  std::vector<std::pair<std::size_t, Mutant>> all;
  for (auto& [family, mutants] : families) {
    std::ranges::sort(mutants, {}, [](const auto& one) { return one.first; });
    for (std::size_t i = 0; i < mutants.size(); ++i)
      all.emplace_back(i, std::move(mutants[i].second));
  }
  std::ranges::stable_sort(all, {}, [](const auto& one) { return one.first; });
  std::vector<Mutant> mutants;
  for (auto& [round, mutant] : all) {
    if (arguments.sample > 0 && mutants.size() == arguments.sample) break;
    mutants.push_back(std::move(mutant));
  }
  std::vector<Mutant> mine;
  for (std::size_t i = arguments.shard; i < mutants.size(); i += arguments.shards)
    mine.push_back(std::move(mutants[i]));
  return mine;
}

std::set<std::string> known_of(const fs::path& out) {
  std::set<std::string> known;
  std::ifstream file(out);
  for (std::string line; std::getline(file, line);)
    known.insert(parse_json(line, out.string()).at("id").get<std::string>());
  return known;
}

// Those that a mutant may change: all, or so many of each family that one of the mutants is of.
std::vector<test::FamilyTrial> trials_for(const std::vector<Mutant>& mutants,
                                          const fs::path& sources, int per_family) {
  std::vector<test::FamilyTrial> trials = all_trials();
  std::set<std::string> files;
  for (const Mutant& mutant : mutants) files.insert("kernels/" + mutant.file);
  Headers headers(sources);
  const auto may_change = [&](const KernelSource& source) {
    return std::ranges::any_of(headers.reached_by(source.text),
                               [&](const Header* header) { return files.contains(header->name); });
  };
  std::erase_if(trials, [&](const test::FamilyTrial& trial) {
    return std::ranges::none_of(trial.request.sources, may_change);
  });
  if (per_family == 0) return trials;
  std::map<std::string, int> left;
  for (const Mutant& mutant : mutants) left[family_of_header(mutant.file)] = per_family;
  // What turns and appends is judged with the attention behind it.
  left["prefill_attention"] = std::max(left["prefill_attention"], left["rope_append"]);
  std::erase_if(trials, [&](const test::FamilyTrial& trial) { return left[trial.family]-- <= 0; });
  return trials;
}

int print_report(const Arguments& arguments) {
  const auto equivalent = read_arguments(arguments.equivalent);
  fmt::print("{}", markdown(report_of(read_results(arguments.report), equivalent)));
  return 0;
}

// Whether all survivors are recorded ones.
bool all_known(const Report& report, const Arguments& arguments) {
  const auto known = read_arguments(arguments.known);
  bool all = true;
  for (const Json& survivor : report.survivors) {
    if (known.contains(survivor.at("id"))) continue;
    all = false;
    fmt::print("not recorded in {}: {}\n", arguments.known.string(),
               survivor.at("id").get<std::string>());
  }
  return all;
}

int run(const Arguments& arguments) {
  if (!arguments.report.empty()) return print_report(arguments);
  const auto headers = mutated_headers(arguments.judge.sources);
  std::vector<Mutant> mutants = chosen(headers, arguments);
  if (arguments.list) {
    for (const Mutant& mutant : mutants)
      fmt::print("{:30} line {:3}  {}\n", mutant.id, mutant.line,
                 describe(headers.at(mutant.file), mutant));
    fmt::print("{} mutants\n", mutants.size());
    return 0;
  }
  if (!arguments.out.empty()) {
    const auto known = known_of(arguments.out);
    std::erase_if(mutants, [&](const Mutant& mutant) { return known.contains(mutant.id); });
  }
  std::vector<test::FamilyTrial> trials =
      trials_for(mutants, arguments.judge.sources, arguments.per_family);
  std::map<std::string, int> of_family;
  for (const test::FamilyTrial& trial : trials) ++of_family[trial.family];
  fmt::print(stderr, "{} mutants, {} trials:", mutants.size(), trials.size());
  for (const auto& [family, count] : of_family) fmt::print(stderr, " {} {}", count, family);
  fmt::print(stderr, "\n");
  const MutantJudge judge(std::move(trials), arguments.judge);
  std::ofstream out;
  if (!arguments.out.empty()) out.open(arguments.out, std::ios::app);
  if (!out) bad_input("{}: cannot be written", arguments.out.string());
  std::vector<Json> results;
  judge.judge(mutants, [&](std::size_t i, const Json& result) {
    if (result.is_null()) return;
    const Mutant& mutant = mutants[i];
    Json line{{"id", mutant.id},
              {"family", family_of_header(mutant.file)},
              {"line", mutant.line},
              {"change", mutant.change},
              {"text", describe(headers.at(mutant.file), mutant)}};
    line.update(result);
    if (out.is_open())
      out << line.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
    results.push_back(std::move(line));
  });
  if (!arguments.out.empty()) results = read_results(arguments.out);  // also of earlier runs
  const Report report = report_of(results, read_arguments(arguments.equivalent));
  fmt::print("{}", text(report));
  return !arguments.check || all_known(report, arguments) ? 0 : 1;
}

}  // namespace
}  // namespace ac::mutants

int main(int count, char** arguments) try {
  using namespace ac::mutants;
  Arguments all;
  all.judge.sources = ac::source_folder();
  CLI::App app("Judges mutants of the kernels by the admission gate.", "mutants");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // of mutants.sh's
  app.add_option("--kernels", all.judge.sources, "the folder that holds kernels/");
  app.add_option("--work", all.judge.work, "where kernels without a mutation are kept");
  app.add_option("--out", all.out, "a file of results that is added to; what it has is left out");
  app.add_option("--compiler", all.judge.compiler, "the host compiler");
  app.add_option("--jobs", all.judge.jobs, "mutants at once");
  app.add_option("--sample", all.sample, "so many mutants, over all families; 0: all");
  app.add_option("--seed", all.seed, "of the sample");
  app.add_option("--family", all.family, "of one family alone");
  app.add_option("--id", all.only, "whose id contains this");
  app.add_option("--names", all.names,
                 "a file of names, one a line; or results, whose survivors are judged again");
  app.add_option("--shard", all.shard, "which of --shards parts, from 0");
  app.add_option("--shards", all.shards, "parts that are run apart")->check(CLI::PositiveNumber);
  app.add_option("--trials", all.judge.most_trials, "that a mutant has to pass");
  app.add_option("--cpu", all.judge.cpu_seconds, "seconds of processor time for one trial");
  app.add_option("--seconds", all.limit_s, "no mutant is begun after so many; 0: all are");
  app.add_option("--equivalent", all.equivalent, "arguments why mutants are equivalent");
  app.add_option("--known", all.known, "survivors that --check expects");
  app.add_flag("--check", all.check, "fails if a survivor is not a known one");
  app.add_option("--report", all.report, "prints what these results say, and judges nothing");
  app.add_option("--per-family", all.per_family,
                 "trials of each family that mutants are of, not judged without one; 0: all");
  app.add_flag("--list", all.list, "prints the mutants and judges none");
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const ac::TemporaryFolder folder;
  all.judge.judge_baselines = all.per_family == 0;
  if (all.judge.work.empty()) all.judge.work = folder.path();
  all.judge.all = std::chrono::seconds(all.limit_s);
  return run(all);
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 1;
}
