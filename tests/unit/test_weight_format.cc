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
#include "ir/graph_text.h"
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

constexpr Format kFp8{.codes = Codes::e4m3, .rows = 128, .columns = 128};

Graph one_linear(const Format& format = kFp8, FileLayout layout = FileLayout::fine_grained) {
  Graph graph{"test", {}, {}};
  Builder b(graph);
  const NodeId x = b.input("x", {DType::bf16, {Dim(Symbol::T), kColumns}});
  graph.outputs.push_back({"y", b.linear(x, b.weight("w", kMatrix, format, layout))});
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

TEST_CASE("weight formats: a number of any size becomes the nearest E4M3, of two the even one") {
  std::mt19937_64 random(3);
  const auto check = [](double value) {
    // The last code is no number.
    int nearest = 0;
    const double size = std::min(std::fabs(value), 448.0);
    for (int code = 1; code < 0x7f; ++code) {
      const double step = std::fabs(size - kE4m3[static_cast<std::size_t>(code)]);
      const double least = std::fabs(size - kE4m3[static_cast<std::size_t>(nearest)]);
      if (step < least || (step == least && code % 2 == 0)) nearest = code;
    }
    const double wanted = std::copysign(kE4m3[static_cast<std::size_t>(nearest)], value);
    std::uint8_t code = 0;
    store_element(DType::f8e4m3, value, &code);
    REQUIRE_MESSAGE(int{code} == (std::signbit(value) ? nearest | 0x80 : nearest), value);
    REQUIRE(round_to(DType::f8e4m3, value) == wanted);
    REQUIRE(std::signbit(round_to(DType::f8e4m3, value)) == std::signbit(value));
  };
  std::uniform_real_distribution<double> draw(-2, 2);
  for (int i = 0; i < 20'000; ++i)
    check(std::ldexp(draw(random), static_cast<int>(random() % 24) - 13));
  // Ties, and their neighbours.
  for (std::size_t code = 0; code + 1 < kE4m3.size(); ++code)
    for (const double sign : {1.0, -1.0}) {
      const double tie = sign * (kE4m3[code] + kE4m3[code + 1]) / 2;
      for (const double near : {tie, std::nextafter(tie, 1e9), std::nextafter(tie, -1e9)})
        check(near);
    }
  for (const double value : {HUGE_VAL, -HUGE_VAL, 1e300, 0x1p-1074, -0x1p-1074}) check(value);
  CHECK(std::isnan(round_to(DType::f8e4m3, NAN)));
}

TEST_CASE("weight formats: E8M0 is a power of two, of which the nearest is taken") {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    const double value = load_element(DType::f8e8m0, &byte);
    if (code == 255)
      CHECK(std::isnan(value));
    else
      CHECK(value == std::ldexp(1.0, code - 127));
    std::uint8_t back = 0;
    store_element(DType::f8e8m0, value, &back);
    CHECK(int{back} == code);
  }
  constexpr std::pair<double, double> cases[] = {
      {1.49, 1},     {1.5, 2},       {2.99, 2},        {3, 4},
      {0, 0x1p-127}, {-4, 0x1p-127}, {1e300, 0x1p127}, {0x1.4p-126, 0x1p-126}};
  for (const auto& [value, rounded] : cases)
    CHECK_MESSAGE(round_to(DType::f8e8m0, value) == rounded, value);
}

TEST_CASE("weight formats: parts, shapes and bytes") {
  const std::array<std::int64_t, 2> shape{kRows, kColumns};
  const WeightFormat fp8 = traits(kFp8);
  REQUIRE(fp8.parts.size() == 2);
  CHECK(fp8.parts[0].shape(shape) == std::vector<std::int64_t>{kRows, kColumns});
  CHECK(fp8.parts[1].shape(shape) == std::vector<std::int64_t>{2, 3});
  CHECK(fp8.bytes(shape, DType::bf16) == kRows * kColumns + 2 * 3 * 4);
  CHECK(traits({}).bytes(shape, DType::bf16) == kRows * kColumns * 2);
  // Two codes a byte, a scale and a zero point for 32 of a row; the last ones are for fewer.
  const WeightFormat int4 = find_format("u4_g32_f16_zeros").value();
  REQUIRE(int4.parts.size() == 3);
  CHECK(int4.parts[0].shape(shape) == std::vector<std::int64_t>{kRows, kColumns / 2});
  CHECK(int4.parts[1].shape(shape) == std::vector<std::int64_t>{kRows, 10});
  CHECK(int4.bytes(shape, DType::bf16) == kRows * (kColumns / 2 + 10 * 3));
  CHECK(find_format("u8_row")->bytes(shape, DType::bf16) == kRows * (kColumns + 4));
  CHECK(find_format("e4m3_all")->bytes(shape, DType::bf16) == kRows * kColumns + 4);
  // Two codes a byte, a scale of a byte for 16 of a row, and one for all.
  const WeightFormat nvfp4 = find_format("e2m1_g16_f8e4m3_global").value();
  REQUIRE(nvfp4.parts.size() == 3);
  CHECK(nvfp4.parts[1].shape(shape) == std::vector<std::int64_t>{kRows, 19});
  CHECK(nvfp4.parts[2].shape(shape) == std::vector<std::int64_t>{1, 1});
  CHECK(nvfp4.bytes(shape, DType::bf16) == kRows * (kColumns / 2 + 19) + 4);
  CHECK(find_format("e2m1_g32_f8e8m0")->bytes(shape, DType::bf16) == kRows * (kColumns / 2 + 10));
  // Two codes a byte, a scale and a minimum of a byte for 32, and of two bytes for 256.
  const WeightFormat q4_k = find_format("u4_g32_i8_in256_minima").value();
  const std::array<std::int64_t, 2> whole{kRows, 512};
  REQUIRE(q4_k.parts.size() == 3);
  CHECK(q4_k.parts[1].shape(whole) == std::vector<std::int64_t>{kRows, 16 * 2});
  CHECK(q4_k.parts[2].shape(whole) == std::vector<std::int64_t>{kRows, 2 * 2});
  CHECK(q4_k.bytes(whole, DType::bf16) == kRows * (256 + 32 + 8));
  // The low bits of two codes a byte, the high ones of four, a scale of a byte for 16.
  const WeightFormat q6_k = find_format("u6_g16_i8_in256").value();
  REQUIRE(q6_k.parts.size() == 4);
  CHECK(q6_k.parts[3].shape(whole) == std::vector<std::int64_t>{kRows, 128});
  CHECK(q6_k.bytes(whole, DType::bf16) == kRows * 2 * 210);  // as in a GGUF file
  CHECK(kernels::weight_bytes(q6_k.format, kernels::Type::bf16, kRows, 512) == kRows * 2 * 210);
  CHECK(kernels::weight_bytes(q4_k.format, kernels::Type::bf16, kRows, 512) ==
        kRows * (256 + 32 + 8));
}

TEST_CASE("weight formats: names say all of a format, and nothing twice") {
  for (const Codes codes : {Codes::e4m3, Codes::u8, Codes::u4, Codes::e2m1})
    for (const ScaleType scale :
         {ScaleType::f32, ScaleType::f16, ScaleType::bf16, ScaleType::e4m3, ScaleType::e8m0})
      for (const auto& [rows, columns] :
           {std::pair{1, 0}, {0, 0}, {1, 32}, {1, 128}, {128, 128}, {64, 32}})
        for (const bool zeros : {false, true}) {
          if (zeros && !is_whole(codes)) continue;
          for (const bool global : {false, true}) {
            if (zeros && global) continue;
            const Format format{codes, scale, zeros, rows, columns, global};
            const auto found = find_format(traits(format).name);
            REQUIRE(found.has_value());
            CHECK(found->format == format);
          }
        }
  for (const char* name : {"u4_g32_i8_in256_minima", "u6_g16_i8_in256", "u5_g32_f16_minima"})
    CHECK(traits(find_format(name)->format).name == name);
  const Format listed{.codes = Codes::u4, .zeros = true, .columns = 32, .listed = true};
  CHECK(traits(listed).name == "u4_g32_zeros_listed");
  CHECK(find_format("u4_g32_zeros_listed")->format == listed);
  CHECK(find_format("plain")->is_plain());
  for (const char* name : {"fp9",
                           "",
                           "u4",
                           "u4_g",
                           "u4_g0",
                           "u4_g-1",
                           "u4_g32_f32",
                           "u4_g32_f16_",
                           "u4_g32_zeros_f16",
                           "u4_1x32",
                           "u4_row_f16_zeros_zeros",
                           "e4m3_row_zeros",
                           "e2m1_g32_zeros",
                           "u4_g32_zeros_global",
                           "u4_g32_listed_zeros",
                           "listed",
                           "u4_g32_i8",
                           "u4_g32_f16_in256",
                           "u4_g32_i8_in100",
                           "u4_row_i8_in256",
                           "u4_g32_i8_in256_zeros",
                           "e4m3_g32_i8_in256_minima",
                           "u4_g32_i8_minima_in256",
                           "u4_g32_i8_in0",
                           "u5_g32_f16_listed",
                           "u4_g99999999999",
                           "u4_0x0",
                           "u7_row"})
    CHECK_MESSAGE(!find_format(name).has_value(), name);
  CHECK(why_impossible(find_format("u8_row_listed")->format, std::vector<std::int64_t>{3, 5}) ==
        "columns are listed of groups of a row alone");
  CHECK(why_impossible(find_format("u4_row")->format, std::vector<std::int64_t>{3, 5}) ==
        "rows of 5 codes are no whole bytes");
  CHECK(why_impossible(find_format("u8_g16_i8_in256")->format, std::vector<std::int64_t>{3, 384}) ==
        "rows of 384 have no whole outer scales of 256");
}

TEST_CASE("weight formats: an element is its code times the scale of its block") {
  const WeightFormat fp8 = traits(kFp8);
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

TEST_CASE("weight formats: a minimum is taken away, and outer scales multiply both") {
  const std::array<std::int64_t, 2> shape{2, 512};
  // Parts in their order: codes, scales, outer scales, high bits. All products are exact.
  const auto value = [](std::size_t part, std::int64_t i) {
    return part == 0   ? static_cast<double>(i * 37 % 256)
           : part == 1 ? static_cast<double>(i % 101 - 50)
           : part == 2 ? std::ldexp(1.0, -static_cast<int>(i % 5))
                       : static_cast<double>(i % 7 * 36);
  };
  const auto part = [&](std::size_t p, std::int64_t first, std::int64_t count, double* out) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = value(p, first + i);
  };
  const auto element = [&](const char* name, std::int64_t row, std::int64_t column) {
    double read = 0;
    find_format(name)->read(shape, row * 512 + column, 1, part, &read);
    return read;
  };
  for (std::int64_t row = 0; row < 2; ++row)
    for (std::int64_t column = 0; column < 512; ++column) {
      const auto byte = static_cast<int>(value(0, row * 256 + column / 2));
      const int low = column % 2 == 0 ? byte & 15 : byte >> 4;
      const std::int64_t pair = (row * 16 + column / 32) * 2, outer = (row * 2 + column / 256) * 2;
      REQUIRE(element("u4_g32_i8_in256_minima", row, column) ==
              low * value(1, pair) * value(2, outer) - value(1, pair + 1) * value(2, outer + 1));
      const auto four = static_cast<int>(value(3, row * 128 + column / 4));
      const int six = low + (four >> column % 4 * 2 & 3) * 16;
      const double scale = value(1, row * 32 + column / 16) * value(2, row * 2 + column / 256);
      REQUIRE(element("u6_g16_i8_in256", row, column) == (six - 32) * scale);
      REQUIRE(element("u8_g16_i8_in256", row, column) ==
              (value(0, row * 512 + column) - 128) * scale);
    }
}

TEST_CASE("weight formats: a graph says them, and its text comes back") {
  const Graph graph = one_linear();
  const std::string text = print(graph);
  CHECK(text.find("weight {key=\"w.weight\", store=\"checkpoint\", format=\"e4m3_128x128\", "
                  "layout=\"fine_grained\", scales=\"w.weight_scale_inv\"} : bf16[150, 300]") !=
        std::string::npos);
  CHECK(print(parse_graph(text, "test")) == text);
  const std::vector<Node> parts = parts_of(graph.nodes[1]);
  REQUIRE(parts.size() == 2);
  CHECK(to_string(parts[0].type) == "f8e4m3[150, 300]");
  CHECK(to_string(parts[1].type) == "f32[2, 3]");
  CHECK(parts[1].text("key") == "w.weight_scale_inv");
  // Work counts what is stored.
  CHECK(work_of(graph, 2).weight_bytes == Dim(kRows * kColumns + 24));
  CHECK(work_of(one_linear(Format{}), 2).weight_bytes == Dim(kRows * kColumns * 2));
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
  has(with("format=\"e4m3_128x128\"", "format=\"fp9\""), "no format is called \"fp9\"");
  has(with(", scales=\"w.weight_scale_inv\"", ""), "needs \"scales\"");
  has(with("format=\"e4m3_128x128\", ", ""), "has no \"scales\"");
  has(with("format=\"e4m3_128x128\"", "format=\"u8_row_zeros\""), "needs \"zeros\"");
  has(with("layout=\"fine_grained\", ", ""), "needs \"layout\"");
  has(with("layout=\"fine_grained\"", "layout=\"fine\""), "no layout is called \"fine\"");
  has(with("layout=\"fine_grained\"", "layout=\"gptq\""), "gptq cannot store the format e4m3");
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
                      .in_file = {kFp8, FileLayout::fine_grained, 1}};
  const Json good = to_json(scales);
  CHECK(buffer_from_json(good, "test") == scales);
  // Near 1 / sqrt(columns) together with the codes.
  Buffer codes = scales;
  codes.in_file.part = 0, codes.shape = {150, 384}, codes.dtype = DType::f8e4m3;
  CHECK(codes.typical() * scales.typical() == doctest::Approx(1 / std::sqrt(384.0)));
  const auto refused = [&](const char* field, const Json& value, const char* why) {
    Json bad = good;
    bad[field] = value;
    CHECK_THROWS_WITH_AS(buffer_from_json(bad, "test"), doctest::Contains(why), Error);
  };
  refused("format", "fp9", "no weight format is called \"fp9\"");
  refused("part", 2, "has no part 2");
  refused("part", -1, "has no part -1");
  refused("part", 0, "part 0 of the format e4m3_128x128 is f8e4m3");
  refused("dtype", "bf16", "part 1 of the format e4m3_128x128 is f32");
  refused("layout", "fine", "no layout is called \"fine\"");
  refused("layout", "awq", "the layout awq cannot store the format e4m3_128x128");
  Json plain = good;
  plain.erase("format");
  plain.erase("part");
  CHECK(buffer_from_json(plain, "test").in_file.format.is_plain());
}

