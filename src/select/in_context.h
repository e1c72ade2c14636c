// Stage 9, its second half: what computes the parts of a step is chosen by the latency of the whole
// step. What is fastest alone need not be so between its neighbours, whose loads overlap with it,
// and what is fastest after few tokens need not be so after many.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <variant>

#include "base/progress.h"
#include "families/list.h"
#include "generate/assemble.h"
#include "ir/step_graph.h"
#include "lab/lab.h"
#include "lab/step_race.h"
#include "select/timed_steps.h"

namespace ac {

// What was admitted for each part of a step. Equal parts share a site, and are computed alike.
struct Alternatives {
  struct Part {
    std::size_t site = 0;
    std::vector<Implemented> options;
    std::vector<bool> for_several = {};  // of each of them: Candidate::for_several
    bool by_position = false;            // whether it takes longer after more tokens
  };
  std::size_t sites = 0;
  std::vector<Part> parts;  // in the order in which they run
};

// The options of all sites, for steps after `from` tokens and more.
struct ContextChoice {
  std::int64_t from = 0;
  std::vector<std::size_t> options;
};

// Of every site what came first, for all contexts.
ContextChoice first_choice(const Alternatives& alternatives);
std::vector<Implemented> implemented(const Alternatives& alternatives, const ContextChoice& choice);

// Keeps some options of each site.
struct FewerAlternatives {
  Alternatives left;
  std::vector<std::vector<std::size_t>> options;  // of each site: which of all they are

  // In terms of all.
  ContextChoice whole(const ContextChoice& choice) const;
};
// `kept`: of each site, in the order that they shall have.
FewerAlternatives fewer_of(const Alternatives& all, std::vector<std::vector<std::size_t>> kept);

// Why a part of a step is computed as it is: its region, none where the token is chosen, and the
// candidate's choice, none for the fallback.
struct PartChoice {
  std::optional<Wanted> wanted;
  std::optional<Choice> choice;
};

// What computes steps after `from` tokens and more, in the order in which it runs.
struct StepVariant {
  std::int64_t from = 0;
  std::vector<Implemented> parts;
  std::vector<PartChoice> choices;  // of the first parts
};

struct InContextOptions {
  std::vector<std::int64_t> contexts;  // rising
  std::int64_t tokens = 1;             // of a step
  std::chrono::seconds limit{40};      // for each of them
};

// The choices, the first from 0 on, and what each context that was to be timed said.
struct InContextChoices {
  std::vector<ContextChoice> choices;
  std::vector<InContext> contexts;
};

// Begins with every site's first option. A choice of its own only where it pays.
InContextChoices choose_in_context(const StepGraph& step, const Program& program,
                                   const Alternatives& alternatives, const Implemented& ending,
                                   const InContextOptions& options, Lab& lab, Progress& progress);

// Whether steps were timed by both, and those for several take at most so many times as long.
bool costs_little(const InContext& one, const InContext& several, double slowdown);
// At each context what `several` says where it costs little, and otherwise what `one` says. Both
// are of the same contexts.
InContextChoices merged(const InContextChoices& one, const InContextChoices& several,
                        double slowdown);

// Or why none was timed.
using TimeSteps = std::function<std::variant<StepTimes, std::string>(
    std::int64_t context, const std::vector<std::vector<std::size_t>>& starts)>;
// Context by context, each from what the one before it chose or any other did, until one cannot be
// timed.
InContextChoices choose_by_context(const ContextChoice& first, const InContextOptions& options,
                                   const TimeSteps& time, Progress& progress);

// All of several ways to cut a step into parts, each as the parts that it has of these.
struct Cuts {
  std::vector<Implemented> parts;  // in an order in which they could run
  std::vector<std::vector<std::size_t>> cuts;
};
// Microseconds of a step by each of them, in the first of the contexts; empty, and noted, if they
// were not timed.
std::vector<double> time_cuts(const StepGraph& step, const Program& program, const Cuts& cuts,
                              const Implemented& ending, const InContextOptions& options, Lab& lab,
                              Progress& progress);

}  // namespace ac
