#include "program/buffer.h"

namespace ac {

double Buffer::typical() const {
  const std::int64_t columns = shape.empty() ? 1 : shape.back();
  return traits(format).typical(weight_part(), columns * weight_part().block_columns);
}

}  // namespace ac