TEST_CASE("weight formats: the reference multiplies by exact elements") {
  const Graph graph = one_linear();
  std::mt19937 random(3);
  std::vector<std::uint8_t> codes(kRows * kColumns);
  for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random() % 127);
  std::vector<float> scales(6);
  for (float& scale : scales) scale = 0.001f + static_cast<float>(random() % 1000) / 999.f;
  const auto lookup = [&](const Node& part) -> WeightView {
    if (part.text("key") == "w.weight")
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
    if (part.text("key") == "w.weight") return lookup(part);
    return {DType::f32, {3, 2}, reinterpret_cast<const std::byte*>(scales.data())};
  };
  CHECK_THROWS_WITH_AS(evaluate(graph, {.T = 2}, {{"x", x}}, wrong),
                       doctest::Contains("w.weight_scale_inv"), Error);
}

TEST_CASE("weight formats: an element of whole codes is less its zero point, times its scale") {
  const std::array<std::int64_t, 2> shape{3, 70};
  for (const char* name : {"u4_g32_zeros", "u4_g32", "u8_g32_zeros", "u8_row", "u8_all"}) {
    INFO(name);
    const WeightFormat format = find_format(name).value();
    const bool zeros = format.format.zeros, pairs = format.format.codes == Codes::u4;
    const std::int64_t groups = format.parts[1].shape(shape)[1];
    const auto byte_at = [](std::int64_t i) { return (i * 37 + 11) % 256; };
    const auto part = [&](std::size_t p, std::int64_t first, std::int64_t count, double* out) {
      for (std::int64_t i = first; i < first + count; ++i)
        *out++ = p == 0   ? static_cast<double>(byte_at(i))
                 : p == 1 ? 0.5 + static_cast<double>(i)
                          : static_cast<double>(i % 17);
    };
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 210}, {61, 90}}) {
      std::vector<double> got(static_cast<std::size_t>(count));
      format.read(shape, first, count, part, got.data());
      for (std::int64_t i = first; i < first + count; ++i) {
        const std::int64_t row = i / 70, column = i % 70;
        const std::int64_t group =
            std::string_view(name) == "u8_all" ? 0 : row * groups + (groups > 1 ? column / 32 : 0);
        const std::int64_t byte = byte_at(pairs ? row * 35 + column / 2 : i);
        const std::int64_t code = !pairs ? byte : column % 2 == 0 ? byte % 16 : byte / 16;
        const std::int64_t zero = zeros ? group % 17 : pairs ? 8 : 128;
        REQUIRE(got[static_cast<std::size_t>(i - first)] ==
                static_cast<double>(code - zero) * (0.5 + static_cast<double>(group)));
      }
    }
  }
}

