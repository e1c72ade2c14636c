// The option of a planned step that is spelled like that, such as "rms_norm | linear+add".
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "plan/planner.h"

namespace ac::test {

inline const FusionOption& option(const Plans& plans, const std::string& text) {
  for (const Neighbourhood& around : plans.neighbourhoods)
    for (const FusionOption& option : around.options)
      if (option.text == text && !option.refused) return option;
  FAIL("no option " << text);
  std::abort();
}

}  // namespace ac::test
