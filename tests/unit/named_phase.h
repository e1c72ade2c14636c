// A phase of a program, or of what a file says of one, by its label.
#pragma once

#include <doctest/doctest.h>

#include <string_view>

#include "base/json.h"
#include "program/program.h"

namespace ac::test {

inline Phase& named(Program& program, std::string_view label) {
  for (Phase& phase : program.phases)
    if (phase.label() == label) return phase;
  FAIL("no phase " << label);
  return program.phases.at(0);
}

inline Json& named(Json& json, std::string_view name) {
  for (Json& phase : json.at("phases"))
    if (phase.at("name") == name) return phase;
  FAIL("no phase " << name);
  return json;
}

}  // namespace ac::test
