// Any bytes as a config.json: an error or a graph that verifies, never a crash.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "capture/native.h"
#include "ir/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ac::DecoderConfig config;
  try {
    config = ac::parse_config(ac::parse_json(text, "fuzz"), "fuzz");
  } catch (const ac::Error&) {
    return 0;
  }
  // A config that was accepted must build; few layers, for speed.
  config.layers.resize(std::min<std::size_t>(config.layers.size(), 3));
  ac::verify(ac::build_decoder(config, "fuzz"), "fuzz");
  return 0;
}
