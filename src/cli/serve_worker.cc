#include <unistd.h>

#include <memory>
#include <new>

#include "cli/commands.h"
#include "cli/text_model.h"
#include "serve/worker.h"

namespace ac {

void add_serve_worker_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve-worker", "Answers for a server");
  command->group("");  // not for people
  const auto arguments = std::make_shared<TextArguments>();
  arguments->add_to(*command, "");
  arguments->cache.add_to(*command);
  command->add_option("--slots", arguments->slots, "Requests that are answered at once");
  command->callback([arguments] {
    serve::Channel channel(STDIN_FILENO);
    std::unique_ptr<TextModel> model;
    std::unique_ptr<SequencesModel> several;
    try {
      if (arguments->slots > 1)
        several = std::make_unique<SequencesModel>(*arguments);
      else
        model = std::make_unique<TextModel>(*arguments, false);
    } catch (const Error& error) {
      return channel.send(json_of(serve::Failed{error.fault(), error.what()}));
    } catch (const std::bad_alloc&) {
      return channel.send(json_of(serve::Failed{Fault::job_failed, "out of memory"}));
    }
    if (several)
      serve::answer_requests(channel, several->sequences(), several->text(),
                             several->fingerprint());
    else
      serve::answer_requests(channel, model->answerer(), model->fingerprint());
  });
}

}  // namespace ac
