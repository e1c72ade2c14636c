// Faults in the kernel that ends a step.
#include "tests/faults/faults.h"

namespace ac::kernels {

std::vector<Fault> advance_faults() {
  const std::string advance = "kernels/advance.cuh";
  return {
      {"the position moves by one token", advance, {{"+ p.tokens;", "+ 1;"}}, {"prefill_end"}},
      {"the position stays", advance, {{"  *p.position = position;\n", ""}}, {"decode_end"}},
      {"the log is written past its end",
       advance,
       {{"position < p.positions", "position <= p.positions"}},
       {"decode_end", "prefill_end"}},
      {"the log ends one position early",
       advance,
       {{"position < p.positions", "position < p.positions - 1"}},
       {"decode_end", "prefill_end"}},
      {"the token is logged a position early",
       advance,
       {{"p.log[position]", "p.log[position - 1]"}},
       {"decode_end", "prefill_end"}},
      {"a wide id is written as a narrow one",
       advance,
       {{"*ids = token", "*static_cast<int*>(p.ids) = token"}},
       {"prefill_end"}},
      {"a token that is none becomes an id",
       advance,
       {{"token < 0 ? 0 : token", "token"}},
       {"decode_end", "prefill_end"}},
      {"a stop id does not end a text",
       advance,
       {{"ended || (ids[i] == first && i < stops)", "ended"}},
       {"decode_end", "prefill_end"}},
      {"an id behind the stop ids ends a text",
       advance,
       {{" && i < stops", ""}},
       {"decode_end", "prefill_end"}},
      {"a text goes on without tokens left",
       advance,
       {{"bool ended = left == 0;", "bool ended = false;"}},
       {"decode_end", "prefill_end"}},
      {"tokens are not counted",
       advance,
       {{"  if (left > 0) p.until->left = left - 1;\n", ""}},
       {"decode_end", "prefill_end"}},
      {"a void step leaves its token",
       advance,
       {{"    *p.token = static_cast<int>(first);\n", ""}},
       {"decode_end", "prefill_end"}},
      {"the second id is written", advance, {{"*ids = token", "ids[1] = token"}}, {"prefill_end"}},
  };
}

}  // namespace ac::kernels
