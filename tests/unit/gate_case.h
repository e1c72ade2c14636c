// What tests of the gate share: elements of buffers, and why a subject is refused.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string>

#include "validate/gate.h"

namespace ac::test {

using validate::GateOptions, validate::Rejection, validate::Subject, validate::Verdict;

inline double get(const std::span<std::byte>& bytes, DType dtype, std::size_t i) {
  return load_element(dtype, bytes.data() + i * bytes_of(dtype));
}
inline void set(const std::span<std::byte>& bytes, DType dtype, std::size_t i, double value) {
  store_element(dtype, value, bytes.data() + i * bytes_of(dtype));
}

inline Rejection rejected(const Subject& subject, const GateOptions& options = {}) {
  const Verdict verdict = validate::admit(subject, options);
  REQUIRE(verdict.rejection.has_value());
  CHECK(!verdict.rejection->reason.empty());
  return *verdict.rejection;
}

inline bool says(const Rejection& rejection, const char* words) {
  INFO(rejection.reason);
  return rejection.reason.find(words) != std::string::npos;
}

}  // namespace ac::test
