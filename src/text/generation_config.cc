#include "text/generation_config.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace ac::text {
namespace {

constexpr JsonLimits kSmall{.bytes = 16u << 20};

// Settings that we do not have, with the value that stands for none. Of those that are lists or
// objects, none is an empty one.
const std::vector<std::pair<const char*, Json>>& unknown_settings() {
  static const std::vector<std::pair<const char*, Json>> settings = {
      {"num_beams", 1},
      {"no_repeat_ngram_size", 0},
      {"encoder_no_repeat_ngram_size", 0},
      {"encoder_repetition_penalty", 1},
      {"typical_p", 1},
      {"epsilon_cutoff", 0},
      {"eta_cutoff", 0},
      {"top_h", nullptr},
      {"penalty_alpha", 0},
      {"guidance_scale", 1},
      {"min_length", 0},
      {"min_new_tokens", 0},
      {"forced_bos_token_id", nullptr},
      {"forced_eos_token_id", nullptr},
      {"exponential_decay_length_penalty", nullptr},
      {"suppress_tokens", Json::array()},
      {"begin_suppress_tokens", Json::array()},
      {"bad_words_ids", Json::array()},
      {"sequence_bias", Json::object()},
      {"stop_strings", Json::array()},
  };
  return settings;
}

}  // namespace

GenerationConfig read_generation_config(const std::filesystem::path& folder) {
  GenerationConfig config;
  const std::filesystem::path file = folder / "generation_config.json";
  if (!std::filesystem::exists(file)) return config;
  const Json json = read_json(file, kSmall);
  if (!json.is_object()) bad_input("{}: not a JSON object", file.string());
  const auto value = [&](const char* name) {
    const auto found = json.find(name);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  };
  const auto wrong = [&](const char* name, const char* expected) {
    bad_input("{}: {} is {}, and not {}", file.string(), name, value(name)->dump().substr(0, 40),
              expected);
  };
  const auto number = [&](const char* name, std::optional<double>& to) {
    if (value(name) == nullptr) return;
    if (!value(name)->is_number()) wrong(name, "a number");
    to = value(name)->get<double>();
  };
  const auto count = [&](const char* name, std::optional<std::int64_t>& to) {
    if (value(name) == nullptr) return;
    if (!value(name)->is_number_integer()) wrong(name, "an integer");
    if (value(name)->is_number_unsigned() && value(name)->get<std::uint64_t>() > INT64_MAX)
      wrong(name, "an integer of 64 bits");
    to = value(name)->get<std::int64_t>();
  };
  if (const Json* draws = value("do_sample")) {
    if (!draws->is_boolean()) wrong("do_sample", "true or false");
    config.draws = draws->get<bool>();
  }
  number("temperature", config.temperature);
  number("top_p", config.top_p);
  number("min_p", config.min_p);
  number("repetition_penalty", config.repetition_penalty);
  count("top_k", config.top_k);
  count("max_new_tokens", config.max_new_tokens);
  if (config.max_new_tokens.value_or(0) < 0) wrong("max_new_tokens", "a number of tokens");
  for (const auto& [name, none] : unknown_settings())
    if (const Json* set = value(name); set != nullptr && *set != none)
      config.unknown.emplace_back(name);
  return config;
}

}  // namespace ac::text
