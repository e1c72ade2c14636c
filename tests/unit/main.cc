#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#ifdef __SANITIZE_ADDRESS__
// Up to GCC 13 and LLVM 16, the sanitizers take a thread-local block of a library that was loaded
// later for one of an old glibc if it begins 16 bytes into a page, and what is before it for the
// block's address and size. The leak check at the end then reads what was never mapped, and dies
// ("Tracer caught signal 11"), once in many runs: NVRTC has such blocks. Blocks of today's glibc
// come from malloc, where the leak check finds them without this.
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }
#endif
