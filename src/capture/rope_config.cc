#include "capture/rope_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/error.h"

namespace ac {
namespace {

constexpr double kMaxTheta = 1e30;  // keeps the frequencies normal float32 numbers
constexpr double kMaxFactor = 1e6;
constexpr double kLeastPositive = 1e-6;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;

// The member that holds the rope's parameters, by transformers' precedence; empty where none does.
std::string parameters_member(const ConfigFields& config) {
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!config.has_value(name)) continue;
    if (!config[name].is_object()) config.wrong(name, "an object or null");
    if (!config[name].empty()) return name;
  }
  return "";
}

RopeType rope_type(const ConfigFields& rope) {
  static const std::map<std::string, RopeType> types{{"default", RopeType::plain},
                                                     {"linear", RopeType::linear},
                                                     {"llama3", RopeType::llama3},
                                                     {"yarn", RopeType::yarn}};
  static const std::map<std::string, std::string> refused{
      {"dynamic",
       "its frequencies change with the length of the sequence, so that keys that are "
       "already cached would be wrong"},
      {"longrope",
       "it switches to other frequencies when the sequence outgrows the original "
       "context, so that keys that are already cached would be wrong"}};
  const char* key = rope.has_value("rope_type") ? "rope_type" : "type";
  if (!rope.has_value(key)) return RopeType::plain;
  const std::string name = rope.text(key);
  if (const auto found = types.find(name); found != types.end()) return found->second;
  const auto reason = refused.find(name);
  rope.fail(key, fmt::format("is {}, which is not supported: {}", brief(Json(name)),
                             reason != refused.end()
                                 ? reason->second
                                 : "the rope types are default, linear, llama3 and yarn"));
}

// These architectures apply the frequencies to whole heads: transformers ignores the factor in its
// default type, and fails at the first forward in the others.
void check_partial(const ConfigFields& fields, RopeType type) {
  if (!fields.has_value("partial_rotary_factor")) return;
  const double factor = fields.number("partial_rotary_factor", 0, 1);
  if (factor != 1 && type != RopeType::plain)
    fields.wrong("partial_rotary_factor", "1: this architecture rotates whole heads");
}

void read_llama3(const ConfigFields& rope, RopeConfig& result) {
  result.low_freq_factor = rope.number("low_freq_factor", kLeastPositive, kMaxFactor);
  result.high_freq_factor = rope.number("high_freq_factor", kLeastPositive, kMaxFactor);
  if (result.high_freq_factor <= result.low_freq_factor)
    rope.wrong("high_freq_factor",
               fmt::format("more than low_freq_factor, {}", result.low_freq_factor));
}

void read_yarn(const ConfigFields& rope, RopeConfig& result) {
  const auto number = [&](const char* name, double fallback) {
    const double value = rope.has_value(name) ? rope.number(name, 0, kMaxFactor) : fallback;
    if (value != 0 && value < kLeastPositive) rope.wrong(name, "0 or at least 1e-06");
    return value;
  };
  // As in Python's `x or default`: 0 stands for the default.
  const auto positive = [&](const char* name, double fallback) {
    const double value = number(name, fallback);
    return value == 0 ? fallback : value;
  };
  result.beta_fast = positive("beta_fast", 32);
  result.beta_slow = positive("beta_slow", 1);
  if (result.beta_fast < result.beta_slow)
    rope.fail("beta_fast", fmt::format("is {}, expected at least beta_slow, {}", result.beta_fast,
                                       result.beta_slow));
  result.mscale = number("mscale", 0);
  result.mscale_all_dim = number("mscale_all_dim", 0);
  if (rope.has_value("attention_factor"))
    result.attention_factor = rope.number("attention_factor", kLeastPositive, kMaxFactor);
  result.truncate = rope.boolean("truncate", true);
  // Its formula divides by ln(theta).
  if (result.theta < 1 + kLeastPositive) rope.fail("rope_theta", "must be more than 1 for yarn");
}

