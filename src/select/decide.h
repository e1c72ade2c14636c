// What is chosen follows from the plans and the evidence, and from nothing else: these are pure
// functions.
#pragma once

#include <optional>
#include <vector>

#include "plan/cover.h"
#include "select/evidence.h"

namespace ac {

// Of a plan that cannot be tried by itself.
Outcome does_not_fit();

// Admitted by the quick trial, or left to be judged by it if it is chosen, and not refused since.
bool is_admitted(const SpaceEvidence& of, int candidate);
// The last race was of all that are admitted; one that failed counts, as it would fail again.
bool is_raced(const SpaceEvidence& of);
// The fastest of the last race, which the fallback may be (-1); without one, the first in the order
// that is admitted.
int winner_of(const SpaceEvidence& of);
// The winner, then what else was admitted, in the order.
std::vector<int> leaders_of(const SpaceEvidence& of);
std::optional<double> fallback_us(const SpaceEvidence& of);
// Microseconds of a candidate in the last race that it was in.
std::optional<double> raced_us(const SpaceEvidence& of, int candidate);

// Microseconds of what computes a space's regions: measured, or predicted of what is admitted and
// corrected by what was measured of others. Infinite where candidates are left that nobody tried,
// nothing where the fallback is all there is and was not timed.
std::optional<double> known_cost(const Space& space, const SpaceEvidence& of, double scale);

// The cut of the step that costs least by what is known.
std::vector<CoverPart> decide(const Regions& regions, const Plans& plans, const Evidence& evidence);

// All that was tried of a space: what was judged, then what was only timed.
std::vector<Attempt> attempts_of(const Space& space, const SpaceEvidence& of);

}  // namespace ac
