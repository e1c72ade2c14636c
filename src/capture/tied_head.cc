#include "capture/tied_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "checkpoint/checkpoint.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

double element(const TensorView& tensor, std::size_t index) {
  return load_element(tensor.dtype, tensor.bytes.data() + index * bytes_of(tensor.dtype));
}

// In the type that the model computes in, to which transformers converts both first.
bool same_values(const TensorView& a, const TensorView& b, DType computed) {
  if (a.shape != b.shape || !is_float(a.dtype) || !is_float(b.dtype)) return false;
  const std::size_t count = a.bytes.size() / bytes_of(a.dtype);
  constexpr std::size_t kBlock = 1 << 16;
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t size = std::min(kBlock, count - first), unit = bytes_of(a.dtype);
    if (a.dtype == b.dtype &&
        std::memcmp(a.bytes.data() + first * unit, b.bytes.data() + first * unit, size * unit) == 0)
      continue;
    for (std::size_t i = first; i < first + size; ++i)
      if (round_by_float(computed, element(a, i)) != round_by_float(computed, element(b, i)))
        return false;
  }
  return true;
}

}  // namespace

bool has_weights(const fs::path& directory) {
  std::error_code error;
  return std::ranges::any_of(fs::directory_iterator(directory, error), [](const auto& entry) {
    return entry.path().extension() == ".safetensors";
  });
}

void settle_tied_head(const fs::path& directory, DecoderConfig& config) {
  if (!config.tied_embeddings || !has_weights(directory)) return;
  const Checkpoint checkpoint = Checkpoint::open_model(directory);
  const std::vector<std::string> keys = checkpoint.keys();
  const auto has = [&](const char* key) { return std::ranges::binary_search(keys, key); };
  // Codes have names of their own, and the embedding is plain.
  const StoredFormat head = config.quantization.stored_as("lm_head");
  const std::string codes = head.format.is_plain()
                                ? kHeadKey
                                : fmt::format("lm_head{}", layout_traits(head.layout).codes.suffix);
  if (codes != kHeadKey && has(codes.c_str())) {
    config.tied_embeddings = false;
    return;
  }
  if (!has(kHeadKey)) return;
  if (!has(kEmbeddingKey))
    config.embedding_key = kHeadKey;
  else
    config.tied_embeddings = same_values(checkpoint.find(kEmbeddingKey).value(),
                                         checkpoint.find(kHeadKey).value(), config.dtype);
}

}  // namespace ac
