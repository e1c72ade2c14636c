// Spans of launches as JSON.
#pragma once

#include "base/json.h"
#include "lab/jobs.h"

namespace ac {

Json to_json(Span span);
Span span_of(const Json& json);

}  // namespace ac
