// The printed form of graphs, which parses back to the same graph, and their JSON.
//
//   graph "llama" {
//     %0 = input {name="ids"} : i64[S]
//     %1 = weight {key="model.embed_tokens.weight", store="checkpoint"} : bf16[128256, 2048] @
//     "model" %2 = embedding(%1, %0) : bf16[S, 2048] @ "model.embed_tokens"
//     ...
//     return %99 as "logits"
//   }
//
// A graph that is not right for every length says `graph "llama" max_tokens=128 because "..." {`,
// and so does a step. A step starts with `step "llama" {` and one line a state:
//     state 0 : kv bf16 keys=8x64 values=8x64 window=0 @ "model.layers.0.self_attn"
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "ir/graph.h"
#include "ir/step_graph.h"

namespace ac {

std::string print(const Graph& graph);
std::string print(const StepGraph& step);

// The result is verified. `origin` names the text in errors, which give the line.
Graph parse_graph(std::string_view text, const std::string& origin);
StepGraph parse_step(std::string_view text, const std::string& origin);

Json to_json(const Graph& graph);
Json to_json(const StepGraph& step);

}  // namespace ac
