// Options whose value is one of a few words.
#pragma once

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace ac {

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
