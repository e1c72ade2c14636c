#include "tests/mutants/judge.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "admit/judge.h"
#include "base/child.h"
#include "base/error.h"
#include "base/files.h"
#include "base/process.h"
#include "base/temporary_folder.h"
#include "build/digest.h"
#include "build/headers.h"

namespace ac::mutants {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargestFile = 16u << 20;
// A mutant changes code that begins a few lines before, or goes on in the next.
constexpr int kLinesBefore = 2, kLinesAfter = 1;
// Kernels that are built of one mutant before the rest is taken to be like them.
constexpr int kMostBuilds = 48;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string bytes_of(const fs::path& file) { return read_file(file, kLargestFile); }

KernelBuilder builder_for(const fs::path& sources, const fs::path& cache,
                          const std::string& compiler, HostChecks checks = HostChecks::none) {
  return KernelBuilder({.cache = cache,
                        .sources = sources,
                        .host_compiler = compiler,
                        .cuda_home = {},
                        .checks = checks});
}

// Which lines of which headers a kernel has code of, as a compiler's assembly says without
// optimisation.
std::map<std::string, std::set<int>> lines_of(const KernelSource& source, const fs::path& sources,
                                              const std::string& compiler) {
  const TemporaryFolder folder;
  const fs::path text = folder.path() / "kernel.cc", assembly = folder.path() / "kernel.s";
  write_file(text, source.text);
  const ProcessResult built =
      run_process({compiler, "-std=c++20", "-O0", "-g1", "-w", "-DNDEBUG", "-DAC_HOST_DEVICE", "-S",
                   "-I" + sources.string(), text.string(), "-o", assembly.string()},
                  ChildOutput::captured);
  if (!built.ok()) job_failed("{}: does not compile:\n{}", source.entry, built.output);
  std::map<std::string, std::string> names;  // by number
  std::map<std::string, std::set<int>> lines;
  std::ifstream in(assembly);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string directive, number;
    words >> directive >> number;
    if (directive == ".file") {
      const std::size_t end = line.rfind('"'), begin = line.rfind('/', end) + 1;
      if (end != std::string::npos) names[number] = line.substr(begin, end - begin);
    } else if (directive == ".loc") {
      int at = 0;
      words >> at;
      lines[names[number]].insert(at);
    }
  }
  return lines;
}

void limit_cpu(int seconds) {
  const rlimit limit{static_cast<rlim_t>(seconds), static_cast<rlim_t>(seconds) + 1};
  setrlimit(RLIMIT_CPU, &limit);
}

// Why the gate rejects it, or "", in one trial. In a process of its own: it may crash, or never
// end.
std::string why_rejected(const Trial& trial, const KernelFiles& files, int cpu_seconds) {
  const std::vector<ChildTask> task{ChildTask([&] {
    limit_cpu(cpu_seconds);
    const validate::Verdict verdict = ac::judge(trial, files);
    if (verdict.admitted()) return std::string("admitted");
    const std::string reason = verdict.rejection->reason.substr(0, 160);
    return fmt::format("{}: {}", to_string(verdict.rejection->stage), reason);
  })};
  const ChildResult child =
      run_in_children(task, 1, std::chrono::seconds(20 * cpu_seconds)).front();
  if (!child.ok()) return child.ended;
  return child.text == "admitted" ? "" : child.text;
}

// In all trials that a compilation has for what it chooses.
std::string why_rejected(const test::FamilyTrial& of, const KernelFiles& files,
                         const fs::path& sources, const fs::path& cache,
                         const JudgeOptions& options) {
  std::string why = why_rejected(of.request.trial, files, options.cpu_seconds);
  for (const Request& request : of.confirmation) {
    if (!why.empty()) return why;
    KernelFiles judged = files;
    if (request.trial.purpose == Purpose::races) {
      KernelBuilder builder = builder_for(sources, cache, options.compiler, HostChecks::races);
      for (const KernelSource& source : request.sources) {
        const BuildResult built = builder.build(source, {});
        if (const auto* failure = std::get_if<CompileFailure>(&built)) return failure->log;
        judged[source.entry] = std::get<Artifact>(built).file;
      }
    }
    why = why_rejected(request.trial, judged, options.cpu_seconds);
    if (!why.empty()) why = fmt::format("{}: {}", to_string(request.trial.purpose), why);
  }
  return why;
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  constexpr std::string_view kNames[] = {"killed", "survived", "equal", "no trial", "not compiled"};
  return kNames[static_cast<std::size_t>(outcome)];
}

std::map<std::string, std::string> mutated_headers(const fs::path& sources) {
  std::map<std::string, std::string> headers;
  for (const auto& entry : fs::directory_iterator(sources / "kernels")) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".cuh") && name != "measure.cuh" && name != "random.cuh")
      headers[name] = bytes_of(entry.path());
  }
  return headers;
}

