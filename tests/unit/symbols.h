// The symbols of shapes, as tests write them.
#pragma once

#include "ir/dim.h"

namespace ac::test {

inline const Dim S(Symbol::S), T(Symbol::T), P(Symbol::P);

}  // namespace ac::test
