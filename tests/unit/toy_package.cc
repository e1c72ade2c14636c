#include "tests/unit/toy_package.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/files.h"
#include "build/compile.h"
#include "generate/generate.h"
#include "kernels/advance_plan.h"
#include "program/sampling.h"
#include "runtime/package_files.h"
#include "tests/unit/safetensors_writer.h"

namespace ac::test {
namespace {

constexpr std::int64_t kModulus = 9973;

struct ToyParams {
  const void* ids;
  const int* position;
  float* keys;
  const float *weight, *constant;
  float* logits;
  int* token;
  int tokens, slots, window, vocab, wide, all;
};

KernelSource toy_source() {
  return {"toy", R"(#include "kernels/argmax.cuh"
namespace ac::kernels {
struct ToyParams {
  const void* ids;
  const int* position;
  float* keys;
  const float *weight, *constant;
  float* logits;
  int* token;
  int tokens, slots, window, vocab, wide, all;
};
AC_DEVICE void toy_step(const ToyParams& p) {
  wait_for_dependency();
  const int end = *p.position + p.tokens;
  for (int i = 0; i < p.tokens; ++i)
    p.keys[(end - p.tokens + i) % p.slots] =
        p.wide ? static_cast<float>(static_cast<const long long*>(p.ids)[i])
               : static_cast<float>(static_cast<const int*>(p.ids)[i]);
  for (int seen = p.all ? end - p.tokens + 1 : end; seen <= end; ++seen) {
    long long sum = static_cast<long long>(*p.constant);
    for (int at = p.window > 0 && seen > p.window ? seen - p.window : 0; at < seen; ++at)
      sum = (sum * 31 + static_cast<long long>(p.keys[at % p.slots])) % 9973;
    float* logits = p.logits + (p.all ? seen - (end - p.tokens + 1) : 0) * p.vocab;
    unsigned long long best = 0;
    for (int v = 0; v < p.vocab; ++v) {
      logits[v] = p.weight[v] * static_cast<float>(sum * (v + 1) % 97);
      best = max(best, logit_key(logits[v], v));
    }
    *p.token = argmax_token(best);
  }
}
AC_KERNEL_ENTRY(toy, ToyParams, 1, 1, toy_step(p))
}
)"};
}

enum : std::int32_t {
  kIds,
  kPosition,
  kToken,
  kLog,
  kWeight,
  kConstant,
  kKeys,
  kLogits,
  kSettings,
  kUntil,
  kAllowed,
  kMasked,
  kMemory,
  kCounters,
  kBuffers
};

std::int32_t place_of(const Buffer& buffer, bool logits) {
  switch (buffer.role) {
    case Buffer::Role::token:
      return kToken;
    case Buffer::Role::log:
      return kLog;
    case Buffer::Role::position:
      return kPosition;
    case Buffer::Role::settings:
      return kSettings;
    case Buffer::Role::until:
      return kUntil;
    case Buffer::Role::allowed:
      return kAllowed;
    case Buffer::Role::scratch:
      return logits ? kLogits : buffer.name.empty() ? kMemory : kMasked;
    case Buffer::Role::counters:
      return kCounters;
    default:
      return kIds;
  }
}

}  // namespace

float Toy::weight_of(std::int64_t token) const {
  return token == 17 ? weight_of_17 : 1 + 0.125f * static_cast<float>(token % 7);
}

std::int64_t Toy::slots() const {
  return window > 0 ? std::min(max_context, window + chunk - 1) : max_context;
}

Program Toy::program() const {
  Program program;
  program.model = "toy", program.target = "host";
  program.vocab = vocab, program.max_context = max_context;
  program.states = {kv_state(DType::f32, 1, 1, 1, window, "", slots())};
  program.stores["checkpoint"] = "model.safetensors";
  program.constant_bytes = 4;
  program.kernels = {{"toy", "toy.so"},
                     {ids == DType::i64 ? "advance_i64" : "advance_i32", "advance.so"}};
  using Role = Buffer::Role;
  program.buffers.resize(kBuffers);
  program.buffers[kIds] = {.role = Role::ids,
                           .name = "ids",
                           .dtype = ids,
                           .bytes = Count(0, static_cast<std::int64_t>(bytes_of(ids)))};
  program.buffers[kPosition] = {
      .role = Role::position, .name = "position", .dtype = DType::i32, .bytes = 4};
  program.buffers[kToken] = {.role = Role::token, .name = "token", .dtype = DType::i32, .bytes = 4};
  program.buffers[kLog] = {
      .role = Role::log, .name = "log", .dtype = DType::i32, .bytes = 4 * (max_context + 1)};
  program.buffers[kWeight] = {.role = Role::weight,
                              .name = "weight",
                              .dtype = DType::f32,
                              .bytes = 4 * vocab,
                              .store = "checkpoint",
                              .key = "weight",
                              .shape = {vocab}};
  program.buffers[kConstant] = {
      .role = Role::constant, .name = "constant", .dtype = DType::f32, .bytes = 4};
  program.buffers[kKeys] = {
      .role = Role::state, .name = "keys", .dtype = DType::f32, .bytes = 4 * slots(), .state = 0};
  program.buffers[kLogits] = {
      .role = Role::scratch, .name = "logits", .dtype = DType::f32, .bytes = 4 * vocab};
  program.buffers[kSettings] = {
      .role = Role::settings, .name = "settings", .dtype = DType::i64, .bytes = kSettingsBytes};
  program.buffers[kUntil] = {
      .role = Role::until, .name = "until", .dtype = DType::i32, .bytes = sizeof(kernels::Until)};
  program.buffers[kAllowed] = {.role = Role::allowed,
                               .name = "allowed",
                               .dtype = DType::i32,
                               .bytes = 4 * ((vocab + 31) / 32)};
  program.buffers[kMasked] = {
      .role = Role::scratch, .name = "masked", .dtype = DType::f32, .bytes = 4 * vocab};
  program.buffers[kMemory] = {
      .role = Role::scratch, .name = "memory", .dtype = DType::i32, .bytes = 256 + vocab / 16};
  program.buffers[kCounters] = {.role = Role::counters,
                                .name = "counters",
                                .dtype = DType::i32,
                                .bytes = kernels::draw_bins_bytes + 4};

  ToyParams params{};
  params.slots = static_cast<int>(slots()), params.window = static_cast<int>(window);
  params.vocab = static_cast<int>(vocab), params.wide = ids == DType::i64;
  Launch toy;
  toy.kernel = "toy", toy.threads = 1;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&params);
  toy.params.assign(bytes, bytes + sizeof params);
  toy.pointers = {{offsetof(ToyParams, ids), kIds, {}},
                  {offsetof(ToyParams, position), kPosition, {}},
                  {offsetof(ToyParams, keys), kKeys, {}},
                  {offsetof(ToyParams, weight), kWeight, {}},
                  {offsetof(ToyParams, constant), kConstant, {}},
                  {offsetof(ToyParams, logits), kLogits, {}},
                  {offsetof(ToyParams, token), kToken, {}}};
  toy.numbers = {{offsetof(ToyParams, tokens), 4, Count(0, 1)}};

