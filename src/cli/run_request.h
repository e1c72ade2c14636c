// What `run` is asked to generate: once by its options, or many times by a file.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "ask/token_request.h"

namespace ac {

// All of a file or pipe, or of stdin ("-").
std::string read_whole(const std::string& file);
// "1,2,3", as the option `option` has it.
std::vector<std::int64_t> parse_ids(const std::string& text, const char* option);
// Token ids in a file or pipe, or on stdin ("-"), between them commas or white space.
std::vector<std::int64_t> read_ids(const std::string& file);

// A JSON object a line: "ids", and whatever differs from `defaults` of "max_new_tokens",
// "stop_ids", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty" and
// "seed". Errors name the line. "-" is stdin here as well.
std::vector<TokenRequest> read_requests(const std::string& file, const TokenRequest& defaults);

// --temperature, --top-k, --top-p, --min-p and --seed.
void add_sampling(CLI::App& command, Sampling& sampling);
// --repeat-penalty and --presence-penalty.
void add_penalties(CLI::App& command, Penalties& penalties);

}  // namespace ac
