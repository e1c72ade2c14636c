// Typed access to the members of a part of tokenizer.json. Every error names the file and the
// member.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace ac::text {

class TokenizerFields {
 public:
  // `where` names the part: "FILE: normalizer.normalizers[2]". The value must outlive this.
  TokenizerFields(const Json& object, std::string where);

  const std::string& where() const { return where_; }
  std::string where(std::string_view name) const;
  bool has_value(std::string_view name) const;  // present, and not null

  // A member that is absent is an error, unless there is a fallback. A null is like an absent one.
  std::string text(std::string_view name) const;
  std::string text(std::string_view name, std::string_view fallback) const;
  bool boolean(std::string_view name) const;
  bool boolean(std::string_view name, bool fallback) const;
  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most) const;
  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most,
                       std::int64_t fallback) const;
  char32_t character(std::string_view name) const;  // a text of one character
  const Json& value(std::string_view name) const;
  TokenizerFields object(std::string_view name) const;
  void each(
      std::string_view name,
      const std::function<void(const TokenizerFields&)>& visit) const;  // of a list of objects

  // "FILE: PART.NAME: WHY"
  [[noreturn]] void refuse(std::string_view name, std::string_view why) const;
  // The part's type is none that we know.
  [[noreturn]] void refuse_type(std::string_view kind) const;

 private:
  const Json& object_;
  std::string where_;
};

}  // namespace ac::text
