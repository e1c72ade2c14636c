#include "ir/normalise.h"

#include "ir/normalise/passes.h"
#include "ir/verify.h"

namespace ac {

std::vector<Rule> normal_form_rules() {
  std::vector<Rule> rules = recognition_rules();
  const std::vector<Rule> cleanup = cleanup_rules();
  rules.insert(rules.end(), cleanup.begin(), cleanup.end());
  return rules;
}

Graph normalise(const Graph& graph) {
  const std::vector<Rule> cleanup = cleanup_rules();
  std::vector<Rule> spellings = spelling_rules();
  for (const std::vector<Rule>& more : {layout_rules(), cleanup})
    spellings.insert(spellings.end(), more.begin(), more.end());
  Graph result = rewrite(limit_to_exact(limit_tokens(graph)), spellings);
  result = rewrite(recognise_attention(result), cleanup);
  result = rewrite(put_tokens_first(result), normal_form_rules());
  verify(result, "normalise");
  return result;
}

}  // namespace ac
