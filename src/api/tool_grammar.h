// The grammars of calls of tools, in the forms of `ToolFormat`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "api/tool_format.h"

namespace ac::api {

struct CallGrammar {
  std::string lark;            // @p0 are the arguments of the first tool
  text::TokenId trigger = -1;  // the token that begins calls
};

// A form whose arguments are not JSON is an Error (bad_input). `beside_text`: calls stand in a
// text, and the grammar begins behind the trigger.
CallGrammar call_grammar(ToolFormat format, const std::vector<std::string>& names, bool one_call,
                         bool beside_text, const std::string& chat_template,
                         const text::Tokenizer& tokenizer);

}  // namespace ac::api
