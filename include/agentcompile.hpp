// The same for C++17: handles that close themselves, and errors that are thrown. All else is as
// agentcompile.h says.
#ifndef AGENTCOMPILE_HPP
#define AGENTCOMPILE_HPP

#include <agentcompile.h>

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace agentcompile {

class Error : public std::runtime_error {
 public:
  explicit Error(ac_status status) : std::runtime_error(ac_last_error()), status_(status) {}
  ac_status status() const { return status_; }

 private:
  ac_status status_;
};

using Ids = std::vector<int64_t>;

struct Answer {
  std::string text;
  Ids ids;
  ac_finish finish = AC_FINISH_STOP;
  int64_t prompt_tokens = 0, cached_tokens = 0;
  double first_token_seconds = 0, token_seconds = 0;
};

struct Request {
  Ids ids;
  int64_t max_new_tokens = 0;
  const ac_sampling* sampling = nullptr;
  std::vector<std::string> stop = {};
  bool is_conversation = false;
};

class Model {
 public:
  // Whether the answer goes on. What it throws ends the answer, and comes out of generate().
  using OnPiece = std::function<bool(std::string_view text, int64_t token)>;

  explicit Model(const std::string& package, const ac_load_options& options = {}) {
    ac_model* model = nullptr;
    check(ac_load(package.c_str(), &options, &model));
    model_.reset(model);
  }
  ac_model* get() const { return model_.get(); }
  // Stops an answer that is being made, and waits for its end. The model is of no use then.
  void close() { check(ac_close(model_.release())); }

  ac_properties properties() const {
    ac_properties properties;
    check(ac_describe(get(), &properties));
    return properties;
  }
  ac_sampling default_sampling() const {
    ac_sampling sampling;
    check(ac_default_sampling(get(), &sampling));
    return sampling;
  }
  Ids tokenize(std::string_view text, unsigned flags = AC_ADD_SPECIAL) const {
    const char* const from = text.empty() ? "" : text.data();
    return taken<Ids>(ac_tokenize, from, text.size(), flags);
  }
  std::string detokenize(const Ids& ids, bool with_special = false) const {
    return taken<std::string>(ac_detokenize, ids.data(), ids.size(), with_special);
  }
  Ids chat_ids(const std::string& json) const { return taken<Ids>(ac_chat_ids, json.c_str()); }
  std::string chat_text(const std::string& json) const {
    return taken<std::string>(ac_chat_text, json.c_str());
  }

  Answer generate(const Request& request, const OnPiece& on_piece = {}) {
    struct Heard {
      const OnPiece& on_piece;
      std::exception_ptr thrown;
    } heard{on_piece, nullptr};
    const auto hear = [](void* context, const ac_piece* piece) -> int {
      auto& to = *static_cast<Heard*>(context);
      try {
        return to.on_piece && !to.on_piece({piece->text, piece->bytes}, piece->token);
      } catch (...) {
        to.thrown = std::current_exception();
        return 1;
      }
    };
    std::vector<const char*> stop;
    for (const std::string& text : request.stop) stop.push_back(text.c_str());
    const ac_request asked = {request.ids.data(),     request.ids.size(), request.max_new_tokens,
                              request.sampling,       stop.data(),        stop.size(),
                              request.is_conversation};
    ac_answer made = {};
    check(ac_generate(get(), &asked, hear, &heard, &made));
    const std::unique_ptr<ac_answer, void (*)(ac_answer*)> freed(&made, ac_free_answer);
    if (heard.thrown) std::rethrow_exception(heard.thrown);
    return {{made.text, made.bytes},
            {made.ids, made.ids + made.count},
            made.finish,
            made.prompt_tokens,
            made.cached_tokens,
            made.first_token_seconds,
            made.token_seconds};
  }
  void stop() { check(ac_stop(get())); }

  void append(const Ids& ids) { check(ac_append(get(), ids.data(), ids.size())); }
  int64_t position() const {
    int64_t tokens = 0;
    check(ac_position(get(), &tokens));
    return tokens;
  }
  void truncate(int64_t tokens) { check(ac_truncate(get(), tokens)); }
  std::vector<float> logits() const {
    std::vector<float> logits(static_cast<std::size_t>(properties().vocabulary));
    check(ac_logits(get(), logits.data(), logits.size()));
    return logits;
  }
  int64_t choose(const ac_sampling* sampling = nullptr) const {
    int64_t id = 0;
    check(ac_choose(get(), sampling, &id));
    return id;
  }
  std::string save() const {
    void* state = nullptr;
    std::size_t bytes = 0;
    check(ac_save(get(), &state, &bytes));
    const std::unique_ptr<void, void (*)(void*)> freed(state, ac_free);
    return {static_cast<const char*>(state), bytes};
  }
  void restore(std::string_view state) { check(ac_restore(get(), state.data(), state.size())); }

 private:
  struct Close {
    void operator()(ac_model* model) const { ac_close(model); }
  };

  static void check(ac_status status) {
    if (status != AC_OK) throw Error(status);
  }
  // What a function gives by its last two pointers.
  template <class Container, class Function, class... Arguments>
  Container taken(Function function, Arguments... arguments) const {
    typename Container::value_type* values = nullptr;
    std::size_t count = 0;
    check(function(get(), arguments..., &values, &count));
    const std::unique_ptr<void, void (*)(void*)> freed(values, ac_free);
    return Container(values, values + count);
  }

  std::unique_ptr<ac_model, Close> model_;
};

}  // namespace agentcompile

#endif
