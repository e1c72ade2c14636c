// The container of GGUF files: what is read, and what is an error that names the file and the
// place.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/elements.h"
#include "base/error.h"
#include "gguf/gguf_file.h"

namespace ac {
namespace {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
std::string text(const std::string& value) { return raw<std::uint64_t>(value.size()) + value; }
std::string key(const std::string& name, std::uint32_t type, const std::string& value) {
  return text(name) + raw(type) + value;
}
std::string tensor(const std::string& name, std::uint32_t type, std::uint64_t columns,
                   std::uint64_t at) {
  return text(name) + raw<std::uint32_t>(1) + raw(columns) + raw(type) + raw(at);
}
std::string header(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
  return "GGUF" + raw(version) + raw(tensors) + raw(keys);
}
// With its data where they are due.
std::string padded(std::string bytes, std::size_t data) {
  bytes.resize((bytes.size() + 31) / 32 * 32 + data);
  return bytes;
}
GgufFile parse(const std::string& bytes) {
  return GgufFile::from_bytes(std::as_bytes(std::span(bytes)), "file.gguf");
}

TEST_CASE("gguf: values of keys, lists in lists among them") {
  const std::string inner = raw<std::uint32_t>(0) + raw<std::uint64_t>(2) + "ab";
  const std::string bytes =
      header(0, 5, 2) + key("count", 10, raw<std::uint64_t>(7)) + key("yes", 7, raw('\1')) +
      key("eps", 6, raw(0.5f)) +
      key("words", 9, raw<std::uint32_t>(8) + raw<std::uint64_t>(2) + text("a") + text("")) +
      key("lists", 9, raw<std::uint32_t>(9) + raw<std::uint64_t>(2) + inner + inner);
  const GgufFile file = parse(bytes);
  CHECK(file.integer("count") == 7);
  CHECK(file.number("eps") == 0.5);
  CHECK(file.boolean("yes") == true);
  CHECK(file.texts("words") == std::vector<std::string_view>{"a", ""});
  CHECK(file.metadata().at("lists").count == 2);
  CHECK_FALSE(file.integer("other").has_value());
  CHECK_THROWS_AS(file.text("count"), Error);
  CHECK_THROWS_AS(file.numbers("words"), Error);
}

TEST_CASE("gguf: tensors lie in the file and apart from each other") {
  const std::string two = header(2, 0) + tensor("a", 0, 8, 0) + tensor("b", 8, 32, 32);
  const std::string bytes = padded(two, 66);
  const GgufFile file = parse(bytes);
  REQUIRE(file.find("b"));
  CHECK(file.find("b")->type->name == "Q8_0");
  CHECK(file.bytes(*file.find("b")).size() == 34);

  const auto fails = [](const std::string& bytes, const std::string& word) {
    try {
      parse(bytes);
      FAIL_CHECK("read: ", word);
    } catch (const Error& error) {
      const std::string what = error.what();
      CHECK(what.starts_with("file.gguf: "));
      CHECK(what.find(word) != std::string::npos);
    }
  };
  fails(padded(two, 65), "truncated");
  fails(padded(header(2, 0) + tensor("a", 0, 16, 0) + tensor("b", 0, 8, 32), 96), "overlaps");
  fails(padded(header(2, 0) + tensor("a", 0, 8, 0) + tensor("a", 0, 8, 32), 96), "twice");
  fails(padded(header(1, 0) + tensor("a", 0, 8, 16), 96), "alignment");
  fails(padded(header(1, 0) + tensor("a", 8, 33, 0), 96), "whole blocks");
  fails(padded(header(1, 0) + tensor("a", 5, 32, 0), 96), "unknown type 5");
  fails(padded(header(1, 0) + tensor("a", 0, std::uint64_t{1} << 62, 0), 96), "too large");
  fails(header(0, 2) + key("k", 7, raw('\1')) + key("k", 7, raw('\1')), "twice");
  fails(header(0, 1) + key("k", 7, raw('\2')), "neither true nor false");
  fails(header(0, 1) + key("k", 13, ""), "unknown type 13");
  fails(header(0, 1) + key("general.alignment", 4, raw<std::uint32_t>(4)), "power of two");
  fails(header(0, 1) + key("k", 9, raw<std::uint32_t>(8) + raw(~std::uint64_t{0})), "list of");
  std::string deep;
  for (int i = 0; i < 9; ++i) deep += raw<std::uint32_t>(9) + raw<std::uint64_t>(1);
  fails(header(0, 1) + key("k", 9, deep + std::string(64, '\0')), "deep");
  fails(header(0, 0, 1), "version 1");
  fails("GGML", "does not begin");
}

// Two random blocks are one row. The format makes of their parts the elements that `read` gives.
TEST_CASE("gguf: the parts of blocks are their elements") {
  std::mt19937 random(7);
  int packed = 0;
  for (std::uint32_t id = 0; id < 50; ++id) {
    const BlockType* const type = find_block_type(id);
    if (!type || type->format.is_plain()) continue;
    CAPTURE(type->name);
    ++packed;
    const WeightFormat format = traits(type->format);
    const std::size_t elements = 2 * type->elements;
    const std::vector<std::int64_t> shape{1, static_cast<std::int64_t>(elements)};
    std::vector<std::byte> blocks(2 * type->bytes);
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
    // No scale is a NaN: the exponents of halves that may be one lose a bit.
    for (std::size_t i = 0; i < 2; ++i)
      for (const std::size_t at :
           {std::size_t{1}, std::size_t{3}, type->bytes - 1, std::size_t{81}, std::size_t{83}})
        if (at < type->bytes) blocks[i * type->bytes + at] &= std::byte{0xbf};
    std::vector<float> wanted(elements);
    std::vector<std::vector<std::byte>> parts;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < 2; ++i)
      type->read(blocks.data() + i * type->bytes, wanted.data() + i * type->elements);
    for (const WeightPart& part : format.parts) {
      const std::size_t of_block = type->part_bytes(part.kind);
      CHECK(static_cast<std::size_t>(part.shape(shape)[1]) * bytes_of(part.dtype) == 2 * of_block);
      parts.emplace_back(2 * of_block + 1, std::byte{0xee});
      for (std::size_t i = 0; i < 2; ++i) {
        BlockParts to;
        std::byte* const at = parts.back().data() + i * of_block;
        using Kind = WeightPart::Kind;
        (part.kind == Kind::codes    ? to.codes
         : part.kind == Kind::scales ? to.scales
         : part.kind == Kind::outer  ? to.outer
                                     : to.high) = at;
        type->split(blocks.data() + i * type->bytes, to);
      }
      CHECK(parts.back().back() == std::byte{0xee});  // nothing is written behind it
      bytes += of_block;
    }
    // Scales of 4 or 6 bits take 8.
    const double more = static_cast<double>(bytes) / static_cast<double>(type->bytes);
    CHECK(more >= 1);
    CHECK(more < (type->name.starts_with("Q2") ? 2 : type->name.starts_with("Q3") ? 1.34 : 1.03));
    std::vector<double> got(elements);
    format.read(
        shape, 0, static_cast<std::int64_t>(elements),
        [&](std::size_t part, std::int64_t first, std::int64_t count, double* out) {
          const DType dtype = format.parts[part].dtype;
          load_elements(dtype,
                        parts[part].data() + static_cast<std::size_t>(first) * bytes_of(dtype),
                        {out, static_cast<std::size_t>(count)});
        },
        got.data());
    double size = 0;
    for (const double element : got) size = std::max(size, std::fabs(element));
    for (std::size_t i = 0; i < elements; ++i) {
      CAPTURE(i);
      REQUIRE(std::isfinite(wanted[i]));
      // Each of two terms may be rounded to float32.
      REQUIRE(std::fabs(got[i] - double{wanted[i]}) <= 1e-6 * size);
    }
  }
  CHECK(packed == 10);
}

}  // namespace
}  // namespace ac
