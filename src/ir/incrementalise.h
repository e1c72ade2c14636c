// Turns the forward over S tokens into a step: T new tokens after P cached ones. Proves that every
// op treats each token by itself, except causal attention, which becomes append_attend over a
// KV cache; positions become P .. P+T-1. It stands after normalise, which puts the token axis
// first, and refuses what it cannot prove, naming the op and its module.
#pragma once

#include "ir/step_graph.h"

namespace ac {

// The step with the logits of all T tokens.
StepGraph incrementalise(const Graph& graph, KvStorage storage = KvStorage::elements);

// What a runtime runs. Decode: T = 1. Prefill: any T, but only the last token's logits, so that
// only one row goes through the head.
StepGraph decode_instance(const StepGraph& step);
StepGraph prefill_instance(const StepGraph& step);
// Any T, and all rows through the head. The output is a view of the last one, from which a token is
// chosen; its storage holds them all.
StepGraph all_rows_instance(const StepGraph& step);

}  // namespace ac
