// Any bytes are a GGUF file or an ac::Error, and so are its config, its tokenizer, its
// weights, and the parts of those in blocks.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/weight_layout.h"
#include "gguf/gguf_model.h"
#include "gguf/gguf_text.h"

namespace {

void read_weights(const ac::GgufModel& model) {
  for (const auto& [name, weight] : model.weights()) {
    std::vector<float> row(weight.row_elements());
    for (std::int64_t i = 0; i < weight.rows(); ++i) model.read(weight, i, i + 1, row.data());
    const std::string module = name.substr(0, name.rfind('.'));
    const ac::Format& format = weight.tensor->type->format;
    if (format.is_plain()) continue;
    for (const ac::WeightPart& part : ac::traits(format).parts) {
      const auto& layout = ac::layout_traits(ac::FileLayout::gguf);
      const auto found = model.find_part(module + std::string(layout.part(part.kind).suffix));
      if (!found) continue;
      std::size_t bytes = ac::bytes_of(found->part.dtype);
      for (const std::int64_t size : found->shape()) bytes *= static_cast<std::size_t>(size);
      std::vector<std::byte> all(bytes);
      model.read(*found, 0, weight.rows(), all.data());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = [&] {
    return ac::GgufFile::from_bytes(std::as_bytes(std::span(data, size)), "fuzz");
  };
  const auto attempt = [](const std::function<void()>& read) {
    try {
      read();
    } catch (const ac::Error&) {
    }
  };
  attempt([&] { ac::gguf_tokenizer(file()); });
  attempt([&] { ac::gguf_tokenizer_config(file()); });
  attempt([&] { ac::GgufModel(file()).config(); });
  attempt([&] { read_weights(ac::GgufModel(file())); });
  return 0;
}
