#include "api/refusal.h"

namespace ac::api {
namespace {

const char* openai_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

const char* anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

Json to_json(const Refusal& refusal, ErrorForm form) {
  if (form == ErrorForm::anthropic)
    return {{"type", "error"},
            {"error",
             {{"type", anthropic_type(refusal.status)},
              {"message",
               refusal.param.empty() ? refusal.message : refusal.param + ": " + refusal.message}}}};
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"error",
           {{"message",
             refusal.param.empty() ? refusal.message : refusal.param + ": " + refusal.message},
            {"type", openai_type(refusal.status)},
            {"param", or_null(refusal.param)},
            {"code", or_null(refusal.code)}}}};
}

}  // namespace ac::api
