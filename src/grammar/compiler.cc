#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <list>
#include <mutex>
#include <optional>
#include <random>

#include "base/child.h"
#include "base/json.h"
#include "grammar/compiled.h"
#include "grammar/grammar.h"
#include "grammar/library_log.h"
#include "grammar/matcher.h"

namespace ac::grammar {
namespace {

constexpr std::size_t kMostKept = 64, kMostKeptBytes = 256u << 20;
constexpr rlim_t kMostSeconds = 2, kMostMemory = 1u << 30;
constexpr std::chrono::seconds kMostTime{10};

// No text has this byte, as it is none of UTF-8.
constexpr char kNoText = '\xFF';

// The bytes of each token. Those that match no text begin with kNoText, but for what no answer has.
std::vector<std::string> bytes_of_tokens(const text::Tokenizer& tokenizer,
                                         std::int64_t vocabulary) {
  std::vector<std::string> all;
  for (text::TokenId id = 0; id < vocabulary; ++id) {
    all.emplace_back();
    if (!tokenizer.has(id)) continue;
    if (tokenizer.is_special(id)) {
      all.back() = kNoText + std::string(tokenizer.token(id));
      continue;
    }
    const auto bytes = tokenizer.bytes(id);
    if (!bytes)
      throw Refused({}, "the model's tokenizer joins tokens in a way that grammars cannot follow");
    if (bytes->find(kNoText) == std::string::npos) all.back() = *bytes;
  }
  return all;
}

xgrammar::TokenizerInfo info_of(const text::Tokenizer& tokenizer, std::int64_t vocabulary) {
  std::vector<std::int32_t> stops;
  for (const text::TokenId id : tokenizer.end_of_text())
    if (id < vocabulary) stops.push_back(id);
  return {bytes_of_tokens(tokenizer, vocabulary), xgrammar::VocabType::RAW,
          static_cast<int>(vocabulary), stops};
}

// Elsewhere, a dot is no line feed; in the library, it is any character.
std::string with_usual_dots(const std::string& regex) {
  std::string usual;
  bool in_class = false;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '.' && !in_class) {
      usual += "[^\\n]";
      continue;
    }
    usual += c;
    if (c == '\\' && i + 1 < regex.size()) usual += regex[++i];
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
  }
  return usual;
}

xgrammar::Grammar parse(const Form& part, const xgrammar::TokenizerInfo& tokens,
                        const std::vector<xgrammar::NamedGrammar>& named = {}) {
  using xgrammar::Grammar;
  switch (part.kind) {
    case Form::Kind::schema:
      return Grammar::FromJSONSchema(part.text, false, std::nullopt, std::pair{", ", ": "}, true);
    case Form::Kind::regex:
      return Grammar::FromRegex(with_usual_dots(part.text));
    case Form::Kind::ebnf:
      return Grammar::FromEBNF(part.text);
    case Form::Kind::lark:
      return Grammar::FromLark(part.text, tokens, named);
  }
  AC_UNREACHABLE();
}

// What `work` gives. What it throws, and what it warns of, is Refused.
template <class Work>
auto watched(const std::string& where, Work work) {
  take_warning();
  try {
    auto result = work();
    if (const std::string warning = take_warning(); !warning.empty())
      throw std::runtime_error(warning);
    return result;
  } catch (const Refused&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw Refused(where, "it needs too much memory");
  } catch (const std::exception& error) {
    std::string why = error.what();
    throw Refused(where, why.substr(0, why.find('\n')));
  }
}

xgrammar::CompiledGrammar compiled(const Source& source, xgrammar::GrammarCompiler& library,
                                   const xgrammar::TokenizerInfo& tokens) {
  std::vector<xgrammar::NamedGrammar> named;
  for (std::size_t i = 0; i < source.parts.size(); ++i)
    named.push_back({"p" + std::to_string(i), watched(source.parts[i].where, [&] {
                       return parse(source.parts[i], tokens);
                     })});
  return watched(source.whole.where,
                 [&] { return library.CompileGrammar(parse(source.whole, tokens, named)); });
}

// Follows it at random for some tokens: what takes long there would take long for an answer, too.
void walk(const xgrammar::CompiledGrammar& grammar, const text::Tokenizer& tokenizer) {
  constexpr int kSteps = 32;
  Matcher matcher({std::make_shared<const Compiled>(grammar, tokenizer)});
  std::mt19937 random(1);
  std::vector<double> logits(static_cast<std::size_t>(grammar.GetTokenizerInfo().GetVocabSize()));
  for (int i = 0; i < kSteps && !matcher.ended(); ++i) {
    for (double& logit : logits) logit = static_cast<double>(random());
    matcher.restrict(logits);
    // As long as it can.
    for (const std::int32_t stop : grammar.GetTokenizerInfo().GetStopTokenIds())
      logits[static_cast<std::size_t>(stop)] = -1;
    const auto token = std::ranges::max_element(logits) - logits.begin();
    matcher.take(token);
  }
}

