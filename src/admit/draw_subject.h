// The subject of trials that draw a token: logits, the greedy choice that becomes the drawn token,
// the position, and the settings of a request.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "admit/trial.h"
#include "validate/subject.h"

namespace ac {

validate::Subject draw_subject(const Trial& trial);

// After the launches: looks at the limit that they left in `workspace`, as a token alone says
// little of it, and returns what is wrong or "". Where rounding alone decides between two tokens,
// either is right, and the buffers get the one that double precision draws, as the gate compares to
// that.
std::string settle_draw(const validate::Subject& subject, const Trial& trial,
                        const validate::Buffers& buffers, std::span<const std::byte> workspace);

}  // namespace ac
