#include "device/cuda/cubin.h"

namespace ac::cuda {
namespace {

// An ELF file's header, as far as it matters here; numbers are little-endian.
constexpr std::size_t kAbiVersion = 8, kMachine = 18, kFlags = 48, kHeaderBytes = 64;
constexpr unsigned kCudaMachine = 190;

unsigned byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

// From the note that ptxas leaves: "Cuda compilation tools, release 13.0, V13.0.88".
std::string toolkit_of(std::string_view bytes) {
  constexpr std::string_view kBefore = "Cuda compilation tools, release ";
  const std::size_t note = bytes.find(kBefore);
  if (note == std::string_view::npos) return {};
  const std::string_view rest = bytes.substr(note + kBefore.size(), 16);
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789.")));
}

}  // namespace

std::optional<CubinFacts> cubin_facts(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes || !bytes.starts_with("\x7f"
                                                        "ELF"))
    return std::nullopt;
  if ((byte_at(bytes, kMachine) | byte_at(bytes, kMachine + 1) << 8) != kCudaMachine)
    return std::nullopt;
  // The architecture moved up by a byte in the ABI of CUDA 13.
  const std::size_t architecture = byte_at(bytes, kAbiVersion) >= 8 ? kFlags + 1 : kFlags;
  return CubinFacts{static_cast<int>(byte_at(bytes, architecture)), toolkit_of(bytes)};
}

}  // namespace ac::cuda