std::string family_of_header(const std::string& header) {
  static const std::map<std::string, std::string> kParts = {
      {"argmax", "sampling"},
      {"attention_sums", "attention"},
      {"cluster_sums", "tma_gemm"},
      {"gemm_tile", "gemm"},
      {"gemv_ring", "gemv"},
      {"mma_tile", "mma_gemm"},
      {"prefill_groups", "prefill_attention"},
      {"prefill_mma", "prefill_attention"},
      {"prefill_softmax", "prefill_attention"},
      {"qkv_rope", "qkv_attention"},
      {"math", "shared"},
      {"ptx", "shared"},
      {"rows", "shared"},
      {"types", "shared"},
      {"vectors", "shared"},
      {"warpgroup", "shared"},
  };
  const std::string stem = header.substr(0, header.find('.'));
  const auto part = kParts.find(stem);
  return part == kParts.end() ? stem : part->second;
}

namespace {

// A trial's kernels as they are, built and judged.
Json prepare(const test::FamilyTrial& trial, const JudgeOptions& options) {
  Json json{{"files", Json::object()}, {"lines", Json::object()}, {"headers", Json::object()}};
  KernelBuilder builder = builder_for(options.sources, options.work / "cache", options.compiler);
  Headers headers(options.sources);
  KernelFiles files;
  double seconds = 0;
  for (const KernelSource& source : trial.request.sources) {
    const BuildResult built = builder.build(source, {});
    if (const auto* failure = std::get_if<CompileFailure>(&built))
      job_failed("{}: {}", trial.what, failure->log);
    files[source.entry] = std::get<Artifact>(built).file;
    seconds += std::get<Artifact>(built).seconds;
    json["files"][source.entry] = files[source.entry].string();
    for (const auto& [header, lines] : lines_of(source, options.sources, options.compiler))
      for (const int line : lines) json["lines"][header].push_back(line);
    for (const Header* header : headers.reached_by(source.text))
      json["headers"][source.entry].push_back(fs::path(header->name).filename().string());
  }
  const auto start = Clock::now();
  const std::string why = options.judge_baselines ? why_rejected(trial, files, options.sources,
                                                                 options.work / "cache", options)
                                                  : "";
  if (!why.empty()) job_failed("{}: rejected as it is: {}", trial.what, why);
  json["seconds"] = seconds + seconds_since(start);
  return json;
}

Baseline baseline_from(test::FamilyTrial trial, const Json& json) {
  Baseline baseline;
  baseline.trial = std::move(trial);
  for (const auto& [entry, file] : json.at("files").items())
    baseline.files[entry] = file.get<std::string>();
  for (const auto& [header, lines] : json.at("lines").items())
    for (const Json& line : lines) baseline.lines[header].insert(line.get<int>());
  for (const auto& [entry, names] : json.at("headers").items())
    for (const Json& name : names) baseline.headers[entry].insert(name.get<std::string>());
  baseline.seconds = json.at("seconds").get<double>();
  return baseline;
}

// Of its lines, or of those from so many before to so many after.
bool has_code_of(const Baseline& baseline, const Mutant& mutant, int before, int after) {
  const auto found = baseline.lines.find(mutant.file);
  if (found == baseline.lines.end()) return false;
  const auto from = found->second.lower_bound(mutant.line - before);
  return from != found->second.end() && *from <= mutant.last_line + after;
}
bool has_code_of(const Baseline& baseline, const Mutant& mutant) {
  return has_code_of(baseline, mutant, kLinesBefore, kLinesAfter);
}

}  // namespace

MutantJudge::MutantJudge(std::vector<test::FamilyTrial> trials, JudgeOptions options)
    : options_(std::move(options)), texts_(mutated_headers(options_.sources)) {
  // What a library computes has no kernel of ours.
  std::erase_if(trials, [](const test::FamilyTrial& t) { return t.request.sources.empty(); });
  std::string headers;
  std::set<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(options_.sources / "kernels"))
    if (entry.is_regular_file()) files.insert(entry.path());
  for (const fs::path& file : files) headers += sha256(bytes_of(file));
  fs::create_directories(options_.work / "baseline");
  std::vector<fs::path> kept(trials.size());
  std::vector<std::size_t> missing;
  std::vector<ChildTask> tasks;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    std::string all = headers + to_json(trials[i].request.trial).dump();
    for (const Request& request : trials[i].confirmation) all += to_json(request.trial).dump();
    for (const KernelSource& source : trials[i].request.sources) all += source.text;
    kept[i] = options_.work / "baseline" / sha256(all);
    if (fs::exists(kept[i])) continue;
    missing.push_back(i);
    tasks.emplace_back([this, &trial = trials[i], &file = kept[i]] {
      write_file_atomically(file, prepare(trial, options_).dump());
      return std::string();
    });
  }
  const auto on_done = [&](std::size_t task, const ChildResult& child) {
    if (!child.ok()) job_failed("{}: {}", trials[missing[task]].what, child.ended);
  };
  run_in_children(tasks, options_.jobs, std::chrono::hours(1), on_done);
  for (std::size_t i = 0; i < trials.size(); ++i)
    baselines_.push_back(baseline_from(std::move(trials[i]), read_json(kept[i])));
  std::ranges::sort(baselines_, {}, [](const Baseline& baseline) {
    return std::pair(!baseline.trial.is_special, baseline.seconds);
  });
}