// By compressed_tensors.compressors.nvfp4.helpers of version 0.20: the low bits of a byte are the
// even element, and the highest bit of a code is its sign.
TEST_CASE("weight formats: an element of E2M1 is times its group's scale and its matrix's") {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};
  constexpr std::int64_t kWide = 40;  // the last group of a row is for 8
  const std::array<std::int64_t, 2> shape{3, kWide};
  for (const char* name : {"e2m1_g16_f8e4m3_global", "e2m1_g16_f8e8m0"}) {
    INFO(name);
    const WeightFormat format = find_format(name).value();
    const auto byte_at = [](std::int64_t i) { return (i * 37 + 11) % 256; };
    const auto part = [&](std::size_t p, std::int64_t first, std::int64_t count, double* out) {
      for (std::int64_t i = first; i < first + count; ++i)
        *out++ = p == 0   ? static_cast<double>(byte_at(i))
                 : p == 1 ? 1.0 + static_cast<double>(i)
                          : 0.25;
    };
    std::vector<double> got(100);
    format.read(shape, 11, 100, part, got.data());
    for (std::int64_t i = 11; i < 111; ++i) {
      const std::int64_t row = i / kWide, column = i % kWide;
      const std::int64_t byte = byte_at(row * kWide / 2 + column / 2);
      const std::int64_t code = column % 2 == 0 ? byte % 16 : byte / 16;
      const double scale = static_cast<double>(1 + row * 3 + column / 16);
      REQUIRE(got[static_cast<std::size_t>(i - 11)] ==
              kValues[code] * scale * (format.format.global ? 0.25 : 1));
    }
  }
}

