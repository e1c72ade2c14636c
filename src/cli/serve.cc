#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <deque>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/print_stderr.h"
#include "cli/choice.h"
#include "cli/command_page.h"
#include "cli/commands.h"
#include "cli/text_model.h"
#include "runtime/package_files.h"
#include "serve/service.h"

namespace ac {
namespace {

constexpr std::size_t kMostKeys = 1u << 20;  // bytes of their file
constexpr std::int64_t kMostSlots = 64;      // as compile has

struct Serve {
  TextArguments text;
  std::string host = "127.0.0.1", key_file, alias, models;
  int port = 8080;
  std::size_t queue = 32;
  std::optional<api::ToolFormat> format;

  void run() const {
    if (text.model.name().empty() == models.empty())
      wrong_usage("name a MODEL, or a folder by --models");
    if (host.empty()) wrong_usage("--host is empty: name an address; 0.0.0.0 is all of them");
    const serve::ServiceOptions options{
        .keys = keys(), .logs = !text.engine.quiet, .most_waiting = queue};
    const std::deque<Model> all = models.empty() ? only_model() : models_in_folder();
    serve::Metrics metrics;
    serve::Queue requests(
        [&](std::size_t i, std::int64_t piece) {
          TextArguments arguments = all[i].arguments;
          if (piece > 0) arguments.cache.step = piece;
          return std::make_unique<serve::Worker>(arguments.worker_command(all[i].found->package()));
        },
        metrics, queue, static_cast<std::size_t>(text.slots));
    if (models.empty()) {
      requests.load(0);
      all[0].found->select_beside();
    }
    std::vector<api::ServedModel> served_models;
    for (const Model& each : all) served_models.push_back(served(each));
    serve::Service service(std::move(served_models), requests, metrics, options);
    serve::HttpServer server(
        host, port, {},
        [&](serve::HttpRequest request, std::shared_ptr<serve::HttpResponse> response) {
          service.handle(std::move(request), std::move(response));
        },
        serve::Service::refusal);
    const OrderlyEnd end([&] { requests.close(); });
    fmt::print("http://{}:{}\n", host.find(':') == std::string::npos ? host : "[" + host + "]",
               server.port());
    std::fflush(stdout);
    for (const Model& each : all)
      if (!text.engine.quiet)
        print_stderr("{} is served; Ctrl-C ends the server after the answers under way\n",
                     each.name);
    const auto stop = [&] { service.stop(), server.stop(); };
    try {
      requests.work([&] {
        const bool faster = all[0].found->has_faster_kernels();
        if (faster) all[0].found->say_faster();
        return faster;
      });
    } catch (...) {
      stop();
      throw;
    }
    stop();
  }

  struct Model {
    std::string name;
    TextArguments arguments;
    std::unique_ptr<FoundModel> found = nullptr;
    Program program = {};

    void find() {
      found = std::make_unique<FoundModel>(arguments, false);
      found->take_device().reset();  // the worker opens it
      program = read_program(PackageFiles(found->package()));
      const std::int64_t slots = arguments.slots, most = program.longest_step(Rows::each);
      if (slots > 1 && most < slots)
        wrong_usage("--slots: {} has {}: compile with --slots {}", found->package().string(),
                    most == 0 ? std::string("no steps of several sequences")
                              : fmt::format("steps of up to {} sequences", most),
                    slots);
    }
  };

  std::deque<Model> only_model() const {
    std::deque<Model> one;
    one.push_back({.name = alias.empty() ? plain_name() : alias, .arguments = text});
    one.back().find();
    return one;
  }

  // Those that cannot be served are left out, with a warning.
  std::deque<Model> models_in_folder() const {
    namespace fs = std::filesystem;
    if (!fs::is_directory(models)) bad_input("{}: there is no such folder", models);
    std::set<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(models))
      if (is_package_or_packages(entry.path()) || fs::exists(entry.path() / "config.json"))
        folders.insert(entry.path());
    std::deque<Model> all;
    for (const fs::path& folder : folders) try {
        all.push_back({.name = folder.filename().string(), .arguments = text});
        all.back().arguments.model.set_name(folder.string());
        all.back().find();
      } catch (const Error& error) {
        all.pop_back();
        warn_on_stderr(
            fmt::format("{} is not served: {}", folder.filename().string(), error.what()));
      }
    if (all.empty()) bad_input("{}: there is no model in it that can be served", models);
    return all;
  }

