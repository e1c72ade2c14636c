// Words that blocks of a grid hand to each other through memory: a word says which round it is of,
// and whoever needs it waits until it is of that one. There is no flag beside it, and no fence.
#pragma once

#include "kernels/ptx.cuh"

namespace ac::kernels {

// Two elements of 16 bits or a float, and the round.
struct alignas(8) Word {
  unsigned value, tag;
};

#ifdef AC_HOST_DEVICE

__attribute__((no_sanitize("thread"))) inline void store_word(
    Word* to, unsigned value, unsigned tag, host::Place place = host::Place::current()) {
  host::note_word_stored(to, tag, place);
  *to = {value, tag};
}
// Waits until words of this tag are at at(0), at(1) and so on, `each` side by side.
template <int n, int each, class At>
__attribute__((no_sanitize("thread"))) void fetch_words(
    const At& at, unsigned tag, unsigned (&out)[n * each],
    host::Place place = host::Place::current()) {
  for (int i = 0; i < n * each; ++i) {
    struct Wait {
      const Word* word;
      unsigned tag;
    } wait{at(i / each) + i % each, tag};
    host::wait_until(
        "a wait for words",
        [](void* state) __attribute__((no_sanitize("thread"))) {
          const auto& w = *static_cast<const Wait*>(state);
          return w.word->tag == w.tag;
        },
        &wait, place);
    out[i] = wait.word->value;
    host::note_word_seen(wait.word, tag);
  }
}

#else

AC_DEVICE void store_word(Word* to, unsigned value, unsigned tag) {
  const unsigned long long both = static_cast<unsigned long long>(tag) << 32 | value;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(both) : "memory");
}
// Each of the words is read at once, value and tag.
AC_DEVICE void load_words(const Word* from, unsigned long long (&both)[1]) {
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(both[0]) : "l"(from) : "memory");
}
AC_DEVICE void load_words(const Word* from, unsigned long long (&both)[2]) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(both[0]), "=l"(both[1])
               : "l"(from)
               : "memory");
}
template <int n, int each, class At>
AC_DEVICE void fetch_words(const At& at, unsigned tag, unsigned (&out)[n * each]) {
  const auto is_there = [&](const unsigned long long(&both)[each]) {
    bool all = true;
    AC_UNROLL
    for (int j = 0; j < each; ++j) all = all && static_cast<unsigned>(both[j] >> 32) == tag;
    return all;
  };
  unsigned long long both[n][each];
  // Who wants much looks at one place first: else those who wait would keep memory busy.
  constexpr int rest = n > 8 ? n - 1 : n;
  if constexpr (rest < n) {
    do load_words(at(rest), both[rest]);
    while (!is_there(both[rest]));
  }
  bool all;
  do {
    all = true;
    AC_UNROLL
    for (int i = 0; i < rest; ++i) load_words(at(i), both[i]);
    AC_UNROLL
    for (int i = 0; i < rest; ++i) all = all && is_there(both[i]);
  } while (!all);
  AC_UNROLL
  for (int i = 0; i < n * each; ++i) out[i] = static_cast<unsigned>(both[i / each][i % each]);
}

#endif

}  // namespace ac::kernels