  StepGraph step;
  const NodeId input =
      step.graph.add_leaf(Op::input, {{"name", "ids"}}, {ids, {Dim(Symbol::T)}}, "");
  const NodeId logits =
      step.graph.add_leaf(Op::input, {{"name", "logits"}}, {DType::f32, {Dim(vocab)}}, "");
  const auto placed = [&](const Generated& made) {
    std::vector<Launch> launches = made.launches;
    for (Launch& launch : launches)
      for (Launch::Pointer& pointer : launch.pointers) {
        const Buffer& buffer = made.buffers[static_cast<std::size_t>(pointer.buffer)];
        pointer.buffer = place_of(buffer, buffer.node == logits);
      }
    return launches;
  };
  const Launch advance = placed(generate_advance(step, input, max_context + 1)).at(0);
  Phase phase{"prefill", 2, chunk, 0, {toy, advance}, {"toy", "advance"}, kIds, kLogits};
  if (draws) {
    phase.draw = placed(generate_draw(step, input, logits));
    phase.masked = placed(generate_masked(step, input, logits, max_context + 1));
    for (const std::vector<Launch>* some : {&phase.draw, &phase.masked})
      for (const Launch& launch : *some)
        if (launch.kernel != advance.kernel) program.kernels[launch.kernel] = launch.kernel + ".so";
  }
  program.phases = {phase, phase};
  program.phases[1].name = "decode", program.phases[1].min_tokens = 1;
  program.phases[1].max_tokens = 1;
  if (all_logits > 0) {
    Phase& all = program.phases.emplace_back(phase);
    all.name = "all logits", all.rows = Rows::all;
    all.min_tokens = 1, all.max_tokens = all_logits;
    params.all = 1;
    std::memcpy(all.launches[0].params.data(), &params, sizeof params);
    program.buffers[kLogits].bytes = Count(0, 4 * vocab);
    // Tokens are chosen from the last row.
    for (std::vector<Launch>* some : {&all.draw, &all.masked})
      for (Launch& launch : *some)
        for (Launch::Pointer& pointer : launch.pointers)
          if (pointer.buffer == kLogits) pointer.offset = Count(-4 * vocab, 4 * vocab);
  }
  if (together > 0) {
    // Each row by itself, in two phases by position.
    Phase each{"together", 1, together, 0, {toy}, {"toy"}, kIds, kLogits};
    each.rows = Rows::each;
    each.launches[0].each_row = true;
    each.masked = placed(generate_masked_rows(step, input, logits, max_context + 1));
    for (Launch& launch : each.masked) {
      launch.each_row = true;
      program.kernels[launch.kernel] = launch.kernel + ".so";
    }
    program.buffers[kLogits].bytes = Count(0, 4 * vocab);
    for (const int own : {kMasked, kMemory, kCounters}) {
      Count& bytes = program.buffers[static_cast<std::size_t>(own)].bytes;
      bytes = Count(0, aligned(bytes.at(1)));
    }
    program.phases.push_back(each);
    each.from = max_context / 2;
    program.phases.push_back(each);
  }
  plan_memory(program);
  return program;
}

