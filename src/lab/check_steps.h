// Which steps the check of a whole package runs (package_check.h): those where tiles of keys,
// windows and their rings begin and end, where steps of many tokens change their phase, and the
// last ones that the package has room for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "program/program.h"

namespace ac {

struct CheckStep {
  enum class Kind : std::uint8_t {
    after,   // a step of `tokens` after `cached` random ones, then `more` of one token each
    prompt,  // `tokens` from the first one on, then `more` of one token each
    rows,    // the logits of all rows of a step of `tokens` after `cached` random ones
    back,    // a prompt of `tokens`, which is gone back to from `more` steps of one token
    // A step of one token each of `tokens` sequences after `cached` random ones and more, which is
    // compared with what the same program gives each of them alone.
    together,
  };
  Kind kind = Kind::after;
  std::int64_t cached = 0, tokens = 1, more = 0;
  bool operator==(const CheckStep&) const = default;

  // Positions that it needs.
  std::int64_t end() const { return cached + tokens + more; }
};
std::string describe(const CheckStep& step);  // "a prompt of 9 tokens, then 2 of one token"
Json to_json(const CheckStep& step);
CheckStep check_step_from_json(const Json& json);

struct CheckSteps {
  std::vector<CheckStep> steps;     // in the order in which they run
  std::vector<CheckStep> left_out;  // because of their work
};

// What is worth checking of such a program. As far as `most` goes, which `work` counts: what finds
// most comes first.
CheckSteps check_steps(const Program& program, const std::function<double(const CheckStep&)>& work,
                       double most);

// The labels of the phases that run `tokens` tokens after `cached` ones.
std::vector<std::string> phases_of(const Program& program, std::int64_t cached, std::int64_t tokens,
                                   Rows rows = Rows::last);
// The kernels of those phases.
std::vector<std::string> kernels_of(const Program& program, const std::vector<std::string>& phases);

}  // namespace ac
