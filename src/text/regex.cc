#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "text/unicode.h"

namespace ac::text {
namespace {

constexpr std::uint32_t kMostSteps = 100'000'000;
constexpr std::size_t kMostHeapKiB = 256 << 10;
constexpr std::size_t kMostJitStack = 1 << 20;

template <class T, void (*release)(T*)>
struct Release {
  void operator()(T* pointer) const { release(pointer); }
};
template <class T, void (*release)(T*)>
using Owned = std::unique_ptr<T, Release<T, release>>;

// What a search writes to: one a thread.
struct Scratch {
  Owned<pcre2_match_context, pcre2_match_context_free> context{pcre2_match_context_create(nullptr)};
  Owned<pcre2_match_data, pcre2_match_data_free> data{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack{
      pcre2_jit_stack_create(32 << 10, kMostJitStack, nullptr)};

  Scratch() {
    if (!context || !data || !stack) throw std::bad_alloc();
    pcre2_set_match_limit(context.get(), kMostSteps);
    pcre2_set_heap_limit(context.get(), kMostHeapKiB);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

std::string message(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Code {
  Owned<pcre2_code, pcre2_code_free> code;
};

Regex::Regex(const std::string& pattern, std::string origin)
    : code_(std::make_unique<Code>()), origin_(std::move(origin)) {
  const std::string translated = pcre2_pattern(pattern, origin_);
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(
      pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  std::size_t place = 0;
  code_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                  translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                  &error, &place, context.get()));
  if (!code_->code)
    bad_input("{}: the regular expression {} is refused: {}", origin_, quote(pattern),
              message(error));
  // Where the machine cannot compile it, it is interpreted.
  pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE);
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

bool Regex::find(std::string_view text, std::size_t from, Match& match) const {
  thread_local Scratch scratch;
  const auto run = [&](std::uint32_t options) {
    return pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       from, options | PCRE2_NO_UTF_CHECK, scratch.data.get(),
                       scratch.context.get());
  };
  int result = run(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0)
    bad_input("{}: the regular expression cannot be matched against this text: {}", origin_,
              message(result));
  const std::size_t* const found = pcre2_get_ovector_pointer(scratch.data.get());
  match = {found[0], found[1]};
  return true;
}

Regex::Search::Search(const Regex& regex, std::string_view text) : regex_(regex), text_(text) {}

bool Regex::Search::next(Match& match) {
  while (at_ <= text_.size()) {
    if (!regex_.find(text_, at_, match)) break;
    if (match.end != match.begin || match.end != last_end_) {
      at_ = last_end_ = match.end;
      return true;
    }
    // Empty, and where the last one ended: try one character on.
    at_ += at_ < text_.size() ? character_bytes(text_[at_]) : 1;
  }
  at_ = text_.size() + 1;
  return false;
}

}  // namespace ac::text
