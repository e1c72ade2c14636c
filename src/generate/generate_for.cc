#include "generate/generate_for.h"

#include "base/error.h"

namespace ac {

Generated generate_for(const StepGraph& step, const std::optional<Wanted>& wanted,
                       const Choice& choice, const Bindings& at, const Setting& setting) {
  if (!wanted)
    return generate_sampling(step, std::get<Implementation<SamplingTask>>(choice),
                             step.graph.outputs.at(0).node, setting);
  for (const FamilyMatch& found : match_families(step, *wanted, at))
    if (const auto* matched = std::get_if<Matched>(&found.match))
      if (found.family == family_of(choice))
        return generate(step, choice, matched->operands, setting);
  AC_UNREACHABLE();  // equal regions match alike
}

}  // namespace ac
