#include "generate/counts.h"

#include "base/error.h"

namespace ac {

Count count_of(const Dim& dim) {
  AC_ASSERT(!dim.uses(Symbol::S) && !dim.uses(Symbol::P));
  const std::int64_t fixed = dim.evaluate({.T = 0}), one = dim.evaluate({.T = 1});
  AC_ASSERT(dim == Dim(fixed) + Dim(Symbol::T) * Dim(one - fixed));
  return {fixed, one - fixed};
}

}  // namespace ac