namespace {

// The part that a checkpoint's words are, made in pieces of rows.
std::vector<int> read_part(const PartInFile& part, const std::vector<std::int64_t>& shape,
                           const std::vector<std::int32_t>& words) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(shape[0] * shape[1]), 0xaa);
  for (std::int64_t row = 0; row < shape[0]; row += 2)
    part.read(shape, reinterpret_cast<const std::byte*>(words.data()), 4, row,
              std::min(row + 2, shape[0]),
              reinterpret_cast<std::byte*>(bytes.data()) + row * shape[1]);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

// As compressed_tensors.compressors.pack_quantized.helpers.pack_to_int32 of version 0.20 packs.
TEST_CASE("weight layouts: words of compressed-tensors") {
  const Format int4 = find_format("u4_g4_f16_zeros")->format;
  const auto code = [](int i) { return (i * 7 + 3) % 16; };
  const PartInFile codes{int4, FileLayout::packed, 0};
  const std::vector<std::int64_t> shape{3, 10};  // bytes; words are not full
  CHECK(codes.stored_shape(shape) == std::vector<std::int64_t>{3, 3});
  CHECK(codes.stored_dtype() == DType::i32);
  CHECK_FALSE(codes.is_as_stored(shape));
  CHECK(codes.is_as_stored(std::vector<std::int64_t>{3, 12}));
  std::vector<int> wanted;
  for (int i = 0; i < 60; i += 2) wanted.push_back(code(i) | code(i + 1) << 4);
  CHECK(read_part(codes, shape,
                  {1299153315, -974714581, 33187, 153832815, -2119973401, 19823, -974714581,
                   1299153315, 2347}) == wanted);

  const PartInFile zeros{int4, FileLayout::packed, 2};
  const std::vector<std::int64_t> of_zeros{20, 3};
  CHECK(zeros.stored_shape(of_zeros) == std::vector<std::int64_t>{3, 3});
  wanted.clear();
  for (int row = 0; row < 20; ++row)
    for (int group = 0; group < 3; ++group) wanted.push_back(code(group * 20 + row));
  CHECK(read_part(zeros, of_zeros,
                  {1299153315, 153832815, -974714581, -974714581, -2119973401, 1299153315, 33187,
                   19823, 2347}) == wanted);

  const PartInFile bytes{find_format("u8_row")->format, FileLayout::packed, 0};
  wanted.clear();
  for (int i = 0; i < 20; ++i) wanted.push_back((i * 37 + 3) % 256);
  CHECK(read_part(bytes, {2, 10}, {1917659139, 115457175, 20523, -457205131, 2018717193, 49821}) ==
        wanted);
}

