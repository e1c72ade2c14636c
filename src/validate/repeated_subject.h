// A subject with more rows of weights than a truth can be computed of: they repeat those of a
// smaller one, and so do columns of what comes in and out.
#pragma once

#include <optional>

#include "validate/subject.h"

namespace ac::validate {

// `small` is of the same step with fewer rows in its weights, and fewer columns of what belongs to
// them, as many of each. The kernel gets tensors of the sizes that `whole` has, and each of its
// results is compared. Nothing where other sizes differ.
std::optional<Subject> repeated(Subject small, const Subject& whole);

}  // namespace ac::validate
