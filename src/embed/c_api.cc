// The C API (include/agentcompile.h). A handle is a number that a table knows, and no address: one
// that was closed, or never was one, is told from one that is open.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <type_traits>

#include "answer/answer_text.h"
#include "ask/choosing.h"
#include "base/error.h"
#include "embed/loaded_model.h"
#include "include/agentcompile.h"
#include "runtime/packages.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCacheDisk = std::size_t{16} << 30;

class Handles {
 public:
  static Handles& ours() {
    static Handles* const handles = new Handles;  // calls may come while the program ends
    return *handles;
  }

  ac_model* add(std::shared_ptr<LoadedModel> model) {
    const std::lock_guard lock(mutex_);
    const std::uintptr_t number = ++last_ * alignof(std::max_align_t);
    models_.emplace(number, std::move(model));
    return reinterpret_cast<ac_model*>(number);
  }
  std::shared_ptr<LoadedModel> find(const ac_model* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == models_.end())
      wrong_usage("{}", handle == nullptr ? "the model is null" : "the model is closed, or none");
    return found->second;
  }
  void remove(const ac_model* handle) {
    const std::lock_guard lock(mutex_);
    models_.erase(reinterpret_cast<std::uintptr_t>(handle));
  }

 private:
  std::mutex mutex_;
  std::uintptr_t last_ = 0;
  std::map<std::uintptr_t, std::shared_ptr<LoadedModel>> models_;
};

thread_local std::string last_error;

ac_status failed(ac_status status, const char* why) noexcept {
  try {
    last_error = why;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return status;
}

struct NotCompiled : Error {
  explicit NotCompiled(const std::string& message) : Error(Fault::bad_input, message) {}
};

ac_status status_of(Fault fault) {
  switch (fault) {
    case Fault::wrong_usage:
      return AC_WRONG_USAGE;
    case Fault::bad_input:
      return AC_BAD_INPUT;
    case Fault::device_lost:
      return AC_DEVICE_LOST;
    default:
      return AC_JOB_FAILED;
  }
}

// No exception leaves the library.
ac_status guarded(const auto& work) noexcept {
  try {
    work();
    return AC_OK;
  } catch (const NotCompiled& error) {
    return failed(AC_NOT_COMPILED, error.what());
  } catch (const Error& error) {
    return failed(status_of(error.fault()), error.what());
  } catch (const fs::filesystem_error& error) {
    return failed(AC_BAD_INPUT, error.what());
  } catch (const std::bad_alloc&) {
    return failed(AC_JOB_FAILED, "out of memory");
  } catch (const std::exception& error) {
    return failed(AC_JOB_FAILED, error.what());
  } catch (...) {
    return failed(AC_JOB_FAILED, "an unknown exception");
  }
}

// The same with the model, for this thread alone.
ac_status with_model(const ac_model* handle, const auto& work) noexcept {
  return guarded([&] {
    const std::shared_ptr<LoadedModel> model = Handles::ours().find(handle);
    const LoadedModel::Use use(*model);
    work(*model);
  });
}

template <class... Pointers>
void need(const Pointers*... pointers) {
  if ((!pointers || ...)) wrong_usage("an argument is null that must not be");
}

std::string text_or_nothing(const char* text) { return text == nullptr ? "" : text; }

std::vector<std::int64_t> ids_of(const std::int64_t* ids, std::size_t count) {
  if (count > 0) need(ids);
  return {ids, ids + count};
}

// For ac_free(); with a zero behind it.
template <class T>
T* given(std::span<const T> values) {
  T* const memory = static_cast<T*>(std::malloc((values.size() + 1) * sizeof(T)));
  if (memory == nullptr) throw std::bad_alloc();
  std::ranges::copy(values, memory);
  memory[values.size()] = T{};
  return memory;
}
void give(const std::string& value, char** text, std::size_t* bytes) {
  *text = given(std::span<const char>(value));
  *bytes = value.size();
}
void give(const std::vector<std::int64_t>& value, std::int64_t** ids, std::size_t* count) {
  *ids = given(std::span<const std::int64_t>(value));
  *count = value.size();
}

void require_package(const std::string& path) {
  std::error_code error;
  if (fs::exists(fs::path(path) / "program.json", error) ||
      fs::exists(fs::path(path) / "digests.json", error) || !packages_in(path).empty())
    return;
  throw NotCompiled(
      fmt::format("{} is no package{}: `agentcompile package {}` compiles a model where that is "
                  "needed, and prints "
                  "the folder of its package",
                  path, fs::exists(path, error) ? "" : ", and no such folder exists", path));
}

LoadedModel::Options options_of(const ac_load_options& from) {
  LoadedModel::Options options;
  options.engine.device = text_or_nothing(from.device);
  options.engine.checkpoint = text_or_nothing(from.checkpoint);
  if (from.random_weights != 0) options.engine.random_weights = from.seed;
  if (options.engine.random_weights && !options.engine.checkpoint.empty())
    wrong_usage("checkpoint and random_weights exclude each other");
  options.tokenizer = text_or_nothing(from.tokenizer);
  options.chat_template = text_or_nothing(from.chat_template);
  options.cache.memory_bytes = from.cache_memory;
  options.cache.folder = text_or_nothing(from.cache_folder);
  options.cache.disk_bytes = from.cache_disk > 0 ? from.cache_disk : kCacheDisk;
  if (!options.cache.folder.empty() && from.cache_memory == 0)
    wrong_usage("what goes to cache_folder comes from memory, and cache_memory is 0");
  return options;
}

Json conversation_of(const char* json) {
  need(json);
  Json input = parse_json(json, "the conversation");
  if (input.is_array()) return {{"messages", std::move(input)}};
  if (!input.is_object() || !input.contains("messages"))
    bad_input("the conversation is neither a list of messages nor an object with messages");
  return input;
}

Sampling sampling_of(const ac_sampling& from) {
  return {from.temperature, from.top_k, from.top_p, from.min_p, from.seed};
}
Penalties penalties_of(const ac_sampling& from) {
  return {from.repeat_penalty, from.presence_penalty, from.frequency_penalty};
}

ac_sampling default_sampling(const LoadedModel& model) {
  const text::GenerationConfig& config = model.text().generation_config();
  const Choosing choosing = choose({.temperature = 1}, config);  // which says all else, too
  const Sampling& drawn = choosing.sampling;
  const Penalties& penalties = choosing.penalties;
  return {.temperature = choose({}, config).sampling.temperature,
          .top_k = drawn.top_k,
          .top_p = drawn.top_p,
          .min_p = drawn.min_p,
          .seed = drawn.seed,
          .repeat_penalty = penalties.repeat,
          .presence_penalty = penalties.presence,
          .frequency_penalty = penalties.frequency};
}

TextRequest request_of(const LoadedModel& model, const ac_request& from) {
  const ac_sampling sampling = from.sampling != nullptr ? *from.sampling : default_sampling(model);
  TextRequest request{.ids = ids_of(from.ids, from.count),
                      .continues = from.is_conversation == 0,
                      .max_new_tokens = model.text().generation_config().max_new_tokens,
                      .sampling = sampling_of(sampling),
                      .penalties = penalties_of(sampling)};
  if (from.max_new_tokens < 0) wrong_usage("max_new_tokens is below 0");
  if (from.max_new_tokens > 0) request.max_new_tokens = from.max_new_tokens;
  if (from.stop_count > 0) need(from.stop);
  for (std::size_t i = 0; i < from.stop_count; ++i) {
    need(from.stop[i]);
    request.stop.emplace_back(from.stop[i]);
    if (request.stop.back().empty()) wrong_usage("a text to stop at is empty");
  }
  return request;
}

ac_finish finish_of(const std::string& finish) {
  return finish == "stop"     ? AC_FINISH_STOP
         : finish == "length" ? AC_FINISH_LENGTH
                              : AC_FINISH_INTERRUPTED;
}

}  // namespace
}  // namespace ac

