// What the CPU of this machine can do.
#pragma once

namespace ac {

// Whether it multiplies and adds in one instruction that compilers have to be told of.
inline bool cpu_has_fma() {
#ifdef __x86_64__
  return __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

}  // namespace ac
