#include "generate/counts.h"

#include "base/error.h"

namespace ac {

std::optional<Count> linear_count(const Dim& dim) {
  if (dim.uses(Symbol::S) || dim.uses(Symbol::P)) return std::nullopt;
  const std::int64_t fixed = dim.evaluate({.T = 0});
  const std::int64_t per_token = (dim - Dim(fixed)).evaluate({.T = 1});
  if (dim != Dim(fixed) + Dim(per_token) * Dim(Symbol::T)) return std::nullopt;
  return Count(fixed, per_token);
}

Count count_of(const Dim& dim, const std::string& what) {
  const std::optional<Count> count = linear_count(dim);
  if (!count)
    bad_input("{}: a kernel cannot be launched for the size {}: it must be linear in T", what,
              dim.str());
  return *count;
}

Count count_of(const Dim& dim) {
  const std::optional<Count> count = linear_count(dim);
  AC_ASSERT(count.has_value());
  return *count;
}

}  // namespace ac
