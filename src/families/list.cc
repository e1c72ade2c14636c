#include "families/list.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

template <class Task>
Match<Task> match_one(const Body& body) {
  if constexpr (!requires(Task task) { task.op.argmax; })
    if (body.argmax()) return "it has no argmax";
  return Task::match(body);
}

template <class Task>
const char* why_one_illegal(const Implementation<Task>& made, const DeviceInfo& device) {
  const char* const reason = made.task.why_illegal(made.plan, device);
  return reason ? reason : why_too_much(made.task.footprint(made.plan, device), device);
}

}  // namespace

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  RegionFamilies::each([&]<class Task>() { names.push_back(Task::family); });
  return names;
}

void check_families(const std::vector<std::string>& families) {
  const std::vector<std::string_view> known = family_names();
  for (const std::string& family : families)
    if (std::ranges::find(known, family) == known.end())
      wrong_usage("there is no kernel family {}: there are {}", quote(family),
                  fmt::join(known, ", "));
}

const char* why_left_out_on_host(std::string_view family) {
  const char* why = nullptr;
  RegionFamilies::each([&]<class Task>() {
    if constexpr (requires { Task::left_out_on_host; })
      if (Task::family == family) why = Task::left_out_on_host;
  });
  return why;
}

bool computes_few_as_one(std::string_view family) {
  bool does = false;
  RegionFamilies::each([&]<class Task>() {
    if constexpr (requires { Task::few_as_one; }) does = does || Task::family == family;
  });
  return does;
}

std::vector<FamilyMatch> match_families(const StepGraph& step, const Wanted& wanted,
                                        const Bindings& at) {
  const Body body(step, wanted.region, at, wanted.argmax);
  std::vector<FamilyMatch> matches;
  RegionFamilies::each([&]<class Task>() {
    Match<Task> match = match_one<Task>(body);
    if (auto* matched = std::get_if<Matched<Task>>(&match))
      matches.push_back({Task::family, AnyMatched(std::move(*matched))});
    else
      matches.push_back({Task::family, std::get<std::string>(std::move(match))});
  });
  return matches;
}

std::optional<AnyMatched> match_again(const Choice& choice, const StepGraph& step,
                                      const Wanted& wanted, const Bindings& at) {
  const Body body(step, wanted.region, at, wanted.argmax);
  return std::visit(
      [&]<class Task>(const Implementation<Task>&) -> std::optional<AnyMatched> {
        if constexpr (RegionFamily<Task>) {
          Match<Task> match = match_one<Task>(body);
          if (auto* matched = std::get_if<Matched<Task>>(&match)) return std::move(*matched);
        }
        return std::nullopt;
      },
      choice);
}

Choice with_plan_of(const Choice& choice, const AnyMatched& matched) {
  return std::visit(
      [&]<class Task>(const Implementation<Task>& made) -> Choice {
        return Implementation<Task>{std::get<Matched<Task>>(matched).task, made.plan};
      },
      choice);
}

std::string_view family_of(const Choice& choice) {
  return std::visit([](const auto& made) { return made.task.family; }, choice);
}
std::string id_of(const Choice& choice) {
  IdText id;
  std::visit(
      [&](const auto& made) {
        id.add("{}/", made.task.family);
        made.task.write_id(made.plan, id);
      },
      choice);
  return id.take();
}
std::string kind_of(const Choice& choice) {
  return std::visit(
      [](const auto& made) {
        return fmt::format("{} {}", made.task.family, made.task.kind(made.plan));
      },
      choice);
}
std::string op_text(const Choice& choice) {
  return std::visit([](const auto& made) { return cpp_of(made.task.op); }, choice);
}
std::string plan_text(const Choice& choice) {
  return std::visit([](const auto& made) { return cpp_of(made.plan); }, choice);
}
std::vector<PlanField> plan_fields(const Choice& choice) {
  std::vector<PlanField> fields;
  std::visit(
      [&](const auto& made) {
        each_field(made.plan, [&](std::string_view name, const auto& value) {
          if (is_left_out(name, value)) return;
          fields.push_back({std::string(name), field_value(value)});
        });
      },
      choice);
  return fields;
}
std::vector<PlanField> unsaid_fields(const Choice& choice) {
  std::vector<PlanField> fields;
  IdText id(&fields);
  std::visit([&](const auto& made) { made.task.write_id(made.plan, id); }, choice);
  std::ranges::sort(fields, {}, &PlanField::name);
  return fields;
}

std::optional<Choice> alone_of(const Choice& choice) {
  return std::visit(
      []<class Task>(const Implementation<Task>& made) -> std::optional<Choice> {
        if constexpr (requires { Task::alone(made.plan); })
          if (made.plan.tokens > 1) return Implementation<Task>{made.task, Task::alone(made.plan)};
        return std::nullopt;
      },
      choice);
}
std::string order_of(const Choice& choice) {
  return std::visit(
      []<class Task>(const Implementation<Task>& made) -> std::string {
        if constexpr (requires { Task::alone(made.plan); })
          return fmt::format("{} {} of {}x{} {}", Task::family, cpp_of(made.task.op), made.task.n,
                             made.task.k, cpp_of(made.plan.order(made.task.op, made.task.k)));
        return "";
      },
      choice);
}

const char* why_illegal(const Choice& choice, const DeviceInfo& device) {
  return std::visit([&](const auto& made) { return why_one_illegal(made, device); }, choice);
}
Footprint footprint(const Choice& choice, const DeviceInfo& device) {
  return std::visit([&](const auto& made) { return made.task.footprint(made.plan, device); },
                    choice);
}
Cost predict(const Choice& choice, const DeviceInfo& device) {
  return std::visit([&](const auto& made) { return made.task.cost(made.plan, device); }, choice);
}
Extent extent_of(const Choice& choice) {
  return std::visit([](const auto& made) { return made.task.extent(made.plan); }, choice);
}

Generated generate(const StepGraph& step, const Choice& choice, const AnyMatched& matched,
                   const Setting& setting) {
  return std::visit(
      [&]<class Task>(const Implementation<Task>& made) {
        return made.task.lower({step, setting}, made.plan,
                               std::get<Matched<Task>>(matched).operands);
      },
      choice);
}

Generated generate_for(const StepGraph& step, const std::optional<Wanted>& wanted,
                       const Choice& choice, const Bindings& at, const Setting& setting) {
  if (!wanted) {
    const auto& [task, plan] = std::get<Implementation<SamplingTask>>(choice);
    return task.lower({step, setting}, plan, {step.graph.outputs.at(0).node});
  }
  // Equal regions match alike.
  return generate(step, choice, match_again(choice, step, *wanted, at).value(), setting);
}

}  // namespace ac