using ac::guarded;
using ac::with_model;

extern "C" {

const char* ac_version(void) { return AC_VERSION; }

const char* ac_last_error(void) { return ac::last_error.c_str(); }

void ac_free(void* what) { std::free(what); }

ac_status ac_load(const char* package, const ac_load_options* options, ac_model** model) {
  return guarded([&] {
    ac::need(package, model);
    ac::LoadedModel::Options with =
        ac::options_of(options != nullptr ? *options : ac_load_options{});
    ac::require_package(package);
    *model = ac::Handles::ours().add(std::make_shared<ac::LoadedModel>(package, std::move(with)));
  });
}

ac_status ac_close(ac_model* model) {
  if (model == nullptr) return AC_OK;
  return guarded([&] {
    const std::shared_ptr<ac::LoadedModel> open = ac::Handles::ours().find(model);
    open->stop();
    const ac::LoadedModel::Use use(*open);
    ac::Handles::ours().remove(model);
  });
}

ac_status ac_describe(ac_model* model, ac_properties* properties) {
  return guarded([&] {
    ac::need(properties);
    const auto open = ac::Handles::ours().find(model);
    *properties = {.vocabulary = open->program().vocab,
                   .max_context = open->program().max_context,
                   .has_tokenizer = open->has_text(),
                   .has_chat_template = open->has_text() && open->text().has_chat_template(),
                   .device = {}};
    open->device().copy(properties->device, sizeof properties->device - 1);
  });
}

ac_status ac_tokenize(ac_model* model, const char* text, size_t bytes, unsigned flags,
                      int64_t** ids, size_t* count) {
  return guarded([&] {
    ac::need(text, ids, count);
    if ((flags & ~(AC_ADD_SPECIAL | AC_PARSE_SPECIAL)) != 0)
      ac::wrong_usage("the flags {} are unknown", flags);
    const auto open = ac::Handles::ours().find(model);
    const auto found = open->text().tokenizer().encode(
        {text, bytes}, {.add_special = (flags & AC_ADD_SPECIAL) != 0,
                        .parse_special = (flags & AC_PARSE_SPECIAL) != 0});
    ac::give(std::vector<std::int64_t>(found.begin(), found.end()), ids, count);
  });
}

ac_status ac_detokenize(ac_model* model, const int64_t* ids, size_t count, int with_special,
                        char** text, size_t* bytes) {
  return guarded([&] {
    ac::need(text, bytes);
    const auto open = ac::Handles::ours().find(model);
    const ac::text::Tokenizer& tokenizer = open->text().tokenizer();
    std::vector<ac::text::TokenId> narrow;
    for (const std::int64_t id : ac::ids_of(ids, count)) {
      if (!std::in_range<ac::text::TokenId>(id)) ac::bad_input("{} is no token's id", id);
      narrow.push_back(static_cast<ac::text::TokenId>(id));
    }
    ac::give(tokenizer.decode(narrow, with_special == 0), text, bytes);
  });
}

ac_status ac_chat_ids(ac_model* model, const char* json, int64_t** ids, size_t* count) {
  return guarded([&] {
    ac::need(ids, count);
    const auto open = ac::Handles::ours().find(model);
    ac::give(open->text().chat_prompt(ac::conversation_of(json)).ids, ids, count);
  });
}

ac_status ac_chat_text(ac_model* model, const char* json, char** text, size_t* bytes) {
  return guarded([&] {
    ac::need(text, bytes);
    const auto open = ac::Handles::ours().find(model);
    ac::give(open->text().chat_text(ac::conversation_of(json)), text, bytes);
  });
}

ac_status ac_default_sampling(ac_model* model, ac_sampling* sampling) {
  return guarded([&] {
    ac::need(sampling);
    *sampling = ac::default_sampling(*ac::Handles::ours().find(model));
  });
}

ac_status ac_generate(ac_model* model, const ac_request* request, ac_on_piece on_piece,
                      void* context, ac_answer* answer) {
  return with_model(model, [&](ac::LoadedModel& open) {
    ac::need(request, answer);
    const ac::TextAnswer made =
        open.answer(ac::request_of(open, *request), [&](const ac::TextPiece& piece) {
          const ac_piece shown{piece.text.c_str(), piece.text.size(), piece.token};
          return on_piece == nullptr || on_piece(context, &shown) == 0;
        });
    ac_answer result{.text = nullptr,
                     .bytes = 0,
                     .ids = nullptr,
                     .count = 0,
                     .finish = ac::finish_of(made.finish),
                     .prompt_tokens = made.prompt_tokens,
                     .cached_tokens = made.cached,
                     .first_token_seconds = made.first_token_seconds,
                     .token_seconds = made.token_seconds};
    ac::give(made.ids, &result.ids, &result.count);
    ac::give(made.text, &result.text, &result.bytes);
    *answer = result;
  });
}

void ac_free_answer(ac_answer* answer) {
  if (answer == nullptr) return;
  std::free(answer->text);
  std::free(answer->ids);
  *answer = {};
}

ac_status ac_stop(ac_model* model) {
  return guarded([&] { ac::Handles::ours().find(model)->stop(); });
}

ac_status ac_append(ac_model* model, const int64_t* ids, size_t count) {
  return with_model(model, [&](ac::LoadedModel& open) { open.append(ac::ids_of(ids, count)); });
}

ac_status ac_position(ac_model* model, int64_t* tokens) {
  return with_model(model, [&](ac::LoadedModel& open) {
    ac::need(tokens);
    *tokens = open.position();
  });
}

ac_status ac_truncate(ac_model* model, int64_t tokens) {
  return with_model(model, [&](ac::LoadedModel& open) { open.truncate(tokens); });
}

ac_status ac_logits(ac_model* model, float* logits, size_t count) {
  return with_model(model, [&](ac::LoadedModel& open) {
    ac::need(logits);
    if (std::cmp_not_equal(count, open.program().vocab))
      ac::wrong_usage("there are {} logits, and room for {}", open.program().vocab, count);
    std::ranges::transform(open.logits(), logits,
                           [](double logit) { return static_cast<float>(logit); });
  });
}

ac_status ac_choose(ac_model* model, const ac_sampling* sampling, int64_t* id) {
  return with_model(model, [&](ac::LoadedModel& open) {
    ac::need(id);
    if (sampling != nullptr && !ac::penalties_of(*sampling).none())
      ac::wrong_usage("penalties are for ac_generate(), which knows the text that they are about");
    *id = open.choose(sampling != nullptr ? ac::sampling_of(*sampling) : ac::Sampling{});
  });
}

ac_status ac_save(ac_model* model, void** state, size_t* bytes) {
  return with_model(model, [&](ac::LoadedModel& open) {
    ac::need(state, bytes);
    const std::string saved = open.save();
    *state = ac::given(std::span<const char>(saved));
    *bytes = saved.size();
  });
}

ac_status ac_restore(ac_model* model, const void* state, size_t bytes) {
  return with_model(model, [&](ac::LoadedModel& open) {
    ac::need(state);
    open.restore({static_cast<const char*>(state), bytes});
  });
}

}  // extern "C"