TEST_CASE("weight formats: a column has the scale and zero point of the group that is listed") {
  const std::array<std::int64_t, 2> shape{2, 8};
  const WeightFormat format = find_format("u4_g4_zeros_listed").value();
  REQUIRE(format.parts.size() == 4);
  CHECK(format.parts[3].shape(shape) == std::vector<std::int64_t>{1, 8});
  const std::vector<double> parts[] = {{0x21, 0x43, 0x65, 0x87, 0x21, 0x43, 0x65, 0x87},
                                       {1, 10, 100, 1000},
                                       {0, 1, 2, 3},
                                       {1, 0, 0, 1, 1, 0, 1, 0}};
  std::vector<double> got(16);
  format.read(
      shape, 0, 16,
      [&](std::size_t part, std::int64_t first, std::int64_t count, double* out) {
        std::copy_n(parts[part].begin() + first, count, out);
      },
      got.data());
  CHECK(got ==
        std::vector<double>{0, 2, 3, 30, 40, 6, 60, 8, -2000, 0, 100, 1000, 2000, 400, 4000, 600});
}

TEST_CASE("weight layouts: which formats they can store") {
  CHECK(can_store(FileLayout::gptq, find_format("u4_g32_zeros_listed")->format));
  CHECK_FALSE(can_store(FileLayout::awq, find_format("u4_g32_zeros_listed")->format));
  for (const FileLayout layout : {FileLayout::fine_grained, FileLayout::compressed,
                                  FileLayout::packed, FileLayout::awq, FileLayout::gptq}) {
    const bool in_words = layout >= FileLayout::packed;
    CHECK(can_store(layout, kFp8) == !in_words);
    CHECK(can_store(layout, find_format("u8_row")->format));
    CHECK(can_store(layout, find_format("u4_row")->format) == in_words);
    CHECK(can_store(layout, find_format("u8_row_zeros")->format) ==
          (layout != FileLayout::fine_grained));
  }
}

