// Graph fragments as subjects: truth and plain implementation, caches in a kernel's layout.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "ir/builder.h"
#include "tests/unit/expect_error.h"
#include "validate/buffers.h"
#include "validate/gate.h"
#include "validate/graph_subject.h"
#include "validate/repeated_subject.h"
#include "validate/scenario.h"

using namespace ac;
using namespace ac::validate;

namespace {

constexpr std::int64_t kQueryHeads = 4, kKeyHeads = 2, kHeadSize = 6;

StepGraph attention(std::int64_t window, KvStorage storage = KvStorage::elements) {
  StepGraph step;
  Builder b(step.graph);
  const Dim tokens(Symbol::T);
  const NodeId q = b.input("q", {DType::f16, {tokens, kQueryHeads, kHeadSize}});
  const NodeId k = b.input("k", {DType::f16, {tokens, kKeyHeads, kHeadSize}});
  const NodeId v = b.input("v", {DType::f16, {tokens, kKeyHeads, kHeadSize}});
  const NodeId positions = b.positions(tokens);
  const NodeId frequencies = b.constant(DType::f32, {3}, {1, 0.25, 0.0625});
  const NodeId turned_q = b.rope(q, positions, frequencies, 1.0, false);
  const NodeId turned_k = b.rope(k, positions, frequencies, 1.0, false);
  step.states.push_back(
      kv_state(DType::f16, kKeyHeads, kHeadSize, kHeadSize, window, "attention", 0, storage));
  step.graph.outputs.push_back({"out", b.append_attend(turned_q, turned_k, v, 0, 0.5, window, 0)});
  return step;
}

// Runs the subject's own plain implementation as if it were a kernel; `wrong` may spoil its
// results.
void run_plain(Subject& subject, std::function<void(const Elements&, Elements&)> wrong = nullptr) {
  subject.run = [tensors = subject.tensors, plain = subject.plain, wrong](const Buffers& buffers,
                                                                          unsigned) -> std::string {
    Elements in(tensors.size());
    for (std::size_t t = 0; t < tensors.size(); ++t) in[t] = load_elements(tensors[t], buffers[t]);
    Elements out = plain(in);
    if (wrong) wrong(in, out);
    for (std::size_t t = 0; t < tensors.size(); ++t)
      for (std::size_t i = 0; i < out[t].size(); ++i) {
        const bool kept =
            tensors[t].role == TensorRole::state &&
            (out[t][i] == in[t][i] || (std::isnan(out[t][i]) && std::isnan(in[t][i])));
        if (!kept)
          store_element(tensors[t].dtype, out[t][i],
                        buffers[t].data() + i * bytes_of(tensors[t].dtype));
      }
    return "";
  };
}

std::string reason(const Subject& subject) {
  const Verdict verdict = admit(subject);
  return verdict.rejection ? verdict.rejection->reason : "";
}

// x * w + old, of so many rows of w.
StepGraph product(std::int64_t rows) {
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {DType::f32, {Dim(Symbol::T), 24}});
  const NodeId old = b.input("old", {DType::f32, {Dim(Symbol::T), Dim(rows)}});
  const NodeId w = b.weight("w", {DType::f32, {Dim(rows), 24}});
  step.graph.outputs.push_back({"y", b.binary(Op::add, old, b.linear(x, w))});
  return step;
}

