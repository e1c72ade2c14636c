#include "tests/mutants/report.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"

namespace ac::mutants {

std::map<std::string, std::string> read_arguments(const std::filesystem::path& file) {
  std::map<std::string, std::string> arguments;
  std::ifstream in(file);
  if (!in) bad_input("{}: cannot be read", file.string());
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::size_t end = line.find(": ");
    if (end == std::string::npos || end + 2 == line.size())
      bad_input("{}:{}: a mutant's id, a colon and an argument are wanted", file.string(), number);
    arguments[line.substr(0, end)] = line.substr(end + 2);
  }
  return arguments;
}

std::vector<Json> read_results(const std::filesystem::path& file) {
  std::vector<Json> results;
  std::ifstream in(file);
  if (!in) bad_input("{}: cannot be read", file.string());
  for (std::string line; std::getline(in, line);)
    results.push_back(parse_json(line, file.string()));
  return results;
}

Report report_of(const std::vector<Json>& results,
                 const std::map<std::string, std::string>& equivalent) {
  Report report;
  for (const Json& result : results) {
    const auto outcome = result.at("outcome").get<std::string>();
    const bool argued = outcome == "survived" && equivalent.contains(result.at("id"));
    for (Rate* rate : {&report.families[result.at("family")], &report.all}) {
      if (argued)
        ++rate->argued;
      else if (outcome == "killed")
        ++rate->killed;
      else if (outcome == "survived")
        ++rate->survived;
      else if (outcome == "equal")
        ++rate->equal;
      else if (outcome == "no trial")
        ++rate->no_trial;
      else
        ++rate->not_compiled;
    }
    if (outcome == "survived" && !argued) report.survivors.push_back(result);
    if (outcome == "killed" && equivalent.contains(result.at("id")))
      report.refuted.push_back(result.at("id"));
  }
  return report;
}

namespace {

std::string row(const char* format, const std::string& name, const Rate& rate) {
  return fmt::format(fmt::runtime(format), name, rate.killed, rate.killed + rate.survived,
                     rate.percent(), rate.equal, rate.argued, rate.no_trial, rate.not_compiled);
}

}  // namespace

std::string text(const Report& report) {
  constexpr const char* kRow =
      "{:18} {:5} of {:5} killed, {:5.1f} %; {} of equal code, {} argued, {} without a trial, {} "
      "do "
      "not compile\n";
  std::string all;
  for (const auto& [family, rate] : report.families) all += row(kRow, family, rate);
  all += row(kRow, "all", report.all);
  for (const Json& one : report.survivors)
    all += fmt::format("survives: {} line {}: {}\n", one.at("id").get<std::string>(),
                       one.at("line").get<int>(), one.at("text").get<std::string>());
  for (const std::string& id : report.refuted)
    all += fmt::format("argued to be equivalent, but killed: {}\n", id);
  return all;
}

std::string markdown(const Report& report) {
  constexpr const char* kRow = "| {} | {} | {} | {:.1f} | {} | {} | {} | {} |\n";
  std::string all =
      "| family | killed | of | % | equal code | argued equivalent | no trial | does not compile "
      "|\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const auto& [family, rate] : report.families) all += row(kRow, family, rate);
  all += row(kRow, "**all**", report.all);
  all += "\n| survivor | line | change |\n|---|---|---|\n";
  for (const Json& one : report.survivors) {
    std::string change = one.at("text");
    for (std::size_t at = 0; (at = change.find('|', at)) != std::string::npos; at += 2)
      change.insert(at, 1, '\\');
    all += fmt::format("| `{}` | {} | {} |\n", one.at("id").get<std::string>(),
                       one.at("line").get<int>(), change);
  }
  for (const std::string& id : report.refuted)
    all += fmt::format("\nArgued to be equivalent, but killed: `{}`\n", id);
  return all;
}

}  // namespace ac::mutants
