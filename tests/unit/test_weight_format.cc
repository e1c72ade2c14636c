#include "base/weight_format.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "base/elements.h"
#include "base/error.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ir/weights.h"
#include "ir/work.h"
#include "program/buffer.h"
#include "reference/executor.h"
#include "validate/graph_subject.h"
#include "validate/scenario.h"

using namespace ac;

namespace {

// What torch.float8_e4m3fn says of the codes 0x00 to 0x7e.
constexpr std::array kE4m3 = {
    0.0,      0.001953125, 0.00390625, 0.005859375, 0.0078125, 0.009765625, 0.01171875, 0.013671875,
    0.015625, 0.017578125, 0.01953125, 0.021484375, 0.0234375, 0.025390625, 0.02734375, 0.029296875,
    0.03125,  0.03515625,  0.0390625,  0.04296875,  0.046875,  0.05078125,  0.0546875,  0.05859375,
    0.0625,   0.0703125,   0.078125,   0.0859375,   0.09375,   0.1015625,   0.109375,   0.1171875,
    0.125,    0.140625,    0.15625,    0.171875,    0.1875,    0.203125,    0.21875,    0.234375,
    0.25,     0.28125,     0.3125,     0.34375,     0.375,     0.40625,     0.4375,     0.46875,
    0.5,      0.5625,      0.625,      0.6875,      0.75,      0.8125,      0.875,      0.9375,
    1.0,      1.125,       1.25,       1.375,       1.5,       1.625,       1.75,       1.875,
    2.0,      2.25,        2.5,        2.75,        3.0,       3.25,        3.5,        3.75,
    4.0,      4.5,         5.0,        5.5,         6.0,       6.5,         7.0,        7.5,
    8.0,      9.0,         10.0,       11.0,        12.0,      13.0,        14.0,       15.0,
    16.0,     18.0,        20.0,       22.0,        24.0,      26.0,        28.0,       30.0,
    32.0,     36.0,        40.0,       44.0,        48.0,      52.0,        56.0,       60.0,
    64.0,     72.0,        80.0,       88.0,        96.0,      104.0,       112.0,      120.0,
    128.0,    144.0,       160.0,      176.0,       192.0,     208.0,       224.0,      240.0,
    256.0,    288.0,       320.0,      352.0,       384.0,     416.0,       448.0};
static_assert(kE4m3.size() == 127);

constexpr std::int64_t kRows = 150, kColumns = 300;  // blocks are ragged both ways
const TensorType kMatrix{DType::bf16, {kRows, kColumns}};

Graph one_linear(Format format = Format::fp8_block) {
  Graph graph{"test", {}, {}};
  Builder b(graph);
  const NodeId x = b.input("x", {DType::bf16, {Dim(Symbol::T), kColumns}});
  graph.outputs.push_back({"y", b.linear(x, b.weight("w", kMatrix, format))});
  return graph;
}

std::string problem(const std::string& text) {
  try {
    parse_graph(text, "test");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("weight formats: every code of E4M3 has torch's value") {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    const double value = load_element(DType::f8e4m3, &byte);
    std::uint8_t back = 0;
    store_element(DType::f8e4m3, value, &back);
    CHECK(int{back} == code);
    if ((code & 0x7f) == 0x7f) {
      CHECK(std::isnan(value));
      continue;
    }
    CHECK(std::fabs(value) == kE4m3[static_cast<std::size_t>(code & 0x7f)]);
    CHECK(std::signbit(value) == (code >= 0x80));
    CHECK(round_to(DType::f8e4m3, value) == value);
  }
}

TEST_CASE("weight formats: rounding to E4M3 is torch's") {
  constexpr std::pair<double, int> cases[] = {
      {0x1p-10, 0}, {0x1.8p-9, 2}, {0x1.0008p-10, 1}, {0x1.4p-8, 2}, {0.0156, 8}, {1.0625, 56},
      {1.1875, 58}, {17, 88},      {19, 90},          {448, 126},    {464, 126},  {464.1, 126},
      {480, 126},   {1e9, 126},    {-0.007, 132},     {240.1, 119},  {-0.0, 128}};
  for (const auto& [value, code] : cases) {
    std::uint8_t got = 0;
    store_element(DType::f8e4m3, value, &got);
    CHECK_MESSAGE(int{got} == code, value);
  }
}

TEST_CASE("weight formats: parts, shapes and bytes") {
  const std::array<std::int64_t, 2> shape{kRows, kColumns};
  const WeightFormat& fp8 = traits(Format::fp8_block);
  REQUIRE(fp8.parts.size() == 2);
  CHECK(fp8.parts[0].shape(shape) == std::vector<std::int64_t>{kRows, kColumns});
  CHECK(fp8.parts[1].shape(shape) == std::vector<std::int64_t>{2, 3});
  CHECK(fp8.bytes(shape, DType::bf16) == kRows * kColumns + 2 * 3 * 4);
  CHECK(traits(Format::plain).bytes(shape, DType::bf16) == kRows * kColumns * 2);
  // The table is in the order of the enumeration, and its names are found.
  std::set<std::string_view> keys;
  for (const WeightFormat& format : weight_formats()) {
    CHECK(find_format(format.name) == &format);
    CHECK(&traits(format.format) == &format);
    CHECK(std::string_view(format.parts[0].key) == "key");
  }
  CHECK(find_format("fp9") == nullptr);
}

TEST_CASE("weight formats: an element is its code times the scale of its block") {
  const WeightFormat& fp8 = traits(Format::fp8_block);
  const std::array<std::int64_t, 2> shape{kRows, kColumns};
  const auto code_at = [](std::int64_t i) { return static_cast<double>(i % 7 - 3); };
  const auto scale_at = [](std::int64_t i) { return 1.0 + static_cast<double>(i); };
  const auto part = [&](std::size_t p, std::int64_t first, std::int64_t count, double* out) {
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = p == 0 ? code_at(first + i) : scale_at(first + i);
  };
  // Whole, and pieces that begin and end within rows.
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, kRows * kColumns},
                                     {127 * kColumns + 120, 700},
                                     {128 * kColumns, kColumns},
                                     {kRows * kColumns - 1, 1}}) {
    std::vector<double> got(static_cast<std::size_t>(count));
    fp8.read(shape, first, count, part, got.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = (first + i) / kColumns, column = (first + i) % kColumns;
      REQUIRE(got[static_cast<std::size_t>(i)] ==
              code_at(first + i) * scale_at(row / 128 * 3 + column / 128));
    }
  }
}