TEST_CASE("graph subject: rows that repeat those of a smaller step") {
  constexpr std::int64_t kFew = 13, kRows = 50, kTokens = 3, kLength = 24;
  const GraphSubjectOptions options{.tokens = kTokens};
  // What the kernel makes of each row, and what it does besides.
  using Row = std::function<std::int64_t(std::int64_t)>;
  using Also = std::function<void(const Buffers&)>;
  const auto admitted = [&](const Row& row, const Also& also = nullptr) {
    Subject subject =
        repeated(subject_of(product(kFew), options), subject_of(product(kRows), options)).value();
    subject.run = [&](const Buffers& buffers, unsigned) -> std::string {
      const auto floats = [&](std::size_t t) {
        return reinterpret_cast<float*>(buffers[t].data());
      };
      CHECK(buffers[1].size() == kTokens * kRows * sizeof(float));
      CHECK(buffers[2].size() == kRows * kLength * sizeof(float));
      const float *x = floats(0), *old = floats(1), *w = floats(2);
      for (std::int64_t token = 0; token < kTokens; ++token)
        for (std::int64_t i = 0; i < kRows; ++i) {
          float sum = 0;
          for (std::int64_t k = 0; k < kLength; ++k)
            sum += x[token * kLength + k] * w[row(i) * kLength + k];
          floats(3)[token * kRows + i] = sum + old[token * kRows + i];
        }
      if (also) also(buffers);
      return "";
    };
    const Verdict verdict = admit(subject);
    return verdict.rejection ? verdict.rejection->reason : "";
  };
  CHECK(admitted([](std::int64_t i) { return i; }) == "");
  // Which repetition is read does not matter, another row does.
  CHECK(admitted([](std::int64_t i) { return i % kFew; }) == "");
  CHECK(admitted([](std::int64_t i) { return i < 48 ? i : i - 8; }).find("y[") == 0);
  CHECK(admitted([](std::int64_t i) { return i; },
                 [](const Buffers& buffers) { buffers[2].back() ^= std::byte{1}; }) ==
        "w[1199]: modified what it may only read (scenario \"random x1\", seed 1)");
  // Sizes of which some differ in another way.
  CHECK(!repeated(subject_of(product(kFew), {.tokens = 2}), subject_of(product(kRows), options)));
  CHECK(!repeated(subject_of(product(kRows), options), subject_of(product(kRows), options)));
}

TEST_CASE("graph subject: ids of a table whose entries repeat those of a smaller one") {
  const auto lookup = [](std::int64_t entries) {
    StepGraph step;
    Builder b(step.graph);
    const NodeId ids = b.input("ids", {DType::i64, {Dim(Symbol::T)}});
    step.graph.outputs = {
        {"y", b.embedding(b.weight("table", {DType::f32, {Dim(entries), 8}}), ids)}};
    return subject_of(step, {.tokens = 5, .limits = {{"ids", entries}}});
  };
  Subject subject = repeated(lookup(13), lookup(5000)).value();
  std::int64_t largest = 0;
  subject.run = [&](const Buffers& buffers, unsigned) -> std::string {
    for (std::int64_t token = 0; token < 5; ++token) {
      const std::int64_t id = reinterpret_cast<const std::int64_t*>(buffers[0].data())[token];
      if (id < 0 || id >= 5000) {
        float* const y = reinterpret_cast<float*>(buffers[2].data()) + 8 * token;
        std::fill_n(y, 8, NAN);
        continue;
      }
      largest = std::max(largest, id);
      std::memcpy(buffers[2].data() + 32 * token, buffers[1].data() + 32 * id, 32);
    }
    return "";
  };
  CHECK(reason(subject) == "");
  CHECK(largest > 4000);
}

TEST_CASE("graph subject: tensors of an attention") {
  const Subject subject = subject_of(attention(0), {.capacity = 32, .positions = {0, 1, 7, 31}});
  REQUIRE(subject.tensors.size() == 7);
  CHECK(subject.tensors[index_of(subject, "q")].shape ==
        std::vector<std::int64_t>{1, kQueryHeads, kHeadSize});
  const TensorSpec& keys = subject.tensors[index_of(subject, "state0.keys")];
  CHECK(keys.shape == std::vector<std::int64_t>{kKeyHeads, 32, kHeadSize});
  CHECK(keys.role == TensorRole::state);
  const TensorSpec& position = subject.tensors[index_of(subject, "position")];
  CHECK(position.high == 31);
  CHECK(position.edges.size() == 4);
}

