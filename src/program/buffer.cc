#include "program/buffer.h"

#include <algorithm>
#include <array>

namespace ac {

bool Buffer::is_of_sequence() const {
  constexpr std::array kRoles = {Role::ids,   Role::position, Role::token,   Role::log,
                                 Role::until, Role::settings, Role::allowed, Role::state};
  return std::ranges::find(kRoles, role) != kRoles.end();
}

constexpr std::int64_t kUsualColumns = 4096;

double Buffer::typical(int which) const {
  const std::int64_t columns = shape.empty() ? 1 : shape.back();
  const WeightPart part = weight_part();
  // Of what is one for a whole row, nothing says how long that is.
  const std::int64_t of_each = part.columns > 0 ? part.columns : kUsualColumns;
  return traits(in_file.format).typical(part, columns / part.each * of_each * part.in_byte, which);
}

}  // namespace ac