TEST_CASE("weight layouts: parts of GGUF's blocks are whole numbers in groups") {
  for (const char* name :
       {"u4_g32_f16", "u8_g32_f16", "u4_g32_i8_in256_minima", "u6_g16_i8_in256", "u5_g32_f16"}) {
    const Format format = find_format(name)->format;
    CHECK(can_store(FileLayout::gguf, format));
    if (format.outer > 0 || format.codes == Codes::u5)
      CHECK_FALSE(can_store(FileLayout::packed, format));
    for (std::size_t part = 0; part < traits(format).parts.size(); ++part)
      CHECK(PartInFile{format, FileLayout::gguf, static_cast<std::int32_t>(part)}.is_as_stored(
          std::vector<std::int64_t>{3, 512}));
  }
  for (const char* name : {"u8_row", "u4_g32_f16_zeros", "e2m1_g32_f8e8m0", "e4m3_128x128"})
    CHECK_FALSE(can_store(FileLayout::gguf, find_format(name)->format));
}

TEST_CASE("weight layouts: floats of 4 bits are as they are stored, but one scale") {
  const Format nvfp4 = find_format("e2m1_g16_f8e4m3_global")->format,
               mxfp4 = find_format("e2m1_g32_f8e8m0")->format;
  for (const FileLayout layout : {FileLayout::packed_fp4, FileLayout::modelopt}) {
    CHECK(can_store(layout, nvfp4));
    CHECK(can_store(layout, mxfp4));
    CHECK_FALSE(can_store(layout, find_format("u4_g32")->format));
    CHECK_FALSE(can_store(layout, find_format("e4m3_row")->format));
    const std::vector<std::int64_t> bytes{3, 16}, one{1, 1};
    const PartInFile codes{nvfp4, layout, 0};
    CHECK(codes.stored_shape(bytes) == bytes);
    CHECK(codes.stored_dtype() == DType::u8);
    CHECK(codes.is_as_stored(bytes));
    CHECK(PartInFile{mxfp4, layout, 1}.stored_dtype() == DType::f8e8m0);
    const PartInFile global{nvfp4, layout, 2};
    CHECK(global.stored_dtype() == DType::f32);
    CHECK(global.is_as_stored(one) == (layout == FileLayout::modelopt));
  }
  CHECK_FALSE(can_store(FileLayout::packed, nvfp4));
  const float stored = 8;
  float scale = 0;
  PartInFile{nvfp4, FileLayout::packed_fp4, 2}.read(std::vector<std::int64_t>{1, 1},
                                                    reinterpret_cast<const std::byte*>(&stored), 4,
                                                    0, 1, reinterpret_cast<std::byte*>(&scale));
  CHECK(scale == 0.125f);
}

