// What child processes of the lab are made for. A process prepares for one job, and then answers
// that job's questions, whose types stand beside what answers them. Jobs, questions and answers are
// lines of JSON between processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/step_graph.h"

namespace ac {

// Launches of a program's first phase.
struct Span {
  std::size_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

// Judges and times candidates, one question after the other (worker.h).
struct ServeJob {};

// Times steps that are put together from a trial package's launches, after so many tokens
// (step_bench.h). `random`: the built random_source().
struct BenchJob {
  std::filesystem::path package, random;
  std::int64_t context = 0;
};

// Searches such steps for the fastest (step_race.h).
struct TimedPart {
  std::size_t site = 0;
  std::vector<Span> options;
  bool by_position = false;  // whether it takes longer after more tokens
};
struct StepsJob {
  std::filesystem::path package, random;
  std::vector<TimedPart> parts;
  Span ending;
};

// Runs two programs of one model and compares their logits (program_pair.h).
struct PairJob {
  std::filesystem::path chosen, plain;  // packages
  std::filesystem::path random;
  std::filesystem::path checkpoint;  // where it is now; empty: where it was
  std::int64_t roundings = 1;
  std::optional<StepGraph> step = {};  // with which logits are compared in double precision too
  std::int64_t left_free = 0;          // bytes of the device's memory, for others
};

using Job = std::variant<ServeJob, BenchJob, StepsJob, PairJob>;

// A job and the device that it runs on.
struct Assignment {
  bool on_gpu = true;
  Job job;
  std::filesystem::path turns = {};  // of the device: timing_turn.h
};
std::string line_of(const Assignment& assignment);
Assignment assignment_of(const std::string& line);

// Samples of each of several things that were timed in turn: an answer of several jobs.
using Samples = std::vector<std::vector<double>>;
std::string line_of(const Samples& samples);
Samples samples_of(const std::string& line);

}  // namespace ac
