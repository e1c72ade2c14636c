// Gives every name its place, by the rules of Jinja's compiler: a scope is examined as a whole
// before it runs, so that a name that is set anywhere in it belongs to it.
#pragma once

#include "text/template/syntax.h"

namespace ac::jinja {

// Throws a SyntaxError.
void resolve_names(Syntax& syntax);

}  // namespace ac::jinja
