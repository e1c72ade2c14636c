// agentcompile._engine: the library for Python. What it offers to people is
// python/agentcompile/llm.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <agentcompile.hpp>
#include <array>
#include <optional>

namespace nb = nanobind;

namespace {

using agentcompile::Ids;
using agentcompile::Model;

using Released = nb::call_guard<nb::gil_scoped_release>;

// As one of the classes in exceptions.py.
void raise(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const agentcompile::Error& error) {
    const nb::object classes = nb::module_::import_("agentcompile.exceptions").attr("BY_STATUS");
    PyErr_SetString(classes[nb::int_(static_cast<int>(error.status()))].ptr(), error.what());
  }
}

Model load(const std::string& package, const std::string& device, const std::string& checkpoint,
           std::optional<uint64_t> random_weights, const std::string& tokenizer,
           const std::string& chat_template, std::size_t cache_memory,
           const std::string& cache_folder, std::size_t cache_disk) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
  };
  ac_load_options options = {};
  options.device = or_null(device);
  options.checkpoint = or_null(checkpoint);
  options.random_weights = random_weights.has_value();
  options.seed = random_weights.value_or(0);
  options.tokenizer = or_null(tokenizer);
  options.chat_template = or_null(chat_template);
  options.cache_memory = cache_memory;
  options.cache_folder = or_null(cache_folder);
  options.cache_disk = cache_disk;
  return Model(package, options);
}

nb::tuple generate(Model& model, Ids ids, int64_t max_new_tokens, const ac_sampling& sampling,
                   std::vector<std::string> stop, bool is_conversation, const nb::callable& hear) {
  static constexpr std::array kFinish = {"stop", "length", "interrupted"};
  const agentcompile::Request request{std::move(ids), max_new_tokens, &sampling, std::move(stop),
                                      is_conversation};
  agentcompile::Answer answer;
  {
    const nb::gil_scoped_release released;
    answer = model.generate(request, [&](std::string_view text, int64_t token) {
      const nb::gil_scoped_acquire acquired;
      return nb::cast<bool>(hear(nb::str(text.data(), text.size()), token));
    });
  }
  return nb::make_tuple(answer.text, answer.ids, kFinish.at(answer.finish), answer.prompt_tokens,
                        answer.cached_tokens, answer.first_token_seconds, answer.token_seconds);
}

nb::ndarray<nb::numpy, float, nb::ndim<1>> logits(const Model& model) {
  auto* const values = new std::vector<float>;
  const nb::capsule owner(values,
                          [](void* at) noexcept { delete static_cast<std::vector<float>*>(at); });
  {
    const nb::gil_scoped_release released;
    *values = model.logits();
  }
  return {values->data(), {values->size()}, owner};
}

}  // namespace

NB_MODULE(_engine, module) {
  nb::register_exception_translator(raise);
  module.def("version", [] { return ac_version(); });

  nb::class_<ac_sampling> sampling(module, "Sampling");
  sampling.def(nb::init<>())
      .def_rw("temperature", &ac_sampling::temperature)
      .def_rw("top_k", &ac_sampling::top_k)
      .def_rw("top_p", &ac_sampling::top_p)
      .def_rw("min_p", &ac_sampling::min_p)
      .def_rw("seed", &ac_sampling::seed)
      .def_rw("repeat_penalty", &ac_sampling::repeat_penalty)
      .def_rw("presence_penalty", &ac_sampling::presence_penalty)
      .def_rw("frequency_penalty", &ac_sampling::frequency_penalty);

  nb::class_<Model>(module, "Model")
      .def(nb::new_(&load), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(),
           nb::arg(), nb::arg(), nb::arg(), Released())
      .def("close", &Model::close, Released())
      .def_prop_ro("vocabulary", [](const Model& model) { return model.properties().vocabulary; })
      .def_prop_ro("max_context", [](const Model& model) { return model.properties().max_context; })
      .def_prop_ro("device",
                   [](const Model& model) { return std::string(model.properties().device); })
      .def(
          "tokenize",
          [](const Model& model, const std::string& text, bool add_special, bool parse_special) {
            unsigned flags = 0;
            if (add_special) flags |= AC_ADD_SPECIAL;
            if (parse_special) flags |= AC_PARSE_SPECIAL;
            return model.tokenize(text, flags);
          },
          Released())
      .def("detokenize", &Model::detokenize, Released())
      .def("chat_ids", &Model::chat_ids, Released())
      .def("chat_text", &Model::chat_text, Released())
      .def("default_sampling", &Model::default_sampling)
      .def("generate", &generate)
      .def("stop", &Model::stop)
      .def("append", &Model::append, Released())
      .def_prop_ro("position", &Model::position, Released())
      .def("truncate", &Model::truncate, Released())
      .def("logits", &logits)
      .def(
          "choose", [](const Model& model, const ac_sampling& how) { return model.choose(&how); },
          Released())
      .def("save",
           [](const Model& model) {
             std::string state;
             {
               const nb::gil_scoped_release released;
               state = model.save();
             }
             return nb::bytes(state.data(), state.size());
           })
      .def("restore", [](Model& model, const nb::bytes& state) {
        const nb::gil_scoped_release released;
        model.restore({state.c_str(), state.size()});
      });
}
