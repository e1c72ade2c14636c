#include "cli/sampling_flags.h"

#include "base/error.h"

namespace ac {

void SamplingFlags::add_to(CLI::App& command, const std::string& default_tokens) {
  const std::string group = "Sampling (defaults from the model's generation_config.json)";
  const auto add = [&](const char* name, auto& to, const std::string& what) {
    return command.add_option(name, to, what)->group(group);
  };
  add("--max-new-tokens,-n", max_new_tokens,
      "How many tokens to generate at most (default: " + default_tokens + ")")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  add("--temp,--temperature", temperature,
      "Draw tokens, with their logits divided by this; 0: take the likeliest (default: 0, unless "
      "the model says do_sample)");
  add("--top-k", top_k, "Draw from the K likeliest tokens; 0: from all");
  add("--top-p", top_p, "Draw from the likeliest tokens that have this probability together");
  add("--min-p", min_p,
      "Draw from tokens whose probability is at least this share of the likeliest one's");
  add("--repeat-penalty", repeat_penalty,
      "Make tokens less likely that the prompt or the answer has already: logits above 0 are "
      "divided by this, others multiplied; 1: off");
  add("--presence-penalty", presence_penalty,
      "Take this from the logit of each token that the answer has already; 0: off");
  add("--seed", seed,
      "Seed of the drawing: the same seed gives the same tokens (default: a random one)")
      ->check([](const std::string& text) {
        return text.starts_with('-') ? "a seed is not below 0" : std::string();
      });
  add("--stop", stop, "End the answer before this text; may be given several times")
      ->allow_extra_args(false);
}

void SamplingFlags::check() const {
  for (const std::string& text : stop)
    if (text.empty()) wrong_usage("--stop: the text is empty");
  if (temperature == 0.0)
    for (const auto& [name, given] :
         {std::pair{"--top-k", top_k.has_value()}, std::pair{"--top-p", top_p.has_value()},
          std::pair{"--min-p", min_p.has_value()}})
      if (given)
        wrong_usage("{} has no effect with --temp 0, which takes the likeliest token", name);
  // Those that were given; the rest is the model's.
  Sampling sampling{.temperature = temperature.value_or(1)};
  sampling.top_k = top_k.value_or(0), sampling.top_p = top_p.value_or(1);
  sampling.min_p = min_p.value_or(0);
  ac::check(sampling);
  ac::check(Penalties{repeat_penalty.value_or(1), presence_penalty.value_or(0)});
}

Choosing SamplingFlags::with(const text::GenerationConfig& config,
                             const std::string& origin) const {
  check();
  const Choosing chosen = choose(*this, config);
  if (chosen.sampling.is_greedy())
    for (const auto& [name, given] :
         {std::pair{"--top-k", top_k.has_value()}, std::pair{"--top-p", top_p.has_value()},
          std::pair{"--min-p", min_p.has_value()}})
      if (given)
        wrong_usage("{} has no effect at temperature 0, the model's default: give --temp, too",
                    name);
  try {
    ac::check(chosen.sampling);
    ac::check(chosen.penalties);
  } catch (const Error& error) {  // the flags are right by themselves
    bad_input("{}: {}", origin, error.what());
  }
  return chosen;
}

}  // namespace ac
