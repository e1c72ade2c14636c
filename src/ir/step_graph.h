// One forward over T new tokens after P cached ones: what a runtime executes, again and again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace ac {

// The keys and values of one attention. A windowed cache need only keep its last `window` tokens.
struct Cache {
  DType dtype;
  std::int64_t heads, key_size, value_size;
  std::int64_t window;  // 0: all tokens
  std::string module;
  bool operator==(const Cache&) const = default;
};

struct StepGraph {
  Graph graph;                // over T and P; its append_attend nodes name caches by index
  std::vector<Cache> caches;  // one for each append_attend
};

void verify(const StepGraph& step, const std::string& origin);

}  // namespace ac