TEST_CASE("graph subject: the plain implementation passes, a wrong one does not") {
  for (std::int64_t window : {0, 8}) {
    GraphSubjectOptions options{.capacity = 32, .positions = {0, 1, 7, 8, 9, 30, 31}};
    if (window > 0) options.capacity = 8;
    Subject subject = subject_of(attention(window), options);
    run_plain(subject);
    CHECK(reason(subject) == "");
    const std::size_t out = index_of(subject, "out"), keys = index_of(subject, "state0.keys");
    run_plain(subject, [&](const Elements&, Elements& results) {
      for (double& x : results[out]) x *= 1.01;
    });
    CHECK(reason(subject).find("out") == 0);
    // The new key goes nowhere.
    run_plain(subject, [&](const Elements& in, Elements& results) { results[keys] = in[keys]; });
    CHECK(reason(subject).find("state0.keys") == 0);
    // An old one changes too.
    run_plain(subject, [&](const Elements& in, Elements& results) {
      if (!std::isnan(in[keys][0]) && results[keys][0] == in[keys][0]) results[keys][0] += 0.25;
    });
    CHECK(reason(subject).find("stays") != std::string::npos);
    // A slot that holds nothing is written.
    run_plain(subject, [&](const Elements& in, Elements& results) {
      if (std::isnan(in[keys].back()) && std::isnan(results[keys].back())) results[keys].back() = 0;
    });
    CHECK(reason(subject).find("should hold nothing") != std::string::npos);
  }
}

TEST_CASE("graph subject: keys and values as codes with scales") {
  for (const std::int64_t window : {0, 8}) {
    GraphSubjectOptions options{.tokens = 3, .capacity = 32, .positions = {0, 1, 7, 8, 9, 28, 29}};
    if (window > 0) options.capacity = 10;
    Subject subject = subject_of(attention(window, KvStorage::fp8), options);
    REQUIRE(subject.tensors.size() == 9);
    const auto at = [&](const char* name) { return index_of(subject, name); };
    const std::size_t out = at("out"), keys = at("state0.keys"), values = at("state0.values"),
                      key_scales = at("state0.key_scales"),
                      value_scales = at("state0.value_scales");
    CHECK(subject.tensors[keys].dtype == DType::f8e4m3);
    CHECK(subject.tensors[key_scales].shape ==
          std::vector<std::int64_t>{kKeyHeads, options.capacity, 1});
    run_plain(subject);
    CHECK(reason(subject) == "");

    // What comes of states that somebody else has rounded.
    const auto attended = [&](const Elements& in, Elements& results) {
      Elements written = results;
      for (double& code : written[keys]) code = round_to(DType::f8e4m3, code);
      for (double& code : written[values]) code = round_to(DType::f8e4m3, code);
      results[out] = subject.plain_after(in, written)[out];
    };
    // Of the new tokens' rows: code by code, or scale by scale.
    const auto each_new = [&](const Elements& in, std::vector<double>& now, std::size_t tensor,
                              const auto& change) {
      for (std::size_t i = 0; i < now.size(); ++i)
        if (now[i] != in[tensor][i] && !std::isnan(now[i])) now[i] = change(now[i]);
    };
    const auto refused_at = [&](const std::function<void(const Elements&, Elements&)>& wrong) {
      run_plain(subject, [&](const Elements& in, Elements& results) {
        wrong(in, results);
        attended(in, results);
      });
      const std::string why = reason(subject);
      return why.substr(0, why.find('['));
    };
    // A number next to a border between two codes may become either.
    CHECK(refused_at([&](const Elements& in, Elements& results) {
            for (const std::size_t t : {keys, values})
              each_new(in, results[t], t, [](double code) {
                const double larger = round_to(DType::f8e4m3, code * (1 + 2e-4));
                return round_to(DType::f8e4m3, code) == larger ? code : larger;
              });
          }) == "");
    CHECK(refused_at([&](const Elements& in, Elements& results) {  // cut instead of rounded
            each_new(in, results[keys], keys, [](double code) {
              const double near = round_to(DType::f8e4m3, code);
              return std::fabs(near) <= std::fabs(code) ? near
                                                        : round_to(DType::f8e4m3, code * 0.93);
            });
          }) == "state0.keys");
    CHECK(refused_at([&](const Elements& in, Elements& results) {
            each_new(in, results[values], values, [](double code) { return code / 2; });
          }) == "state0.values");
    CHECK(refused_at([&](const Elements& in, Elements& results) {  // of a ring: not written anew
            results[key_scales] = in[key_scales];
          }) == "state0.key_scales");
    CHECK(refused_at([&](const Elements& in, Elements& results) {
            each_new(in, results[value_scales], value_scales, [](double x) { return x * 1.02; });
          }) == "state0.value_scales");
    // Right codes, of which something else was computed.
    run_plain(subject, [&](const Elements&, Elements& results) {
      for (double& x : results[out]) x *= 1.01;
    });
    CHECK(reason(subject).find("out") == 0);
  }
}

