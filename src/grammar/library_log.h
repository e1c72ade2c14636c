// What XGrammar says while it works.
#pragma once

#include <string>

namespace ac::grammar {

// The first warning of this thread since the last call; empty: none. A warning tells that a part of
// a grammar is ignored, so it is an error here.
std::string take_warning();

}  // namespace ac::grammar
