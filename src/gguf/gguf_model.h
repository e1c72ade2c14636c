// A language model in a GGUF file: its tensors by the names that HuggingFace's checkpoints have, as
// they are there, and its config.json. llama.cpp's converter renames them, reorders the rows of
// queries and keys for its own rotary embeddings, and adds 1 to Gemma's norms: that is undone here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "gguf/gguf_file.h"

namespace ac {

struct GgufWeight {
  const GgufTensor* tensor;
  std::int64_t heads = 0;  // the rows of each have another order; 0: none
  bool less_one = false;   // its elements are the file's, minus 1

  std::int64_t rows() const;
  std::size_t row_elements() const;
  std::size_t row_bytes() const;
};

// A part of a weight in a format, which a file has in blocks.
struct GgufPart {
  const GgufWeight* weight;
  WeightPart part;

  std::vector<std::int64_t> shape() const;
};

class GgufModel {
 public:
  // An architecture, a key of it or a tensor that nothing is known of is an error (bad_input), and
  // so is one file of several.
  explicit GgufModel(GgufFile file);
  explicit GgufModel(const std::filesystem::path& path) : GgufModel(GgufFile(path)) {}

  const GgufFile& file() const { return file_; }
  // By HuggingFace's names.
  const std::map<std::string, GgufWeight, std::less<>>& weights() const { return weights_; }
  // A part by the name that the layout `gguf` gives it (base/weight_layout.h).
  std::optional<GgufPart> find_part(std::string_view name) const;
  // What the frequencies of rotary embeddings are divided by; empty: by nothing.
  std::vector<float> rope_divisors() const;

  // Rows begin .. end-1, as HuggingFace has them.
  void read(const GgufWeight& weight, std::int64_t begin, std::int64_t end, float* out) const;
  // The same of a part.
  void read(const GgufPart& part, std::int64_t begin, std::int64_t end, std::byte* out) const;
  // The same, in the file's blocks.
  void copy(const GgufWeight& weight, std::int64_t begin, std::int64_t end, std::byte* out) const;

  Json config() const;

 private:
  const std::byte* row(const GgufWeight& weight, std::int64_t row) const;
  std::string key(std::string_view name) const;
  std::int64_t count(std::string_view name) const;
  double number(std::string_view name) const;
  std::string dtype() const;
  void check_keys() const;
  void add_rope(Json& config) const;
  void add_gemma(Json& config) const;

  GgufFile file_;
  std::string architecture_;
  std::map<std::string, GgufWeight, std::less<>> weights_;
};

// What a HuggingFace folder has in a file of this name, from a GGUF file: config.json,
// tokenizer.json and tokenizer_config.json. Nothing: it says nothing of that.
std::optional<std::string> gguf_document(const std::filesystem::path& file, std::string_view name);

}  // namespace ac