void Toy::write(const std::filesystem::path& package) const {
  std::filesystem::create_directories(package);
  const Program toy = program();
  write_file(package / "program.json", to_json(toy).dump());
  const float constant = 5;
  write_file(package / "constants.bin", {reinterpret_cast<const char*>(&constant), 4});
  std::vector<float> weights;
  for (std::int64_t token = 0; token < vocab; ++token) weights.push_back(weight_of(token));
  write_safetensors(package / "model.safetensors",
                    {{"weight", DType::f32, {vocab}, bytes_of_values(weights)}});

  StepGraph step;
  const NodeId input = step.graph.add_leaf(Op::input, {{"name", "ids"}}, {ids, {Dim(1)}}, "");
  const NodeId logits =
      step.graph.add_leaf(Op::input, {{"name", "logits"}}, {DType::f32, {Dim(vocab)}}, "");
  std::vector<std::pair<KernelSource, std::string>> sources = {
      {toy_source(), "toy.so"}, {generate_advance(step, input, 1).sources.at(0), "advance.so"}};
  const auto add_new = [&](const Generated& made) {
    for (const KernelSource& source : made.sources)
      if (std::ranges::none_of(sources,
                               [&](const auto& of) { return of.first.entry == source.entry; }))
        sources.emplace_back(source, source.entry + ".so");
  };
  if (draws) add_new(generate_masked(step, input, logits, 1));
  if (together > 0) add_new(generate_masked_rows(step, input, logits, 1));
  for (const auto& [source, file] : sources) {
    const BuildResult built = KernelBuilder(builder_options(read_environment())).build(source, {});
    if (const auto* failure = std::get_if<CompileFailure>(&built)) FAIL(failure->log);
    std::filesystem::copy_file(std::get<Artifact>(built).file, package / file);
  }
  write_digests(package);
}

std::vector<double> Toy::logits(const std::vector<std::int64_t>& tokens) const {
  const auto end = static_cast<std::int64_t>(tokens.size());
  std::int64_t sum = 5;
  for (std::int64_t at = window > 0 ? std::max<std::int64_t>(end - window, 0) : 0; at < end; ++at)
    sum = (sum * 31 + tokens[static_cast<std::size_t>(at)]) % kModulus;
  std::vector<double> logits;
  for (std::int64_t v = 0; v < vocab; ++v)
    logits.push_back(weight_of(v) * static_cast<float>(sum * (v + 1) % 97));
  return logits;
}

std::int64_t Toy::next(const std::vector<std::int64_t>& tokens) const {
  const std::vector<double> all = logits(tokens);
  return std::max_element(all.begin(), all.end()) - all.begin();
}

std::vector<std::int64_t> Toy::follow(std::vector<std::int64_t> tokens, std::int64_t count) const {
  const std::size_t given = tokens.size();
  while (count-- > 0) tokens.push_back(next(tokens));
  return {tokens.begin() + static_cast<std::ptrdiff_t>(given), tokens.end()};
}

}  // namespace ac::test
