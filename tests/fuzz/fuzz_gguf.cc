// libFuzzer: any bytes are a GGUF file or an ac::Error, and so are its config and its tokenizer.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/error.h"
#include "gguf/gguf_model.h"
#include "gguf/gguf_text.h"

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
  return 0;
}
