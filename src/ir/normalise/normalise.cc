#include "ir/normalise.h"

#include "ir/normalise/passes.h"
#include "ir/verify.h"

namespace ac {

Graph normalise(const Graph& graph) {
  const std::vector<Rule> cleanup = cleanup_rules();
  std::vector<Rule> recognition = recognition_rules();
  recognition.insert(recognition.end(), cleanup.begin(), cleanup.end());

  Graph result = rewrite(graph, cleanup);
  result = rewrite(recognise_attention(result), cleanup);
  result = rewrite(put_tokens_first(result), recognition);
  verify(result, "normalise");
  return result;
}

}  // namespace ac
