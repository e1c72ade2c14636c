#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <memory>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "cli/choice.h"
#include "cli/commands.h"
#include "cli/page.h"
#include "cli/text_model.h"
#include "serve/service.h"

namespace ac {
namespace {

constexpr std::size_t kMostKeys = 1u << 20;  // bytes of their file

struct Serve {
  TextArguments text;
  std::string host = "127.0.0.1", key_file, alias;
  int port = 8080;
  std::size_t queue = 32;
  std::optional<api::ToolFormat> format;

  void run() const {
    const serve::ServiceOptions options{.keys = keys(), .logs = !text.engine.quiet};
    TextModel model(text, false);
    model.select_beside();
    const std::string name = alias.empty() ? plain_name() : alias;
    serve::Metrics metrics;
    metrics.context(0, model.most_tokens());
    serve::Queue requests(model.answerer(), metrics, queue);
    serve::Service service(served(model, name), requests, metrics, options);
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
    if (!text.engine.quiet)
      fmt::print(stderr, "{} is served; Ctrl-C ends the server after the answers under way\n",
                 name);
    try {
      requests.work([&] { model.take_up(); });
    } catch (...) {
      server.stop();
      throw;
    }
    server.stop();
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

  api::ServedModel served(TextModel& model, const std::string& name) const {
    api::ServedModel served{
        .text = model.text(),
        .context = model.most_tokens(),
        .vocabulary = model.vocabulary(),
        .check = [&model](const TextRequest& request) { model.answerer().check(request); },
        .name = name,
        .fingerprint = model.fingerprint(),
        .wishes = text.flags,
        .stop = text.flags.stop,
        .created = std::time(nullptr),
        .grammars =
            std::make_shared<grammar::Compiler>(model.text().tokenizer(), model.vocabulary())};
    served.thinks = model.text().tokenizer().id("<think>").has_value();
    if (model.text().has_chat_template()) {
      const std::string& chats = model.text().chat_template(true);
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
  serve->text.add_to(*command, "as many as there is room for");
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
      ->type_name("NAME");
  command
      ->add_option("--queue", serve->queue,
                   "Requests that may wait; more are refused, to be sent again later")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, std::size_t{10'000}))
      ->group(kRare);
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
      "  agentcompile serve MODEL --host 0.0.0.0 --port 80 --api-key-file keys.txt\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n"
      "The address goes to stdout, a line for each request to stderr (not with -q). One request "
      "is\n"
      "answered at a time; others wait. A page to chat with is at the address itself.");
  command->callback([serve] { serve->run(); });
}

}  // namespace ac
