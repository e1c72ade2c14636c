#include "device/cuda/cubin.h"

#include <cstdint>

namespace ac::cuda {
namespace {

// An ELF file's header, as far as it matters here.
constexpr std::size_t kAbiVersion = 8, kMachine = 18, kSegments = 32, kSections = 40, kFlags = 48,
                      kSegmentBytes = 54, kSegmentCount = 56, kSectionBytes = 58,
                      kSectionCount = 60, kHeaderBytes = 64;
// A section's header.
constexpr std::size_t kType = 4, kOffset = 24, kSize = 32, kSectionHeaderBytes = 64;
constexpr std::uint64_t kCudaMachine = 190, kTakesNoSpace = 8;

// Little-endian, of `count` bytes that are there.
std::uint64_t number_at(std::string_view bytes, std::size_t at, int count) {
  std::uint64_t number = 0;
  for (int i = 0; i < count; ++i)
    number |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << 8 * i;
  return number;
}

// The driver is told no size, so that it would read past the end of a file that was cut short.
bool is_whole(std::string_view bytes) {
  const auto within = [&](std::uint64_t offset, std::uint64_t size) {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  };
  const auto header = [&](std::size_t at, int count) { return number_at(bytes, at, count); };
  const std::uint64_t sections = header(kSections, 8), count = header(kSectionCount, 2);
  if (!within(header(kSegments, 8), header(kSegmentBytes, 2) * header(kSegmentCount, 2)) ||
      header(kSectionBytes, 2) != kSectionHeaderBytes ||
      !within(sections, count * kSectionHeaderBytes))
    return false;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t section = sections + i * kSectionHeaderBytes;
    if (number_at(bytes, section + kType, 4) != kTakesNoSpace &&
        !within(number_at(bytes, section + kOffset, 8), number_at(bytes, section + kSize, 8)))
      return false;
  }
  return true;
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
  if (number_at(bytes, kMachine, 2) != kCudaMachine || !is_whole(bytes)) return std::nullopt;
  // The architecture moved up by a byte in the ABI of CUDA 13.
  const std::size_t architecture = number_at(bytes, kAbiVersion, 1) >= 8 ? kFlags + 1 : kFlags;
  return CubinFacts{static_cast<int>(number_at(bytes, architecture, 1)), toolkit_of(bytes)};
}

}  // namespace ac::cuda
