#include "advise/prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "advise/fields.h"
#include "advise/limits.h"
#include "advise/plain_text.h"
#include "base/text.h"
#include "build/digest.h"

namespace ac {
namespace {

constexpr std::size_t kShown = 24;       // candidates
constexpr std::size_t kMaxName = 80;     // bytes of a name from a model's files
constexpr std::size_t kMaxReason = 160;  // bytes of a reason

constexpr std::string_view kTask =
    R"(You advise a compiler that turns a language model into CUDA kernels. Below is one region of the
model's step and the space of kernels that the compiler has enumerated for it: instances of tested
templates, each a family and a plan (tile sizes, threads, buffering). The compiler builds, validates
and times them itself, but only a few: your advice says which to try first. You write no code.
)";

constexpr std::string_view kReply = R"(
## Reply

One JSON object and nothing else:

{{"label": "what the region computes, in a few words",
 "order": ["candidate id", "another"],
 "hints": [{{"candidate": "candidate id", "set": [{{"field": "threads", "value": "256"}}], "why": ""}}],
 "risks": [{{"candidate": "candidate id", "note": "", "validate_more": true}}],
 "fusions": [{{"option": "A", "opinion": "prefer", "why": ""}}]}}

- order: at most {} ids of this region's candidates, the one to try first in front. Ids may also name
  legal plans that are not listed above.
- hints: at most {}. A listed candidate with some fields changed. The result must be a legal plan: the
  values of its family's fields are above. Nothing else can be set. What an id leaves out has the
  value that its family's last line gives; a hint that sets it to that changes nothing.
- risks: at most {}. What could make a candidate wrong, or "*" for all. validate_more asks for more
  validation; less is not possible.
- fusions: at most {}. Of the options above, if there are any: "prefer" one, or "avoid" some.
- Every key must be there; lists may be empty. Texts are cut after {} bytes.
)";

std::string name(std::string_view text) { return quote(plain_text(text, kMaxName)); }

std::string layout_text(const Layout& layout) {
  std::string text(to_string(layout.placement));
  if (layout.placement == Placement::strided) text += " " + to_string(layout.strides);
  if (layout.offset != Dim(0)) text += " offset " + layout.offset.str();
  return text;
}

// "bf16[6144, 2048]", with the name in the checkpoint where it has one.
std::string parameter_text(const Question& question, const Parameter& parameter) {
  std::string text = fmt::format("  {:<6} {:<10} {}, {}", parameter.name, to_string(parameter.role),
                                 to_string(parameter.type), layout_text(parameter.layout));
  if (!parameter.format.empty()) text += fmt::format(", stored in {}", parameter.format);
  if (parameter.immediate) text += fmt::format(", always {}", *parameter.immediate);
  if (parameter.state >= 0) return text + ", a KV cache\n";
  text += fmt::format(", {} bytes", parameter.bytes.str());
  const Node& stored = question.step->graph[parameter.storage];
  if (stored.op == Op::weight) text += " " + name(stored.text("key"));
  return text + "\n";
}

std::string region_text(const Question& question) {
  const Region& region = question.wanted.region;
  std::string text = fmt::format("\n## Region\n\nops: {}\n", ops_text(question.wanted));
  text +=
      fmt::format("kind: {}; dominated by {}, {} access; {}, sums in {}\n",
                  to_string(region.category), info(region.dominant).name, to_string(region.access),
                  short_name(region.dtype), short_name(region.accumulation));
  if (question.wanted.argmax)
    text += "besides its results, the index of the largest one is wanted (the next token)\n";
  if (!region.module.empty()) text += fmt::format("module: {}\n", name(region.module));
  text += fmt::format("{} step of T = {} new tokens after P = {} cached ones; {} equal regions\n",
                      question.phase, question.at.T, question.at.P, question.uses);
  text +=
      fmt::format("share of the step's predicted time, together: {:.1f} %\n", 100 * question.share);
  text += "interface:\n";
  for (const auto* list : {&region.inputs, &region.outputs, &region.states})
    for (const Parameter& parameter : *list) text += parameter_text(question, parameter);
  return text;
}