// What the ranges above cannot promise of every combination.
void check_frequencies(const ConfigFields& rope, const RopeConfig& result, std::int64_t head_dim) {
  const RopeFrequencies frequencies = rope_frequencies(result, head_dim);
  const bool sound = std::isfinite(frequencies.scale) &&
                     std::all_of(frequencies.inverse.begin(), frequencies.inverse.end(),
                                 [](float value) { return std::isfinite(value) && value >= 0; });
  if (!sound)
    bad_input("{}: the rope parameters give frequencies that are not finite", rope.origin());
}

double read_theta(const ConfigFields& fields, const char* name, double unsaid) {
  return fields.has_value(name) ? fields.number(name, 1, kMaxTheta) : unsaid;
}

RopeConfig plain_rope(const ConfigFields& fields, double theta) {
  check_partial(fields, RopeType::plain);
  RopeConfig result;
  result.theta = theta;
  return result;
}

// The rope whose parameters are `rope`; `outer` is where fields that stand beside them are looked
// for.
RopeConfig read_parameters(const ConfigFields& rope, const ConfigFields& outer, double theta,
                           const RopeScope& scope) {
  RopeConfig result = plain_rope(rope, theta);
  result.type = rope_type(rope);
  result.theta = read_theta(rope, "rope_theta", theta);
  check_partial(rope.has_value("partial_rotary_factor") ? rope : outer, result.type);
  if (result.type == RopeType::plain) return result;

  result.factor = rope.number("factor", 1, kMaxFactor);
  if (result.type == RopeType::linear) return result;

  // A member of the config itself goes first, as in transformers.
  const char* original = "original_max_position_embeddings";
  result.original_max = outer.has_value(original)  ? outer.integer(original, 1, kMaxPositions)
                        : rope.has_value(original) ? rope.integer(original, 1, kMaxPositions)
                                                   : scope.max_positions;
  if (result.type == RopeType::llama3) read_llama3(rope, result);
  if (result.type == RopeType::yarn) read_yarn(rope, result);
  check_frequencies(rope, result, scope.head_dim);
  return result;
}

}  // namespace

RopeConfig read_rope(const ConfigFields& config, double theta, const RopeScope& scope) {
  theta = read_theta(config, "rope_theta", theta);
  const std::string member = parameters_member(config);
  if (member.empty()) return plain_rope(config, theta);
  for (const auto& [name, value] : config[member].items())
    if (value.is_object())
      config.inside(member).wrong(name,
                                  "a plain value: this architecture has one rope for all layers");
  return read_parameters(config.inside(member), config, theta, scope);
}

std::vector<RopeConfig> read_ropes_by_layer(const ConfigFields& config, double theta,
                                            double local_theta, const RopeScope& scope) {
  theta = read_theta(config, "rope_theta", theta);
  local_theta = read_theta(config, "rope_local_base_freq", local_theta);
  const std::string member = parameters_member(config);
  if (member.empty()) return {plain_rope(config, theta), plain_rope(config, local_theta)};
  const ConfigFields ropes = config.inside(member);
  if (member == "rope_scaling") {
    if (config.has_value("rope_parameters"))
      config.fail(member, "is set, and rope_parameters too: leave one of them out");
    return {read_parameters(ropes, ropes, theta, scope), plain_rope(config, local_theta)};
  }
  for (const auto& [name, value] : config[member].items())
    if (!value.is_object() && !value.is_null())
      ropes.wrong(name, "an object: each type of layer has a rope of its own");
  const auto of_type = [&](const char* type, double base) {
    if (!ropes.has_value(type)) return plain_rope(config, base);
    const ConfigFields rope = ropes.inside(type);
    return read_parameters(rope, rope, base, scope);
  };
  return {of_type("full_attention", theta), of_type("sliding_attention", local_theta)};
}

}  // namespace ac
