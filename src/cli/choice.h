// Options whose value is one of a few words, or a number above zero.
#pragma once

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace ac {

// CLI11's own message writes the largest number out, in 309 digits.
inline CLI::Validator at_least_zero(bool but_not_zero) {
  return {[but_not_zero](const std::string& text) -> std::string {
            double number = 0;
            if (!CLI::detail::lexical_cast(text, number)) return {};  // CLI11 says so itself
            if (but_not_zero ? number > 0 : number >= 0) return {};
            return fmt::format("{} is not {}", text, but_not_zero ? "above 0" : "0 or above");
          },
          but_not_zero ? "POSITIVE" : "NONNEGATIVE"};
}
inline const CLI::Validator kPositive = at_least_zero(true);
inline const CLI::Validator kNotNegative = at_least_zero(false);

template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;

// `take` gets the value of the word that was given.
template <class Value, class Take>
CLI::Option* add_choice(CLI::App& command, const std::string& name, const Choices<Value>& choices,
                        Take take, const std::string& description) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  return command
      .add_option_function<std::string>(
          name,
          [=](const std::string& given) {
            for (const auto& [word, value] : choices)
              if (word == given) return take(value);
            throw CLI::ValidationError(
                name, fmt::format("{} is not one of {}", quote(given), fmt::join(words, ", ")));
          },
          description)
      ->type_name("{" + fmt::format("{}", fmt::join(words, ",")) + "}");
}

}  // namespace ac