TEST_CASE("weight formats: a graph says them, and its text comes back") {
  const Graph graph = one_linear();
  const std::string text = print(graph);
  CHECK(text.find("weight {key=\"w\", store=\"checkpoint\", format=\"fp8_block\", "
                  "scales=\"w_scale_inv\"} : bf16[150, 300]") != std::string::npos);
  CHECK(print(parse_graph(text, "test")) == text);
  const std::vector<Node> parts = parts_of(graph.nodes[1]);
  REQUIRE(parts.size() == 2);
  CHECK(to_string(parts[0].type) == "f8e4m3[150, 300]");
  CHECK(to_string(parts[1].type) == "f32[2, 3]");
  CHECK(parts[1].text("key") == "w_scale_inv");
  // Work counts what is stored.
  CHECK(work_of(graph, 2).weight_bytes == Dim(kRows * kColumns + 24));
  CHECK(work_of(one_linear(Format::plain), 2).weight_bytes == Dim(kRows * kColumns * 2));
}

TEST_CASE("weight formats: graphs that contradict themselves are refused") {
  const std::string good = print(one_linear());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return problem(text.replace(at, from.size(), to));
  };
  const auto has = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  CHECK(problem(good).empty());
  has(with("format=\"fp8_block\"", "format=\"fp9\""), "no format is called \"fp9\"");
  has(with(", scales=\"w_scale_inv\"", ""), "needs \"scales\"");
  has(with("format=\"fp8_block\", ", ""), "has no \"scales\"");
  has(with(": bf16[150, 300]", ": f8e4m3[150, 300]"), "needs a format");
  has(with("return %2", "return %1"), "weight in a format");
  has(with("%2 = linear(%0, %1) : bf16[T, 150]", "%2 = neg(%1) : bf16[150, 300]"),
      "which a linear alone reads");
}

TEST_CASE("weight formats: buffers are parts, and read with distrust") {
  const Buffer scales{.role = Buffer::Role::weight,
                      .name = "w_scale_inv",
                      .dtype = DType::f32,
                      .bytes = 24,
                      .store = "checkpoint",
                      .key = "w_scale_inv",
                      .shape = {2, 3},
                      .format = Format::fp8_block,
                      .part = 1};
  const Json good = to_json(scales);
  CHECK(buffer_from_json(good, "test") == scales);
  // Near 1 / sqrt(columns) together with the codes.
  Buffer codes = scales;
  codes.part = 0, codes.shape = {150, 384}, codes.dtype = DType::f8e4m3;
  CHECK(codes.typical() * scales.typical() == doctest::Approx(1 / std::sqrt(384.0)));
  const auto refused = [&](const char* field, const Json& value, const char* why) {
    Json bad = good;
    bad[field] = value;
    CHECK_THROWS_WITH_AS(buffer_from_json(bad, "test"), doctest::Contains(why), Error);
  };
  refused("format", "fp9", "no weight format is called \"fp9\"");
  refused("part", 2, "has no part 2");
  refused("part", -1, "has no part -1");
  refused("part", 0, "part 0 of the format fp8_block is f8e4m3");
  refused("dtype", "bf16", "part 1 of the format fp8_block is f32");
  Json plain = good;
  plain.erase("format");
  plain.erase("part");
  CHECK(buffer_from_json(plain, "test").format == Format::plain);
}

