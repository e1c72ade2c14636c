#include "select/timed_steps.h"

namespace ac {

Json to_json(const InContext& of) {
  if (!of.untimed.empty()) return {{"context", of.context}, {"untimed", of.untimed}};
  return {{"context", of.context}, {"first_us", of.first_us}, {"us", of.us},
          {"timed", of.timed},     {"changed", of.changed},   {"from", of.from}};
}

Json to_json(const TimedCut& cut) {
  return {{"other", cut.what}, {"us", cut.us}, {"taken", cut.taken}};
}

InContext in_context_from_json(const Json& json) {
  InContext of;
  json.at("context").get_to(of.context);
  if (json.contains("untimed")) {
    json.at("untimed").get_to(of.untimed);
    return of;
  }
  json.at("first_us").get_to(of.first_us), json.at("us").get_to(of.us);
  json.at("timed").get_to(of.timed), json.at("changed").get_to(of.changed);
  json.at("from").get_to(of.from);
  return of;
}

TimedCut timed_cut_from_json(const Json& json) {
  return {json.at("other"), json.at("us"), json.at("taken")};
}

}  // namespace ac
