// What it costs to ask an advisor during searches, as far as their recordings say it, and what an
// attempt must cost for that to pay.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "base/json.h"

namespace ac::study {

// Published ones, in one currency.
struct Prices {
  double input = 0, output = 0;  // of a million tokens
  double gpu = 0;                // of an hour
  std::string whose;             // and of which day
};

struct CallCosts {
  double calls = 0;
  double counted = 0;  // calls whose tokens the service counted; of others a token is four bytes
  double prompt_tokens = 0, reply_tokens = 0;
  double seconds = 0;  // 0: not recorded
  std::set<std::string> models, dates;

  CallCosts& operator+=(const CallCosts& other);
  CallCosts over(double searches) const;
  double money(const Prices& prices) const;
};

// What the calls of a search cost. They are as ac::to_json() writes them; anything else is a
// Json::exception.
CallCosts costs_of(const Json& calls);

// Seconds that an attempt must take so that the attempts that were saved are worth the advisor's
// seconds, or its money; nothing if none was saved.
struct BreakEven {
  std::optional<double> by_seconds, by_money;
};
BreakEven break_even(const CallCosts& costs, double saved_attempts,
                     const std::optional<Prices>& prices);

}  // namespace ac::study