std::string roofline_text(const Question& question) {
  const DeviceInfo& device = question.device;
  const Amount work = evaluate(question.wanted.region.work, question.at);
  const bool half = question.wanted.region.dtype != DType::f32;
  const double peak = half ? device.tensor_flops : device.flops;
  const double memory = double(work.bytes()) / device.bandwidth,
               compute = double(work.flops) / peak;
  std::string text = fmt::format(
      "\n## Work and device\n\n"
      "work: {} FLOPs; {} bytes ({} weights, {} activations, {} state); {:.3f} FLOPs a byte\n",
      work.flops, work.bytes(), work.weight_bytes, work.activation_bytes, work.state_bytes,
      work.intensity());
  text += fmt::format(
      "device: {} ({}), {} SMs; an SM: {} registers, {} threads, {} blocks, {} bytes shared;"
      " a block: {} bytes shared\n",
      device.target, device.name, device.multiprocessors, device.registers, device.threads,
      device.blocks, device.shared_bytes, device.max_shared_bytes);
  text += fmt::format(
      "memory: {:.0f} GB/s, {:.2f} us latency, {} MiB L2; asynchronous copies: {}, bulk copies: "
      "{}\n",
      device.bandwidth / 1e9, device.latency * 1e6, device.l2_bytes >> 20,
      device.async_copies ? "yes" : "no", device.bulk_copies ? "yes" : "no");
  text += fmt::format("arithmetic: {:.1f} TFLOP/s float32, {:.0f} on tensor cores\n",
                      device.flops / 1e12, device.tensor_flops / 1e12);
  text += fmt::format(
      "roofline: about {:.2f} us, of them {:.2f} for the launch; {} bound (balance at {:.0f} "
      "FLOPs a byte)\n",
      (device.launch + std::max(memory, compute)) * 1e6, device.launch * 1e6,
      compute > memory ? "compute" : "memory", peak / device.bandwidth);
  return text;
}

// "  ids leave out: signal entry, split 1": so that no hint asks for what is there already.
std::string unsaid_text(const FamilyFields& family, const Choice& choice) {
  std::string text;
  for (const PlanField& field : unsaid_fields(choice)) {
    const auto values = family.values.find(field.name);
    if (values == family.values.end() || values->second.size() == 1) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "  ids leave out: " : ", ", field.name, field.value);
  }
  return text.empty() ? text : text + "\n";
}

std::string families_text(const Question& question) {
  std::string text = "\n## Families and the legal values of their fields\n\n";
  for (const FamilyFields& family : legal_values(question.legal)) {
    const auto example =
        std::find_if(question.legal.begin(), question.legal.end(),
                     [&](const Candidate& c) { return family_of(c.choice) == family.family; });
    text += fmt::format("{}: {} legal plans; computes {}\n", family.family, family.candidates,
                        op_text(example->choice));
    for (const auto& [field, values] : family.values) {
      text += fmt::format("  {}:", field);
      for (const std::string& value : values) text += " " + value;
      text += values.size() == 1 ? " (fixed)\n" : "\n";
    }
    text += unsaid_text(family, example->choice);
  }
  for (const auto& [reason, count] : question.space.illegal)
    text += fmt::format("illegal here: {} plans, {}\n", count, plain_text(reason, kMaxReason));
  for (const Refusal& refusal : question.space.refusals)
    text += fmt::format("not {}: {}\n", refusal.family, quote(plain_text(refusal.why, kMaxReason)));
  return text;
}

