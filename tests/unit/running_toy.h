// A toy package in a folder of its own, on the host device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "runtime/engine.h"
#include "tests/unit/toy_package.h"

namespace ac::test {

struct Running {
  explicit Running(Toy of = {}) : toy(of), device(open_host_device()) { toy.write(package); }

  Engine engine() const { return Engine(*device, package); }
  Json json() const { return read_json(package / "program.json"); }
  void rewrite(const Json& json) const {
    write_file(package / "program.json", json.dump());
    write_digests(package);
  }

  Toy toy;
  TemporaryFolder folder;
  std::filesystem::path package = folder.path() / "package";
  std::unique_ptr<Device> device;
};

// The next `count` tokens.
inline std::vector<std::int64_t> generate(Engine& engine, std::int64_t count) {
  std::vector<std::int64_t> ids;
  engine.generate(count, [&](std::int64_t id) {
    ids.push_back(id);
    return true;
  });
  return ids;
}

}  // namespace ac::test
