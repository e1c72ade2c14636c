// Any bytes are a safetensors file or an ac::Error, and every span lies in the file.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto file = ac::SafetensorsFile::from_bytes(std::as_bytes(std::span(data, size)), "fuzz");
    for (const ac::SafetensorsEntry& entry : file.entries()) {
      if (!entry.dtype) continue;
      unsigned sum = 0;
      for (const std::byte byte : file.view(entry).bytes) sum += std::to_integer<unsigned>(byte);
      [[maybe_unused]] const volatile unsigned used = sum;
    }
  } catch (const ac::Error&) {
  }
  return 0;
}
