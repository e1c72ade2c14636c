// The kernel headers that a source reaches, read once. A build compiles these very texts, never the
// files: a header that is edited meanwhile can make no artifact that its key does not describe.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ac {

struct Header {
  std::string name;  // as it is included: "kernels/gemv.cuh"
  std::string text;
  std::string digest;
  std::vector<std::string> includes;
};

class Headers {
 public:
  // Included names are relative to `folder`.
  explicit Headers(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // All headers that `text` includes, directly or not, whatever #if stands around; in order of
  // name. One that does not exist is left out: the compiler will say so.
  std::vector<const Header*> reached_by(const std::string& text);

 private:
  const Header* find(const std::string& name);

  std::filesystem::path folder_;
  std::mutex mutex_;
  std::map<std::string, Header> known_;
};

}  // namespace ac