TEST_CASE("weight formats: the reference multiplies by exact elements") {
  const Graph graph = one_linear();
  std::mt19937 random(3);
  std::vector<std::uint8_t> codes(kRows * kColumns);
  for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random() % 127);
  std::vector<float> scales(6);
  for (float& scale : scales) scale = 0.001f + static_cast<float>(random() % 1000) / 999.f;
  const auto lookup = [&](const Node& part) -> WeightView {
    if (part.text("key") == "w")
      return {DType::f8e4m3, {kRows, kColumns}, reinterpret_cast<const std::byte*>(codes.data())};
    return {DType::f32, {2, 3}, reinterpret_cast<const std::byte*>(scales.data())};
  };
  Value x{DType::bf16, {2, kColumns}, {}};
  for (std::int64_t i = 0; i < 2 * kColumns; ++i)
    x.data.push_back(round_to(DType::bf16, std::sin(static_cast<double>(i))));
  const Values got = evaluate(graph, {.T = 2}, {{"x", x}}, lookup);
  for (std::int64_t token = 0; token < 2; ++token)
    for (std::int64_t row = 0; row < kRows; ++row) {
      double sum = 0;
      for (std::int64_t k = 0; k < kColumns; ++k) {
        const double w = kE4m3[codes[static_cast<std::size_t>(row * kColumns + k)]] *
                         double{scales[static_cast<std::size_t>(row / 128 * 3 + k / 128)]};
        sum += w * x.data[static_cast<std::size_t>(token * kColumns + k)];
      }
      CHECK(got.at("y").data[static_cast<std::size_t>(token * kRows + row)] ==
            doctest::Approx(sum).epsilon(1e-12));
    }
  // A part of another type or shape is refused by its name.
  const auto wrong = [&](const Node& part) -> WeightView {
    if (part.text("key") == "w") return lookup(part);
    return {DType::f32, {3, 2}, reinterpret_cast<const std::byte*>(scales.data())};
  };
  CHECK_THROWS_WITH_AS(evaluate(graph, {.T = 2}, {{"x", x}}, wrong),
                       doctest::Contains("w_scale_inv"), Error);
}

TEST_CASE("weight formats: the gate draws every code, scales of blocks, and NaNs") {
  const Graph graph = one_linear();
  const validate::Subject subject = validate::subject_of({graph, {}}, {.tokens = 1});
  const std::size_t codes = validate::index_of(subject, "w"),
                    scales = validate::index_of(subject, "w_scale_inv");
  CHECK(subject.tensors[codes].dtype == DType::f8e4m3);
  CHECK(subject.tensors[scales].shape == std::vector<std::int64_t>{2, 3});
  std::set<std::string> hostile;
  bool is_exact = false;
  for (const validate::Scenario& scenario : validate::scenarios_for(subject, {})) {
    const validate::Elements drawn = validate::elements_of(subject, scenario);
    if (scenario.name.starts_with("a NaN") || scenario.name.starts_with("an inf"))
      hostile.insert(scenario.name);
    if (scenario.pattern == validate::Pattern::random) {
      std::set<int> seen;
      for (const double x : drawn[codes]) {
        std::uint8_t code = 0;
        store_element(DType::f8e4m3, x, &code);
        seen.insert(code);
      }
      CHECK(seen.size() == 254);  // 0x7f and 0xff are hostile
      CHECK(std::set<double>(drawn[scales].begin(), drawn[scales].end()).size() == 6);
    }
    if (scenario.pattern == validate::Pattern::bits) {
      is_exact = true;
      for (const double x : drawn[scales]) CHECK(x == 1);
    }
  }
  CHECK(is_exact);
  CHECK(hostile.contains("a NaN in w"));
  CHECK(hostile.contains("a NaN in w_scale_inv"));
  CHECK_FALSE(hostile.contains("an infinity in w"));
}
