// The memory that a kernel under judgement gets: every tensor in an allocation of its own, at an
// address that is 16-byte aligned: between canaries, which a write changes, or just before or
// behind a page that ends the process of whoever reads or writes it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "validate/subject.h"

namespace ac::validate {

// Byte patterns that are NaN in every float dtype. They differ in every byte, so that a kernel that
// writes one of them by accident is seen over the other.
inline constexpr unsigned char kPoisons[2][2] = {{0xff, 0xff}, {0xbf, 0x7f}};

void fill_poison(std::span<std::byte> bytes, int poison);

std::vector<double> load_elements(const TensorSpec& spec, std::span<const std::byte> bytes);

class BufferSet {
 public:
  // `variation` chooses poison, alignment and what lies around the tensors: of 0 and 1, canaries.
  BufferSet(const std::vector<TensorSpec>& specs, unsigned variation);

  // Writes inputs, weights and states, and poisons outputs. Scratch is poisoned or cleared the
  // first time only: later launches find what the previous one left.
  void load(const Elements& elements);

  const Buffers& buffers() const { return buffers_; }

  // What a launch did that it must not do.
  struct Damage {
    std::size_t tensor;
    std::int64_t index;  // of the element, or -1: a canary
    std::string what;
  };
  // Canaries, read-only tensors and counters.
  std::optional<Damage> damage() const;
  // The bytes as they were loaded, without repetitions.
  std::span<const std::byte> before(std::size_t tensor) const { return before_[tensor]; }

 private:
  // Whole pages between two that may not be touched.
  class Pages {
   public:
    explicit Pages(std::size_t bytes);
    ~Pages();
    Pages(Pages&& other) noexcept : all_(std::exchange(other.all_, {})) {}
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    std::span<std::byte> bytes() const;
    // From here to there, bytes that repeat after so many are in memory once. Whole pages.
    void share(std::size_t begin, std::size_t end, std::size_t period);

   private:
    std::span<std::byte> all_;
  };
  struct Allocation {
    Pages pages;
    std::span<std::byte> bytes;  // of the pages
    std::size_t start = 0;       // of the tensor
  };
  std::optional<Damage> damage_of(std::size_t tensor) const;

  const std::vector<TensorSpec>& specs_;
  int poison_;
  bool is_small_;  // what scratch holds at first
  std::vector<Allocation> allocations_;
  Buffers buffers_;
  std::vector<std::vector<std::byte>> before_;
  bool loaded_ = false;
};

}  // namespace ac::validate