TEST_CASE("graph subject: several tokens, and an output in place") {
  StepGraph step;
  Builder b(step.graph);
  const Dim tokens(Symbol::T);
  const NodeId x = b.input("x", {DType::bf16, {tokens, 16}});
  const NodeId residual = b.input("residual", {DType::bf16, {tokens, 5}});
  const NodeId y = b.linear(b.rms_norm(x, b.weight("norm", {DType::bf16, {16}}), 1e-5, 1),
                            b.weight("w", {DType::bf16, {5, 16}}));
  step.graph.outputs.push_back({"y", b.binary(Op::add, residual, y)});
  Subject subject = subject_of(step, {.tokens = 3, .in_place = {{"y", "residual"}}});
  CHECK(subject.tensors.size() == 4);
  CHECK(subject.tensors[index_of(subject, "residual")].role == TensorRole::state);
  run_plain(subject);
  CHECK(reason(subject) == "");
  const std::size_t place = index_of(subject, "residual");
  run_plain(subject, [&](const Elements& in, Elements& results) { results[place] = in[place]; });
  CHECK(reason(subject).find("residual") == 0);
}

TEST_CASE("graph subject: ids") {
  StepGraph step;
  Builder b(step.graph);
  const NodeId ids = b.input("ids", {DType::i64, {Dim(Symbol::T)}});
  step.graph.outputs.push_back({"x", b.embedding(b.weight("table", {DType::f16, {9, 4}}), ids)});
  Subject subject = subject_of(step, {.tokens = 4, .limits = {{"ids", 9}}});
  run_plain(subject);
  CHECK(reason(subject) == "");
  const std::size_t x = index_of(subject, "x");
  run_plain(subject, [&](const Elements& in, Elements& results) {
    if (in[0][1] == 8) results[x][4] = 0;  // the last row of the table
  });
  CHECK(reason(subject).find("x[4]") == 0);
  CHECK_BAD_INPUT(subject_of(step, {.tokens = 4}), "ids", "how large");
}

TEST_CASE("graph subject: options that do not fit") {
  const auto at = [](std::int64_t window, std::int64_t position) {
    return subject_of(attention(window), {.capacity = 8, .positions = {position}});
  };
  CHECK_BAD_INPUT(at(0, 8), "cannot hold");
  CHECK_BAD_INPUT(at(9, 20), "cannot hold");
  CHECK_BAD_INPUT(at(0, -1), "negative");
}

TEST_CASE("graph subject: plain arithmetic is near the truth, but rounded") {
  const Subject subject = subject_of(attention(0), {.capacity = 32, .positions = {20}});
  const Elements in = elements_of(subject, {});
  const std::size_t out = index_of(subject, "out"), values = index_of(subject, "state0.values");
  const Elements truth = subject.truth(in), plain = subject.plain(in);
  double largest = 0;
  for (std::size_t i = 0; i < truth[out].size(); ++i) {
    CHECK(plain[out][i] == round_to(DType::f16, plain[out][i]));
    largest = std::max(largest, std::fabs(plain[out][i] - truth[out][i]));
  }
  CHECK(largest > 1e-5);
  CHECK(largest < 1e-2);
  // Slot 20 took the new value; the slots after it are empty.
  const std::size_t v = index_of(subject, "v");
  CHECK(truth[values][20 * kHeadSize] == in[v][0]);
  CHECK(std::isnan(truth[values][21 * kHeadSize]));
  CHECK(std::isnan(in[values][20 * kHeadSize]));
}

}  // namespace