std::string candidates_text(const Question& question) {
  const std::vector<Candidate>& candidates = question.space.candidates;
  // Of those that hardly differ, one.
  std::vector<std::size_t> shown = diverse_order(question.space);
  shown.resize(std::min(kShown, shown.size()));
  std::sort(shown.begin(), shown.end());
  std::string text = fmt::format(
      "\n## Candidates, by the compiler's cost model\n\n"
      "{} of {} legal plans are kept; the best {} of different outline:\n",
      candidates.size(), question.legal.size(), shown.size());
  for (const std::size_t i : shown) {
    const Candidate& candidate = candidates[i];
    text += fmt::format("  {:<42} {:>9.2f} us, occupancy {:.2f}, {} bound, risk {}\n", candidate.id,
                        candidate.cost.microseconds, candidate.cost.occupancy,
                        to_string(candidate.cost.limit), to_string(candidate.cost.risk));
  }
  if (question.fusions.empty()) return text;
  text += "\nWays to cut the neighbourhood of the region, | between kernels:\n";
  for (std::size_t i = 0; i < question.fusions.size(); ++i) {
    const FusionChoice& option = question.fusions[i];
    text += fmt::format("  {}: {}{}{}\n", static_cast<char>('A' + i), option.text,
                        option.microseconds ? fmt::format(", {:.2f} us", *option.microseconds)
                                            : ", partly without a kernel",
                        option.current ? " (now)" : "");
  }
  return text;
}

std::string tried_text(const Question& question) {
  if (question.tried.empty()) return {};
  std::string text =
      "\n## What was tried, and what became of it\n\n"
      "Say which plans to try instead: what is likely not to fail in the same way.\n";
  for (const Tried& tried : question.tried) {
    text += fmt::format("  {}: {}, predicted {:.2f} us", tried.candidate, tried.verdict,
                        tried.predicted);
    if (tried.measured) text += fmt::format(", measured {:.2f} us", *tried.measured);
    if (!tried.why.empty()) text += ", " + quote(plain_text(tried.why, kMaxReason));
    text += "\n";
  }
  return text;
}

std::string file_name(const Question& question, const std::string& hash) {
  const std::string ops = ops_text(question.wanted).substr(0, 60);
  std::string phase = question.phase;
  std::ranges::replace(phase, ' ', '-');
  return fmt::format("{}{}-{}-{}", phase, question.tried.empty() ? "" : "-diagnosis", ops,
                     hash.substr(0, 12));
}

}  // namespace

Prompt prompt_for(const Question& question) {
  Prompt prompt;
  prompt.text = std::string(kTask) + std::string(kQuotesAreData) + region_text(question) +
                roofline_text(question) + families_text(question) + candidates_text(question) +
                tried_text(question) +
                fmt::format(kReply, kMaxOrder, kMaxHints, kMaxRisks, kMaxFusions, kMaxNoteBytes);
  prompt.hash = sha256(prompt.text);
  prompt.diagnosis = !question.tried.empty();
  prompt.name = file_name(question, prompt.hash);
  return prompt;
}

const ReplyForm& advice_form() {
  static const Json schema = [] {
    const Json text{{"type", "string"}};
    const auto object = [](Json properties) {
      Json required = Json::array();
      for (const auto& [key, value] : properties.items()) required.push_back(key);
      return Json{{"type", "object"},
                  {"properties", std::move(properties)},
                  {"required", std::move(required)},
                  {"additionalProperties", false}};
    };
    const auto list = [](Json items) {
      return Json{{"type", "array"}, {"items", std::move(items)}};
    };
    const Json set = object({{"field", text}, {"value", text}});
    const Json opinion{{"type", "string"}, {"enum", {"prefer", "avoid"}}};
    return object(
        {{"label", text},
         {"order", list(text)},
         {"hints", list(object({{"candidate", text}, {"set", list(set)}, {"why", text}}))},
         {"risks",
          list(object(
              {{"candidate", text}, {"note", text}, {"validate_more", {{"type", "boolean"}}}}))},
         {"fusions", list(object({{"option", text}, {"opinion", opinion}, {"why", text}}))}});
  }();
  static const ReplyForm form{"give_advice",
                              "Gives advice on the kernels of one region.",
                              {"label", "order", "hints", "risks", "fusions"},
                              schema};
  return form;
}

}  // namespace ac
