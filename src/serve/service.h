// The routes of the server: each request is read, queued, and answered in the form of its API.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/asking.h"
#include "serve/http_server.h"
#include "serve/metrics.h"
#include "serve/queue.h"

namespace ac::serve {

using namespace api;

struct ServiceOptions {
  std::set<std::string> keys;     // one of them is demanded; empty: none
  bool logs = true;               // a line on stderr for each request
  std::size_t most_waiting = 32;  // for their grammars
};

class Service {
 public:
  // A request says which of the models it is for, unless there is one. The queue knows each by its
  // place.
  Service(std::vector<ServedModel> models, Queue& queue, Metrics& metrics, ServiceOptions options);
  ~Service();
  // Whoever still waits for a grammar is refused. Before the server of the responses ends.
  void stop();

  void handle(HttpRequest request, std::shared_ptr<HttpResponse> response);
  // The body that tells of an error before there is a request.
  static std::string refusal(int status, const std::string& message);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ac::serve