TEST_CASE("weight layouts: columns of AutoAWQ and GPTQ become rows") {
  constexpr int kOut = 16, kIn = 40, kGroups = 5;
  const auto code = [](int row, int column) { return (row * 5 + column * 3 + row * column) % 16; };
  const auto pack = [&](int count, const auto& nibble) {
    std::vector<std::int32_t> words(static_cast<std::size_t>(count));
    for (int w = 0; w < count; ++w)
      for (int i = 0; i < 8; ++i)
        words[static_cast<std::size_t>(w)] |=
            static_cast<std::int32_t>(static_cast<std::uint32_t>(nibble(w, i)) << 4 * i);
    return words;
  };
  std::vector<int> wanted, wanted_zeros;
  for (int row = 0; row < kOut; ++row) {
    for (int column = 0; column < kIn; column += 2)
      wanted.push_back(code(row, column) | code(row, column + 1) << 4);
    for (int group = 0; group < kGroups; ++group) wanted_zeros.push_back(code(row, group));
  }
  const Format format = find_format("u4_g8_f16_zeros")->format;
  const std::vector<std::int64_t> shape{kOut, kIn / 2}, of_zeros{kOut, kGroups};

  // Nibble i of word j is column 8 j + order[i] of [in, out].
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const auto awq = [&](int w, int i) { return code(w % 2 * 8 + kOrder[i], w / 2); };
  const PartInFile codes{format, FileLayout::awq, 0}, zeros{format, FileLayout::awq, 2};
  CHECK(codes.stored_shape(shape) == std::vector<std::int64_t>{kIn, kOut / 8});
  CHECK(zeros.stored_shape(of_zeros) == std::vector<std::int64_t>{kGroups, kOut / 8});
  CHECK(read_part(codes, shape, pack(kIn * kOut / 8, awq)) == wanted);
  CHECK(read_part(zeros, of_zeros, pack(kGroups * kOut / 8, awq)) == wanted_zeros);

  // Eight rows of [in, out] in a word; zero points along its columns, minus one.
  const PartInFile gptq{format, FileLayout::gptq, 0};
  CHECK(gptq.stored_shape(shape) == std::vector<std::int64_t>{kIn / 8, kOut});
  CHECK(read_part(gptq, shape, pack(kIn * kOut / 8, [&](int w, int i) {
                    return code(w % kOut, w / kOut * 8 + i);
                  })) == wanted);
  const auto in_order =
      pack(kGroups * kOut / 8, [&](int w, int i) { return code(w % 2 * 8 + i, w / 2); });
  CHECK(read_part({format, FileLayout::gptq_v2, 2}, of_zeros, in_order) == wanted_zeros);
  for (int& zero : wanted_zeros) ++zero;
  CHECK(read_part({format, FileLayout::gptq, 2}, of_zeros, in_order) == wanted_zeros);
}

