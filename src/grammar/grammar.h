// Grammars that answers must follow, compiled for a model's vocabulary by XGrammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"

namespace ac::grammar {

// The largest source.
constexpr std::size_t kMostBytes = 256u << 10;

// A text that says what an answer, or a part of one, must be.
struct Form {
  enum class Kind {
    schema,  // a JSON schema, as `normal_schema` gives it: JSON on one line
    regex,
    ebnf,  // from its rule `root`
    lark,  // from its rule `start`; @p0 stands for the first of the source's parts
  };
  Kind kind = Kind::schema;
  std::string text;
  std::string where;  // it stands in a request
};

struct Source {
  Form whole;
  std::vector<Form> parts = {};  // that a `lark` refers to
};

// Why there is no grammar: an error (bad_input). The message does not say where.
class Refused : public Error {
 public:
  Refused(std::string where, const std::string& why)
      : Error(Fault::bad_input, why), where_(std::move(where)) {}
  const std::string& where() const { return where_; }

 private:
  std::string where_;
};

struct Compiled;

// May be used by several threads at once.
class Compiler {
 public:
  // Of a model with so many rows of logits. The tokenizer must outlive it.
  Compiler(const text::Tokenizer& tokenizer, std::int64_t vocabulary);
  ~Compiler();

  // That it can be compiled: a source that is wrong or takes too long is Refused.
  void check(const Source& source);
  // Whether it is one of the last that were checked.
  bool has_checked(const Source& source) const;
  // The last ones are kept. What was not checked, here or elsewhere, is checked first.
  std::shared_ptr<const Compiled> compile(const Source& source, bool checked = false);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ac::grammar
