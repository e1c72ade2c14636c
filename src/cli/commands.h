// One function a command: declares its options and what runs when it is given. They are listed in
// main.cc.
#pragma once

#include <CLI/CLI.hpp>

namespace ac {

// How --help and --help-all look; before the commands, which take it over.
void describe_commands(CLI::App& app);

void add_apply_template_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_chat_command(CLI::App& app);
void add_compile_command(CLI::App& app);
void add_completions_command(CLI::App& app);
void add_db_command(CLI::App& app);
void add_detokenize_command(CLI::App& app);
void add_devices_command(CLI::App& app);
void add_evaluate_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_help_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_package_command(CLI::App& app);
void add_perplexity_command(CLI::App& app);
void add_pull_command(CLI::App& app);
void add_quantize_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_serve_worker_command(CLI::App& app);
void add_study_command(CLI::App& app);
void add_study_advise_command(CLI::App& study);   // of the above
void add_study_predict_command(CLI::App& study);  // likewise
void add_study_propose_command(CLI::App& study);  // likewise
void add_tokenize_command(CLI::App& app);
void add_tune_command(CLI::App& app);
void add_tuned_command(CLI::App& app);
void add_verify_command(CLI::App& app);
void add_worker_command(CLI::App& app);

}  // namespace ac
