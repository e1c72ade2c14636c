#include "build/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "base/error.h"

namespace ac {

std::string sha256(std::string_view bytes) {
  std::array<unsigned char, 32> digest{};
  const int done =
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  AC_ASSERT(done == 1);
  std::string text;
  for (unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace ac
