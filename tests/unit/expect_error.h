// Runs an action that must throw an ac::Error; gives its message for CHECKs on the text.
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>

#include "base/error.h"

namespace ac::test {

template <class Action>
std::string error_of(Fault fault, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(static_cast<int>(error.fault()) == static_cast<int>(fault));
    return error.what();
  }
  FAIL_CHECK("no error was thrown");
  return {};
}

// The action must be refused as bad input, with a message that holds every one of the parts.
// (The odd names keep clear of names in the arguments.)
#define CHECK_BAD_INPUT(action, ...)                                                              \
  do {                                                                                            \
    const std::string ac_message = ::ac::test::error_of(::ac::Fault::bad_input, [&] { action; }); \
    for (const std::string& ac_part : std::initializer_list<std::string>{__VA_ARGS__}) {          \
      INFO(ac_message);                                                                           \
      INFO(ac_part);                                                                              \
      CHECK(ac_message.find(ac_part) != std::string::npos);                                       \
    }                                                                                             \
  } while (false)

}  // namespace ac::test