// Those that have code of its lines, then those of lines near by; of each family special ones
// first, and the cheapest of them. Of lines that only constant expressions have, all that include
// the header.
std::vector<std::size_t> MutantJudge::trials_of(const Mutant& mutant) const {
  std::vector<std::size_t> with_line, with_header;
  for (std::size_t i = 0; i < baselines_.size(); ++i) {
    const Baseline& baseline = baselines_[i];
    const auto includes = [&](const auto& entry) { return entry.second.contains(mutant.file); };
    if (std::ranges::none_of(baseline.headers, includes)) continue;
    with_header.push_back(i);
    if (has_code_of(baseline, mutant)) with_line.push_back(i);
  }
  struct Place {
    bool near;
    int round;  // of its family
    std::size_t trial;
  };
  std::map<std::pair<bool, std::string>, int> taken;
  std::vector<Place> order;
  for (const std::size_t i : with_line.empty() ? with_header : with_line) {
    const bool near = !has_code_of(baselines_[i], mutant, 0, 0);
    order.push_back({near, taken[{near, baselines_[i].trial.family}]++, i});
  }
  std::ranges::stable_sort(order, {}, [](const Place& p) { return std::pair(p.near, p.round); });
  std::vector<std::size_t> trials;
  for (const Place& place : order) trials.push_back(place.trial);
  return trials;
}

Json MutantJudge::judge_one(const Mutant& mutant) const {
  const TemporaryFolder folder;
  fs::copy(options_.sources / "kernels", folder.path() / "kernels", fs::copy_options::recursive);
  write_file(folder.path() / "kernels" / mutant.file, mutated(texts_.at(mutant.file), mutant));
  KernelBuilder builder = builder_for(folder.path(), folder.path() / "cache", options_.compiler);

  const std::vector<std::size_t> trials = trials_of(mutant);
  int builds = 0, built = 0, judged = 0;
  Json passed = Json::array();
  for (const std::size_t i : trials) {
    if (judged == options_.most_trials || builds >= kMostBuilds) break;
    const Baseline& baseline = baselines_[i];
    KernelFiles files;
    bool differs = false, compiles = true;
    for (const KernelSource& source : baseline.trial.request.sources) {
      fs::path file = baseline.files.at(source.entry);
      if (baseline.headers.at(source.entry).contains(mutant.file)) {
        ++builds;
        const BuildResult result = builder.build(source, {});
        const auto* artifact = std::get_if<Artifact>(&result);
        compiles = compiles && artifact;
        if (!artifact) break;
        differs = differs || bytes_of(artifact->file) != bytes_of(file);
        file = artifact->file;
      }
      files[source.entry] = file;
    }
    if (!compiles) continue;
    ++built;
    if (!differs) continue;
    ++judged;
    const std::string why =
        why_rejected(baseline.trial, files, folder.path(), folder.path() / "cache", options_);
    if (!why.empty())
      return {{"outcome", to_string(Outcome::killed)},
              {"by", baseline.trial.what},
              {"why", why},
              {"trials", judged}};
    passed.push_back(baseline.trial.what);
  }
  const bool reached = std::ranges::any_of(
      trials, [&](std::size_t i) { return has_code_of(baselines_[i], mutant); });
  const Outcome outcome = judged > 0                      ? Outcome::survived
                          : built == 0 && !trials.empty() ? Outcome::not_compiled
                          : reached                       ? Outcome::equal
                                                          : Outcome::no_trial;
  Json result{{"outcome", to_string(outcome)}};
  if (judged > 0) result["passed"] = std::move(passed);
  return result;
}

void MutantJudge::judge(const std::vector<Mutant>& mutants,
                        const std::function<void(std::size_t, const Json&)>& on_done) const {
  const auto began = Clock::now();
  std::vector<ChildTask> tasks;
  for (const Mutant& mutant : mutants)
    tasks.emplace_back([this, &mutant, began] {
      if (options_.all.count() > 0 && Clock::now() - began > options_.all)
        return std::string("null");
      const auto start = Clock::now();
      Json result = judge_one(mutant);
      result["seconds"] = seconds_since(start);
      return result.dump(-1, ' ', false, Json::error_handler_t::replace);
    });
  run_in_children(tasks, options_.jobs, std::chrono::hours(1),
                  [&](std::size_t i, const ChildResult& child) {
                    if (!child.ok()) {
                      // Such as a compiler that ran out of memory: the next run tries again.
                      fmt::print(stderr, "{}: {}\n", mutants[i].id, child.ended);
                      return;
                    }
                    on_done(i, Json::parse(child.text));
                  });
}

}  // namespace ac::mutants
