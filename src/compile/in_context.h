// Stage 9, its second half: what computes the parts of a step is chosen by the latency of the whole
// step. What is fastest alone need not be so between its neighbours, whose loads overlap with it,
// and what is fastest after few tokens need not be so after many.
#pragma once

#include <chrono>

#include "compile/assemble.h"
#include "compile/progress.h"
#include "compile/realise.h"
#include "ir/step_graph.h"

namespace ac {

// Of the time before, for a choice to be another one.
constexpr double kWorthwhile = 0.998;

// What was admitted for each part of a step. Equal parts share a site, and are computed alike.
struct Alternatives {
  struct Part {
    std::size_t site = 0;
    std::vector<Implemented> options;
  };
  std::size_t sites = 0;
  std::vector<Part> parts;  // in the order in which they run
};

// The options of all sites, for steps after `from` tokens and more.
struct ContextChoice {
  std::int64_t from = 0;
  std::vector<std::size_t> options;
  // Where whole steps were timed: after so many tokens, with the options that came first and with
  // these, of so many steps that differed.
  std::int64_t context = 0;
  std::optional<double> first_us = std::nullopt, us = std::nullopt;
  int timed = 0;
};

// Of every site what came first, for all contexts.
ContextChoice first_choice(const Alternatives& alternatives);
std::vector<Implemented> implemented(const Alternatives& alternatives, const ContextChoice& choice);

struct InContextOptions {
  std::vector<std::int64_t> contexts;  // rising
  std::chrono::seconds limit{40};      // for each of them
};

// Begins with every site's first option. A choice of its own only where it pays.
std::vector<ContextChoice> choose_in_context(const StepGraph& step, const Program& program,
                                             const Alternatives& alternatives,
                                             const Implemented& ending,
                                             const InContextOptions& options, Realiser& realiser,
                                             Progress& progress);

// One context's job, in the process that times.
std::string race_steps(Device& device, const Json& job);

}  // namespace ac