  // One a line.
  std::set<std::string> keys() const {
    std::set<std::string> keys;
    if (key_file.empty()) return keys;
    std::istringstream lines(read_file(key_file, kMostKeys));
    for (std::string line; std::getline(lines, line);) {
      line.erase(0, std::min(line.find_first_not_of(" \t\r"), line.size()));
      line.erase(line.find_last_not_of(" \t\r") + 1);
      if (!line.empty()) keys.insert(line);
    }
    if (keys.empty()) bad_input("{}: there is no key: write one on each line", key_file);
    return keys;
  }

  // A folder's name, or an id.
  std::string plain_name() const {
    const std::filesystem::path path = text.model.name();
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return path.string();
    const auto absolute = std::filesystem::canonical(path, error);
    return absolute.filename().string();
  }

  api::ServedModel served(const Model& model) const {
    const ModelText& texts = model.found->text();
    const Program& program = model.program;
    api::ServedModel served{
        .text = texts,
        .context = program.max_context,
        .vocabulary = program.vocab,
        .check = [&](const TextRequest& request) { check(request, texts, program); },
        .name = model.name,
        .fingerprint = model.found->fingerprint(),
        .wishes = text.flags,
        .stop = text.flags.stop,
        .created = std::time(nullptr),
        .grammars = std::make_shared<grammar::Compiler>(texts.tokenizer(), program.vocab)};
    served.thinks = texts.tokenizer().id("<think>").has_value();
    if (texts.has_chat_template()) {
      const std::string& chats = texts.chat_template(true);
      served.format = api::format_of(chats);
      served.thinks = served.thinks || chats.find("<think>") != std::string::npos;
    }
    if (format) served.format = *format;
    return served;
  }
};

}  // namespace

void add_serve_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("serve", "Answer over HTTP, as OpenAI's and Anthropic's APIs do");
  const auto serve = std::make_shared<Serve>();
  serve->text.add_to(*command, "as many as there is room for")->required(false);
  command
      ->add_option("--models", serve->models,
                   "A folder of packages, and of models that are compiled when the server starts. "
                   "Instead of MODEL: a request names one of them, and that is loaded")
      ->type_name("FOLDER")
      ->excludes("--checkpoint")
      ->excludes("--tokenizer")
      ->excludes("--chat-template");
  serve->text.cache.add_to(*command);
  command->add_option("--host", serve->host, "The address to listen at; 0.0.0.0 is all of them")
      ->capture_default_str()
      ->type_name("ADDRESS");
  command->add_option("--port", serve->port, "The port; 0 is any that is free")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command
      ->add_option("--api-key-file", serve->key_file,
                   "A file with keys, one a line. Clients must have one of them")
      ->type_name("FILE");
  command
      ->add_option("--alias", serve->alias,
                   "The model's name, for clients (default: the folder's name, or the id)")
      ->type_name("NAME")
      ->excludes("--models");
  command
      ->add_option("--queue", serve->queue,
                   "Requests that may wait; more are refused, to be sent again later")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, std::size_t{10'000}))
      ->group(kRare);
  command
      ->add_option("--slots", serve->text.slots,
                   "Requests that are answered at once, by steps that read the weights once for "
                   "all. A package must be compiled with as many")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, kMostSlots))
      ->type_name("N");
  Choices<api::ToolFormat> formats;
  for (const auto& [format, name] : api::kToolFormats) formats.emplace_back(name, format);
  add_choice<api::ToolFormat>(
      *command, "--tool-format", formats,
      [serve](api::ToolFormat format) { serve->format = format; },
      "How the model writes calls of tools (default: as its chat template says)")
      ->group(kRare);
  command->footer(
      "Examples:\n"
      "  agentcompile serve MODEL\n"
      "  agentcompile serve --models FOLDER\n"
      "  agentcompile serve MODEL --host 0.0.0.0 --port 80 --api-key-file keys.txt\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n"
      "The address goes to stdout, a line for each request to stderr (not with -q). As "
      "many\n"
      "requests as there are --slots are answered at once; others wait. A page to chat with is at "
      "the\naddress itself.");
  command->callback([serve] { serve->run(); });
}

}  // namespace ac
