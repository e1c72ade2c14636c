#include <fmt/format.h>

#include <algorithm>

#include "advise/advice.h"
#include "advise/fields.h"
#include "advise/find_object.h"
#include "advise/limits.h"
#include "advise/plain_text.h"
#include "advise/prompt.h"

namespace ac {
namespace {

constexpr std::size_t kMaxSaid = 160;  // bytes of an item that the audit repeats

// What an item comes to, or why it is rejected.
struct Judgement {
  bool accepted = false;
  std::string reason;
};
Judgement rejected(std::string why) { return {false, std::move(why)}; }
Judgement accepted(std::string what = {}) { return {true, std::move(what)}; }

std::string said(const Json& item) { return plain_text(item.dump(), kMaxSaid); }

std::string shown(const std::string& text) { return "\"" + plain_text(text, kMaxSaid) + "\""; }

// A field's value however it was written: "256", 256, true, "Ring::bulk_copy".
std::string value_text(const Json& value) {
  std::string text = value.is_string()    ? value.get<std::string>()
                     : value.is_boolean() ? (value.get<bool>() ? "true" : "false")
                                          : value.dump();
  if (const std::size_t scope = text.rfind("::"); scope != std::string::npos)
    text.erase(0, scope + 2);
  return text;
}

class Parser {
 public:
  explicit Parser(const Question& question) : question_(question) {}

  Advice run(std::string_view reply) {
    const std::vector<std::string_view>& keys = advice_form().keys;
    const FoundObject found = find_object(reply, keys);
    if (!found.object) {
      note("reply", plain_text(reply.substr(0, 2 * kMaxSaid), kMaxSaid), rejected(found.why));
      return std::move(advice_);
    }
    const Json& object = *found.object;
    for (const auto& [key, value] : object.items())
      if (std::ranges::find(keys, key) == keys.end())
        note(plain_text(key, 40), said(value), rejected("no key of a reply"));
    if (object.contains("label")) note("label", said(object["label"]), label(object["label"]));
    each(object, "order", kMaxOrder, [&](const Json& item) { return order(item); });
    each(object, "hints", kMaxHints, [&](const Json& item) { return hint(item); });
    each(object, "risks", kMaxRisks, [&](const Json& item) { return risk(item); });
    each(object, "fusions", kMaxFusions, [&](const Json& item) { return fusion(item); });
    return std::move(advice_);
  }

 private:
  void note(std::string item, std::string what, Judgement judgement) {
    advice_.audit.push_back({std::move(item), std::move(what), judgement.accepted,
                             plain_text(judgement.reason, kMaxNoteBytes)});
  }

  template <class Judge>
  void each(const Json& object, const char* key, std::size_t most, const Judge& judge) {
    if (!object.contains(key)) return;
    const Json& list = object[key];
    if (!list.is_array()) return note(key, said(list), rejected("not a list"));
    for (std::size_t i = 0; i < std::min(most, list.size()); ++i)
      note(fmt::format("{}[{}]", key, i), said(list[i]), judge(list[i]));
    if (list.size() > most)
      note(fmt::format("{}[{}..]", key, most), fmt::format("{} more", list.size() - most),
           rejected(fmt::format("more than {}", most)));
  }

  Judgement label(const Json& item) {
    if (!item.is_string()) return rejected("not a text");
    advice_.label = plain_text(item.get<std::string>(), kMaxNoteBytes);
    return accepted();
  }

  Judgement order(const Json& item) {
    if (!item.is_string()) return rejected("not a candidate's id");
    const Candidate* candidate = question_.find(item.get<std::string>());
    if (!candidate) return rejected("no candidate of this region");
    return add(*candidate, advice_.order.end());
  }

  // Each plan once: where it comes first.
  Judgement add(const Candidate& candidate, std::vector<Candidate>::iterator before) {
    for (const Candidate& known : advice_.order)
      if (known.id == candidate.id) return rejected("repeated: " + candidate.id);
    advice_.order.insert(before, candidate);
    return accepted(candidate.id);
  }

  // The candidate that an item names; or why it names none.
  const Candidate* named(const Json& item, Judgement& why) const {
    if (!item.is_object()) {
      why = rejected("not an object");
    } else if (!item.contains("candidate") || !item["candidate"].is_string()) {
      why = rejected("names no candidate");
    } else if (const Candidate* found = question_.find(item["candidate"].get<std::string>())) {
      return found;
    } else {
      why = rejected("no candidate of this region");
    }
    return nullptr;
  }

