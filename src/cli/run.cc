#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "cli/command_page.h"
#include "cli/commands.h"
#include "cli/engine.h"
#include "cli/reference_generator.h"
#include "cli/run_request.h"
#include "cli/source_arguments.h"
#include "ir/incrementalise.h"

namespace ac {
namespace {

struct Run {
  SourceArguments source;
  EngineArguments engine;
  std::string ids, ids_file, requests, stop_ids;
  TokenRequest request;    // what the options say of one, or of all that say nothing else
  std::int64_t chunk = 0;  // 0: as many as the package takes; 128 for the reference
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool reference = false, logits = false, json = false;

  const CLI::App* command = nullptr;
  EngineArguments::Opened opened;

  void refuse(std::initializer_list<const char*> options, const char* why) const {
    for (const char* const option : options)
      if (command->count(option) > 0) wrong_usage("{}: {}", option, why);
  }

  std::unique_ptr<Generator> make() {
    if (reference) {
      refuse({"--device", "--checkpoint", "--random-weights"},
             "the reference executor runs a model, with its own weights, on the CPU");
      const Model model = source.capture();
      return reference_generator(
          model, incrementalise(source.normal_form(model.graph), source.kv_storage()), threads);
    }
    if (source.dtype)
      wrong_usage("--dtype: a package computes in the type that it was compiled for");
    if (std::filesystem::exists(std::filesystem::path(source.source) / "config.json"))
      wrong_usage("{} is a model: compile it first, or run it with --reference", source.source);
    refuse({"--front-end", "--download"}, "a package is captured already");
    refuse({"--threads"}, "only the reference executor (--reference) takes a number of threads");
    opened = engine.open(source.source);
    if (const std::int64_t most = opened.engine->program().longest_step(); chunk > most)
      wrong_usage("--chunk {}: {} takes {} tokens at once; compile with a larger --chunk", chunk,
                  source.source, most);
    return package_generator(*opened.engine);
  }

  void run() {
    if (command->count("--stop-ids") > 0) request.stop_ids = parse_ids(stop_ids, "--stop-ids");
    ac::check(request.sampling);
    ac::check(request.penalties);
    std::vector<TokenRequest> all;
    if (!requests.empty()) {
      all = read_requests(requests, request);
    } else {
      request.ids = ids_file.empty() ? parse_ids(ids, "--ids") : read_ids(ids_file);
      all = {request};
    }
    const std::unique_ptr<Generator> generator = make();
    for (const TokenRequest& one : all) generator->check(one);
    for (const TokenRequest& one : all) serve(*generator, one);
  }

  void serve(Generator& generator, const TokenRequest& one) const {
    const bool plain = !json && requests.empty();
    const std::int64_t cached = generator.prompt(one, chunk);
    std::vector<double> after_prompt;
    if (logits) after_prompt = generator.logits();
    std::vector<std::int64_t> generated;
    generator.generate(one, [&](std::int64_t token) {
      generated.push_back(token);
      if (plain) {
        fmt::print("{}{}", generated.size() > 1 ? "," : "", token);
        std::fflush(stdout);
      }
      return true;
    });
    if (plain) {
      fmt::print("\n");
      for (std::size_t i = 0; i < after_prompt.size(); ++i)
        fmt::print("{} {}\n", i, after_prompt[i]);
      return;
    }
    Json result{{"ids", one.ids}, {"generated", generated}, {"sampling", to_json(one.sampling)}};
    if (!one.penalties.none()) result["penalties"] = to_json(one.penalties);
    if (!requests.empty()) result["cached"] = cached;
    if (opened.engine) {
      const LoadedProgram::Loaded& loaded = opened.engine->loaded();
      result["load"] = {{"seconds", loaded.seconds},
                        {"bytes", loaded.bytes},
                        {"gb_s", static_cast<double>(loaded.bytes) * 1e-9 / loaded.seconds}};
    }
    if (logits) result["last_logits"] = after_prompt;
    fmt::print("{}\n", result.dump());
    std::fflush(stdout);
  }
};

}  // namespace

void add_run_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("run", "Generate tokens with a package or the reference executor");
  const auto run = std::make_shared<Run>();
  run->command = command;
  run->source.add_to(*command, true);
  run->engine.add_to(*command);
  command->add_flag("--reference", run->reference,
                    "Run the reference executor: plain C++ in double precision, slow and exact");
  CLI::Option_group* const prompt = command->add_option_group("Prompt, one of these");
  prompt->add_option("--ids", run->ids, "The prompt as token ids: 1,2,3");
  prompt
      ->add_option("--ids-file", run->ids_file,
                   "A file of token ids, between commas or spaces; - is stdin")
      ->type_name("FILE");
  prompt
      ->add_option(
          "--requests", run->requests,
          "A file of requests (- is stdin), a JSON object a line: ids, and max_new_tokens, "
          "stop_ids, temperature, top_k, top_p, min_p, seed, repeat_penalty and "
          "presence_penalty, if not as these options say. Prints a JSON line for each. Tokens "
          "that a request shares with the one before it are not run again")
      ->type_name("FILE");
  prompt->require_option(1);
  command->add_option("--stop-ids", run->stop_ids, "Tokens after which no more are generated: 1,2");
  command
      ->add_option("--max-new-tokens,-n", run->request.max_new_tokens,
                   "How many tokens to generate")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  add_sampling(*command, run->request.sampling);
  add_penalties(*command, run->request.penalties);
  command
      ->add_option("--chunk", run->chunk,
                   "Tokens of the prompt that are processed at once (default: as many as the "
                   "package takes; 128 with --reference)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  command->add_option("--threads", run->threads, "Threads of the reference executor")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024))
      ->group(kRare);
  command->add_flag("--logits", run->logits, "Also give the logits after the prompt");
  command->add_flag(
      "--json", run->json,
      "Print JSON: ids, generated, sampling, load (seconds, bytes, gb_s), last_logits");
  command->footer(
      "Examples:\n"
      "  agentcompile run PKG --ids 1,2,3 --max-new-tokens 8 --json\n"
      "  agentcompile run PKG --requests requests.jsonl\n"
      "  agentcompile run MODEL --reference --ids 1,2,3 -n 8 --logits --json");
  command->callback([run] { run->run(); });
}

}  // namespace ac