TEST_CASE("weight formats: the gate draws all whole codes and zero points") {
  const Graph graph = one_linear(find_format("u4_g32_f16_zeros")->format, FileLayout::awq);
  const validate::Subject subject = validate::subject_of({graph, {}}, {.tokens = 1});
  const std::size_t codes = validate::index_of(subject, "w.qweight"),
                    zeros = validate::index_of(subject, "w.qzeros");
  CHECK(subject.tensors[codes].shape == std::vector<std::int64_t>{kRows, kColumns / 2});
  for (const validate::Scenario& scenario : validate::scenarios_for(subject, {})) {
    const validate::Elements drawn = validate::elements_of(subject, scenario);
    for (const std::size_t part : {codes, zeros}) {
      const std::set<double> seen(drawn[part].begin(), drawn[part].end());
      CHECK(*seen.begin() >= 0);
      CHECK(*seen.rbegin() <= (part == codes ? 255 : 16));
      if (scenario.pattern == validate::Pattern::random)
        CHECK(seen.size() == (part == codes ? 256 : 17));
    }
    CHECK_FALSE(scenario.name.starts_with("a NaN in w.q"));
  }
}

TEST_CASE("weight formats: the gate draws whole scales of either sign, and minima") {
  Graph graph;
  Builder b(graph);
  const Format format = find_format("u4_g32_i8_in256_minima")->format;
  const NodeId x = b.input("x", {DType::bf16, {Dim(1), Dim(512)}});
  const NodeId w = b.weight("w", {DType::bf16, {Dim(9), Dim(512)}}, format, FileLayout::gguf);
  graph.outputs = {{"y", b.linear(x, w)}};
  const validate::Subject subject = validate::subject_of({graph, {}}, {.tokens = 1});
  const std::size_t scales = validate::index_of(subject, "w.weight.scales"),
                    outer = validate::index_of(subject, "w.weight.outer");
  CHECK(subject.tensors[scales].shape == std::vector<std::int64_t>{9, 32});
  CHECK(subject.tensors[outer].shape == std::vector<std::int64_t>{9, 4});
  for (const validate::Scenario& scenario : validate::scenarios_for(subject, {})) {
    const validate::Elements drawn = validate::elements_of(subject, scenario);
    const auto [least, most] = std::ranges::minmax(drawn[scales]);
    CHECK(least >= -128);
    CHECK(most <= 127);
    if (scenario.pattern == validate::Pattern::random) {
      CHECK(least < -30);
      CHECK(most > 30);
      CHECK(std::set<double>(drawn[outer].begin(), drawn[outer].end()).size() > 30);
    }
  }
}

TEST_CASE("weight formats: the gate draws every code, scales of blocks, and NaNs") {
  const Graph graph = one_linear();
  const validate::Subject subject = validate::subject_of({graph, {}}, {.tokens = 1});
  const std::size_t codes = validate::index_of(subject, "w.weight"),
                    scales = validate::index_of(subject, "w.weight_scale_inv");
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
  CHECK(hostile.contains("a NaN in w.weight"));
  CHECK(hostile.contains("a NaN in w.weight_scale_inv"));
  CHECK_FALSE(hostile.contains("an infinity in w.weight"));
}