  Judgement hint(const Json& item) {
    Judgement why;
    const Candidate* base = named(item, why);
    if (!base) return why;
    if (!item.contains("set") || !item["set"].is_array()) return rejected("sets no fields");
    Fields fields = fields_of(base->choice), set;
    for (const Json& change : item["set"]) {
      if (!change.is_object() || !change.contains("field") || !change["field"].is_string() ||
          !change.contains("value") || change["value"].is_structured() || change["value"].is_null())
        return rejected("a change is no field with a value");
      const auto field = change["field"].get<std::string>(), value = value_text(change["value"]);
      if (fields.count(field) == 0)
        return rejected(fmt::format("{} has no field {}", family_of(base->choice), shown(field)));
      const auto [known, is_new] = set.emplace(field, value);
      if (!is_new && known->second != value)
        return rejected(fmt::format("contradicts itself: {} is {} and {}", field,
                                    shown(known->second), shown(value)));
    }
    for (const auto& [field, value] : set) fields[field] = value;
    return refined(*base, fields, set);
  }

  Judgement refined(const Candidate& base, const Fields& fields, const Fields& set) {
    if (fields == fields_of(base.choice)) return rejected("changes nothing");
    for (const Candidate& candidate : question_.legal) {
      if (family_of(candidate.choice) != family_of(base.choice)) continue;
      if (fields_of(candidate.choice) != fields) continue;
      const auto at = std::find_if(advice_.order.begin(), advice_.order.end(),
                                   [&](const Candidate& known) { return known.id == base.id; });
      return add(candidate, at == advice_.order.end() ? at : at + 1);
    }
    for (const FamilyFields& family : legal_values(question_.legal)) {
      if (family.family != family_of(base.choice)) continue;
      for (const auto& [field, value] : set) {
        const std::vector<std::string>& legal = family.values.at(field);
        if (std::find(legal.begin(), legal.end(), value) == legal.end())
          return rejected(fmt::format("{} is never {} in a legal plan", field, shown(value)));
      }
    }
    return rejected("these values are no legal plan together");
  }

  Judgement risk(const Json& item) {
    const bool all = item.is_object() && item.contains("candidate") && item["candidate"] == "*";
    Judgement why;
    const Candidate* candidate = all ? nullptr : named(item, why);
    if (!all && !candidate) return why;
    if (item.contains("validate_more") && !item["validate_more"].is_boolean())
      return rejected("validate_more is neither true nor false");
    if (!item.value("validate_more", false)) return accepted("a note");
    if (all)
      advice_.all_thorough = true;
    else
      advice_.thorough.insert(candidate->id);
    return accepted("validated more");
  }

  Judgement fusion(const Json& item) {
    if (!item.is_object() || !item.contains("option") || !item["option"].is_string())
      return rejected("names no option");
    const auto option = item["option"].get<std::string>();
    const int index = option.size() == 1 ? option[0] - 'A' : -1;
    if (index < 0 || index >= static_cast<int>(question_.fusions.size()))
      return rejected("no option of this region");
    const Json opinion = item.value("opinion", Json());
    const std::string& kernels = question_.fusions[static_cast<std::size_t>(index)].text;
    if (opinion == "prefer") {
      if (advice_.avoided.count(index) > 0) return rejected("contradicts an earlier opinion");
      if (advice_.preferred >= 0) return rejected("one is preferred already");
      advice_.preferred = index;
      return accepted("prefers " + kernels + "; tried too where kernels are timed");
    }
    if (opinion == "avoid") {
      if (advice_.preferred == index) return rejected("contradicts an earlier opinion");
      if (!advice_.avoided.insert(index).second) return rejected("repeated");
      return accepted("avoids " + kernels + "; a note");
    }
    return rejected("opinion is neither prefer nor avoid");
  }

  const Question& question_;
  Advice advice_;
};

}  // namespace

Advice parse_advice(std::string_view reply, const Question& question) {
  return Parser(question).run(reply);
}

Json to_json(const std::vector<AuditItem>& audit) {
  Json list = Json::array();
  for (const AuditItem& item : audit) {
    Json json{{"item", item.item}, {"said", item.said}, {"accepted", item.accepted}};
    if (!item.reason.empty()) json["reason"] = item.reason;
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace ac