// More than the process has already.
void limit_this_process() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  for (int column = 0; column < 6; ++column) file >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(getpagesize()) + kMostMemory;
  const rlimit memory{most, most}, seconds{kMostSeconds, kMostSeconds}, core{0, 0};
  setrlimit(RLIMIT_DATA, &memory);
  setrlimit(RLIMIT_CPU, &seconds);
  setrlimit(RLIMIT_CORE, &core);
}

}  // namespace

struct Compiler::Impl {
  const text::Tokenizer& tokenizer;
  const std::int64_t vocabulary;

  // Made when it is first needed: a large vocabulary takes a tenth of a second.
  struct Library {
    xgrammar::TokenizerInfo tokens;
    xgrammar::GrammarCompiler compiler{tokens, 1, false};
  };
  std::optional<Library> library = {};

  struct Kept {
    std::string key;
    std::shared_ptr<const Compiled> grammar;
    std::size_t bytes = 0;
  };
  std::mutex compiling = {};
  mutable std::mutex mutex = {};        // of what follows
  std::list<std::string> checked = {};  // keys, the last one first
  std::list<Kept> kept = {};            // the last used one first

  // A source may ask for more time or memory than there is, or find a fault in the library: a child
  // process tries it first. Other threads go on here, so the child takes no locks of theirs: the
  // library is used under `compiling` alone.
  void try_out(const Source& source) {
    const auto attempt = [&]() -> std::string {
      limit_this_process();
      try {
        walk(compiled(source, library->compiler, library->tokens), tokenizer);
      } catch (const Refused& refused) {
        return dump_of({{"where", refused.where()}, {"why", refused.what()}});
      } catch (const Error& error) {
        return dump_of({{"where", source.whole.where}, {"why", error.what()}});
      }
      return {};
    };
    const ChildResult result = run_in_children({ChildTask(attempt)}, 1, kMostTime).front();
    if (!result.ok())
      throw Refused(source.whole.where,
                    "it takes too much time or memory to compile: make it smaller");
    if (result.text.empty()) return;
    const Json refused = Json::parse(result.text);
    throw Refused(refused["where"], refused["why"].get<std::string>());
  }
  static std::string dump_of(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  static std::string key_of(const Source& source) {
    std::string key;
    const auto add = [&](const Form& part) {
      key += fmt::format("{} {} {}", static_cast<int>(part.kind), part.text.size(), part.text);
    };
    add(source.whole);
    for (const Form& part : source.parts) add(part);
    return key;
  }

  bool has_checked(const std::string& key) const {
    const std::lock_guard lock(mutex);
    return std::ranges::find(checked, key) != checked.end();
  }

  // Under `compiling`.
  void check(const Source& source, const std::string& key) {
    if (has_checked(key)) return;
    if (key.size() > kMostBytes)
      throw Refused(source.whole.where,
                    fmt::format("it has {} bytes, more than {}", key.size(), kMostBytes));
    make_library();
    try_out(source);
    const std::lock_guard lock(mutex);
    checked.push_front(key);
    if (checked.size() > kMostKept) checked.pop_back();
  }

  void make_library() {
    if (!library) library.emplace(info_of(tokenizer, vocabulary));
  }

  std::shared_ptr<const Compiled> compile(const Source& source, bool is_checked) {
    const std::string key = key_of(source);
    if (auto known = find(key)) return known;
    const std::lock_guard one_at_a_time(compiling);
    if (auto known = find(key)) return known;
    if (!is_checked) check(source, key);
    make_library();
    return keep(key, std::make_shared<const Compiled>(
                         compiled(source, library->compiler, library->tokens), tokenizer));
  }

  std::shared_ptr<const Compiled> find(const std::string& key) {
    const std::lock_guard lock(mutex);
    for (auto each = kept.begin(); each != kept.end(); ++each)
      if (each->key == key) {
        kept.splice(kept.begin(), kept, each);
        return each->grammar;
      }
    return nullptr;
  }
  std::shared_ptr<const Compiled> keep(const std::string& key,
                                       std::shared_ptr<const Compiled> grammar) {
    const std::lock_guard lock(mutex);
    kept.push_front({key, grammar, grammar->grammar.MemorySizeBytes()});
    std::size_t count = 0, bytes = 0;
    for (auto each = kept.begin(); each != kept.end();) {
      bytes += each->bytes;
      each = ++count > kMostKept || (count > 1 && bytes > kMostKeptBytes) ? kept.erase(each)
                                                                          : std::next(each);
    }
    return grammar;
  }
};

Compiler::Compiler(const text::Tokenizer& tokenizer, std::int64_t vocabulary)
    : impl_(new Impl{tokenizer, vocabulary}) {}
Compiler::~Compiler() = default;

void Compiler::check(const Source& source) {
  const std::lock_guard one_at_a_time(impl_->compiling);
  impl_->check(source, Impl::key_of(source));
}

bool Compiler::has_checked(const Source& source) const {
  return impl_->has_checked(Impl::key_of(source));
}

std::shared_ptr<const Compiled> Compiler::compile(const Source& source, bool checked) {
  return impl_->compile(source, checked);
}

}  // namespace ac::grammar
