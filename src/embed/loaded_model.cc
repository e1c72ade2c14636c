#include "embed/loaded_model.h"

#include <algorithm>
#include <cstring>

#include "answer/package_text.h"
#include "base/error.h"
#include "base/warning.h"
#include "build/digest.h"

namespace ac {
namespace {

// What begins a saved state.
struct StateHeader {
  static constexpr std::string_view kKind = "agentcompile state 1\n";
  static constexpr std::size_t kDigest = 64;

  char kind[kKind.size()];
  char model[kDigest], content[kDigest];  // SHA-256, in hexadecimal
  std::int64_t tokens;
};

void copy_to(auto& field, std::string_view text) {
  AC_ASSERT(text.size() == sizeof field);
  std::memcpy(field, text.data(), text.size());
}

template <std::size_t size>
bool same(const char (&field)[size], std::string_view text) {
  return std::string_view(field, size) == text;
}

std::filesystem::path text_folder(const LoadedModel::Options& options, const std::string& package) {
  if (options.tokenizer.empty()) return text_of_package(package);
  if (!std::filesystem::exists(options.tokenizer / "tokenizer.json"))
    bad_input("no tokenizer in {}: there is no tokenizer.json", options.tokenizer.string());
  return options.tokenizer;
}

}  // namespace

LoadedModel::LoadedModel(const std::string& package, Options options)
    : package_(choose_package(package, options.engine.device)), options_(std::move(options)) {
  // What can be wrong with texts is said before gigabytes of weights are read.
  reading_whole(package_, [&] {
    if (const auto folder = text_folder(options_, package_); !folder.empty())
      text_ = std::make_unique<ModelText>(
          ModelText::Source{.folder = folder, .chat_template = options_.chat_template});
  });
  reading_whole(package_, [&] { opened_ = options_.engine.open(package_); });
  const Environment environment = read_environment();
  turns_.emplace(environment.cache.empty() ? std::filesystem::path()
                                           : turns_file(builder_options(environment).cache,
                                                        opened_.device->info().sm > 0));
  if (!text_) return;
  Answerer::MakeCache make_cache;
  if (options_.cache.memory_bytes > 0)
    make_cache = [this](Engine& engine) {
      return std::make_unique<PrefixCache>(engine, options_.cache, identity());
    };
  answerer_ = std::make_unique<Answerer>(*text_, *opened_.engine, *turns_, std::move(make_cache));
}

LoadedModel::Use::Use(LoadedModel& model) : model_(model) {
  if (model.user_ == std::this_thread::get_id())
    wrong_usage("a callback cannot use the model that it is called for");
  model.busy_.lock();
  model.user_ = std::this_thread::get_id();
}

LoadedModel::Use::~Use() {
  model_.user_ = std::thread::id();
  model_.busy_.unlock();
}

const ModelText& LoadedModel::text() const {
  if (!text_)
    bad_input("no tokenizer in {}: name a folder that has one, or use token ids", package_);
  return *text_;
}

std::string LoadedModel::identity() {
  if (identity_.empty())
    identity_ = fmt::format("{} on {}", options_.engine.identity_of(*opened_.engine), device());
  return identity_;
}

TextAnswer LoadedModel::answer(const TextRequest& request,
                               const std::function<bool(const TextPiece&)>& on_piece) {
  text();
  stopped_ = false;
  check(request, *text_, answerer_->program());
  if (stepping_) opened_.engine->reset();
  stepping_ = likeliest_is_chosen_ = false;
  return answerer_->answer(
      request,
      [&](const TextPiece& piece) {
        if (!on_piece(piece)) stopped_ = true;
      },
      [&] { return stopped_.load(); });
}

// What a cache wants of the last prompt, it takes before the sequence becomes another one.
Engine& LoadedModel::begin_steps() {
  if (!stepping_ && answerer_) answerer_->keep();
  stepping_ = true;
  likeliest_is_chosen_ = false;
  return *opened_.engine;
}

void LoadedModel::append(const std::vector<std::int64_t>& ids) {
  const TimingTurn::Turn turn = turns_->answer();
  Engine& engine = begin_steps();
  engine.sample({});
  if (ids.size() == 1)
    engine.decode(ids[0]);
  else
    engine.prefill(ids);
  likeliest_is_chosen_ = !ids.empty();
}

void LoadedModel::truncate(std::int64_t tokens) { begin_steps().truncate(tokens); }

std::int64_t LoadedModel::choose(const Sampling& sampling) const {
  check(sampling);
  if (sampling.is_greedy() && likeliest_is_chosen_) return opened_.engine->chosen();
  return choose_token(logits(), sampling, position());
}

std::string LoadedModel::save() {
  Engine& engine = *opened_.engine;
  const std::int64_t tokens = position(), step = program().longest_step();
  if (!engine.holds(0, tokens))
    bad_input(
        "{} tokens cannot be saved: a layer that sees the last ones only has forgotten others",
        tokens);
  StateHeader header{};
  header.tokens = tokens;
  std::string state(sizeof header, '\0');
  for (std::int64_t at = 0; at < tokens; at += step) {
    const std::int64_t end = std::min(at + step, tokens);
    const auto piece =
        opened_.device->allocate(std::max<std::size_t>(engine.piece_bytes(end - at), 1));
    engine.save(at, end, *piece);
    const std::size_t before = state.size();
    state.resize(before + engine.piece_bytes(end - at));
    opened_.device->download(std::as_writable_bytes(std::span(state).subspan(before)),
                             piece->address());
  }
  copy_to(header.kind, StateHeader::kKind);
  copy_to(header.model, sha256(identity()));
  copy_to(header.content, sha256(std::string_view(state).substr(sizeof header)));
  std::memcpy(state.data(), &header, sizeof header);
  return state;
}

void LoadedModel::restore(std::string_view state) {
  StateHeader header{};
  const auto damaged = [] { bad_input("the state is no saved one, or it is damaged"); };
  if (state.size() < sizeof header) damaged();
  std::memcpy(&header, state.data(), sizeof header);
  state.remove_prefix(sizeof header);
  if (!same(header.kind, StateHeader::kKind) || !same(header.content, sha256(state))) damaged();
  if (!same(header.model, sha256(identity())))
    bad_input("the state was saved with another package, other weights or another device");
  Engine& engine = begin_steps();
  engine.reset();
  const std::int64_t step = program().longest_step();
  for (std::int64_t at = 0; at < header.tokens; at += step) {
    const std::int64_t tokens = std::min(step, header.tokens - at);
    const std::size_t bytes = engine.piece_bytes(tokens);
    if (state.size() < bytes) damaged();
    const auto piece = opened_.device->allocate(std::max<std::size_t>(bytes, 1));
    opened_.device->upload(piece->address(), std::as_bytes(std::span(state.substr(0, bytes))));
    engine.append(*piece, tokens);
    state.remove_prefix(bytes);
  }
}

}  // namespace ac
