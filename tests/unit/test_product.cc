// Matrix products of a library: as data, and as the host device computes them.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "device/device.h"
#include "expect_error.h"
#include "program/program.h"
#include "runtime/engine.h"
#include "tests/device/device_cases.h"

namespace ac::test::product {

namespace {

Product small_product() {
  return {.dtype = DType::f16,
          .n = 3,
          .k = 4,
          .x_pitch = 6,
          .bias = true,
          .residual = true,
          .tuned_m = 8,
          .tuned_n = 3};
}

}  // namespace

TEST_CASE("products of the host device are those of double precision") {
  const auto device = open_host_device();
  check_products(*device, false);
}

TEST_CASE("a product that cannot be is refused") {
  const auto why = [](const std::function<void(Product&)>& harm) {
    Product product = small_product();
    harm(product);
    return why_impossible(product);
  };
  CHECK(why([](Product&) {}) == nullptr);
  CHECK(why([](Product& p) { p.n = 0; }) != nullptr);
  CHECK(why([](Product& p) { p.k = -1; }) != nullptr);
  CHECK(why([](Product& p) { p.n = std::int64_t{1} << 31; }) != nullptr);
  CHECK(why([](Product& p) { p.x_pitch = 3; }) != nullptr);
  CHECK(why([](Product& p) { p.x_pitch = std::int64_t{1} << 40; }) != nullptr);
  CHECK(why([](Product& p) { p.dtype = DType::i32; }) != nullptr);
  CHECK(why([](Product& p) { p.algorithm = -1; }) != nullptr);
  CHECK(why([](Product& p) { p.algorithm = 1 << 20; }) != nullptr);
  CHECK(why([](Product& p) { p.tuned_m = 0; }) != nullptr);
  CHECK(why([](Product& p) { p.tuned_n = -5; }) != nullptr);
  CHECK(why([](Product& p) { p.scale = 2; }) != nullptr);
  CHECK(why([](Product& p) { p.scale = 2, p.bias = false; }) == nullptr);

  const auto device = open_host_device();
  Product product = small_product();
  product.n = 0;
  error_of(Fault::job_failed, [&] { device->load_product(product); });
  const auto kernel = device->load_product(small_product());
  ProductParams params{};
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    params.m = rows;
    error_of(Fault::job_failed,
             [&] { device->launch(*kernel, {}, std::as_bytes(std::span(&params, 1))); });
  }
  const std::byte few[8] = {};
  error_of(Fault::job_failed, [&] { device->launch(*kernel, {}, few); });
}

namespace {

enum Index : std::int32_t { ids, position, token, log_, weight, bias, x, y };

// One product of tokens * 2 rows, in buffers that are just large enough.
Program program_of_one() {
  Program p;
  p.model = "product", p.target = "host", p.dtype = DType::f16;
  p.vocab = 3, p.max_context = 16;
  p.stores = {{"checkpoint", "weights"}};
  p.arena_bytes = 1 << 12;
  using Role = Buffer::Role;
  p.buffers = {{.role = Role::ids, .name = "ids", .dtype = DType::i64, .bytes = Count(0, 8)},
               {.role = Role::position, .name = "position", .dtype = DType::i32, .bytes = 4},
               {.role = Role::token, .name = "token", .dtype = DType::i32, .bytes = 4},
               {.role = Role::log, .name = "log", .dtype = DType::i32, .bytes = 17 * 4},
               {.role = Role::weight,
                .name = "w",
                .dtype = DType::f16,
                .bytes = 3 * 4 * 2,
                .store = "checkpoint",
                .key = "w",
                .shape = {3, 4}},
               {.role = Role::weight,
                .name = "b",
                .dtype = DType::f16,
                .bytes = 3 * 2,
                .store = "checkpoint",
                .key = "b",
                .shape = {3}},
               // 2 T rows of 4, 6 apart; the last one ends with its elements.
               {.role = Role::scratch, .name = "x", .dtype = DType::f16, .bytes = Count(-4, 24)},
               {.role = Role::scratch,
                .name = "y",
                .dtype = DType::f16,
                .bytes = Count(0, 12),
                .offset = 1 << 11},
               {.role = Role::until, .name = "until", .dtype = DType::i32, .bytes = 64}};
  Launch launch;
  launch.product = small_product();
  launch.kernel = name_of(*launch.product);
  launch.params.resize(sizeof(ProductParams));
  const auto at = [](std::size_t place) { return static_cast<std::uint32_t>(place); };
  launch.pointers = {{at(offsetof(ProductParams, x)), x, {}},
                     {at(offsetof(ProductParams, weight)), weight, {}},
                     {at(offsetof(ProductParams, bias)), bias, {}},
                     {at(offsetof(ProductParams, residual)), y, {}},
                     {at(offsetof(ProductParams, y)), y, {}}};
  launch.numbers = {{at(offsetof(ProductParams, m)), 8, Count(0, 2)}};
  p.phases = {{"prefill", 2, 8, 0, {launch}, {"cublaslt"}, ids, y},
              {"decode", 1, 1, 0, {launch}, {"cublaslt"}, ids, y}};
  return p;
}

}  // namespace

TEST_CASE("a launch with a product comes back from its file as it was") {
  const Program program = program_of_one();
  CHECK_NOTHROW(verify(program, "tiny"));
  CHECK(program_from_json(parse_json(to_json(program).dump(), "x"), "x") == program);
}

TEST_CASE("a launch with a product that leaves its buffers is refused") {
  const auto refused = [](const char* part, const std::function<void(Launch&, Program&)>& harm) {
    Program program = program_of_one();
    harm(program.phases[0].launches[0], program);
    CAPTURE(part);
    CHECK_BAD_INPUT(verify(program, "program.json"), "program.json", part);
    CHECK_BAD_INPUT(program_from_json(to_json(program), "program.json"), "program.json");
  };
  refused("inside w", [](Launch& l, Program&) { l.product->n = 4; });
  refused("inside", [](Launch& l, Program&) { l.product->k = 5; });
  refused("inside x", [](Launch& l, Program&) { l.product->x_pitch = 7; });
  refused("inside x", [](Launch& l, Program&) { l.numbers[0].value = Count(1, 2); });
  refused("inside", [](Launch& l, Program&) { l.numbers[0].value = Count(0, 1 << 27); });
  refused("rows", [](Launch& l, Program&) { l.numbers[0].value = Count(-4, 2); });
  refused("rows", [](Launch& l, Program&) { l.numbers[0].value = std::int64_t{1} << 40; });
  refused("inside w", [](Launch& l, Program&) { l.pointers[1].offset = 2; });
  refused("inside y", [](Launch& l, Program&) { l.pointers[4].offset = Count(0, 2); });
  refused("inside b", [](Launch& l, Program&) { l.pointers[3].buffer = bias; });
  refused("inside", [](Launch& l, Program&) {
    l.product->n = 0x7fffffff, l.product->k = l.product->x_pitch = 0x7fffffff;
  });
  refused("inside", [](Launch&, Program& p) { p.buffers[x].bytes = Count(-6, 24); });
  refused("rows of x", [](Launch& l, Program&) { l.product->x_pitch = 3; });
  refused("another name", [](Launch& l, Program&) { l.kernel = "k"; });
  refused("another name", [](Launch& l, Program&) { l.product->algorithm = 3; });
  refused("pointers", [](Launch& l, Program&) { l.pointers.pop_back(); });
  refused("a map", [](Launch& l, Program&) { l.maps.push_back({0, x, 0, 1, 8, 8, 8}); });
  refused("pointers", [](Launch& l, Program&) { l.pointers[0] = l.pointers[1]; });
  refused("pointers", [](Launch& l, Program&) { l.pointers.push_back(l.pointers[0]); });
  refused("pointers", [](Launch& l, Program&) { l.pointers[0].at = 4; });
  refused("numbers", [](Launch& l, Program&) { l.numbers.clear(); });
  refused("number", [](Launch& l, Program&) { l.numbers[0].bytes = 4, l.numbers[0].at = 0; });
  refused("parameters", [](Launch& l, Program&) { l.params.push_back(std::byte{}); });
  refused("parameters", [](Launch& l, Program&) { l.params.clear(); });

  const Json json = to_json(program_of_one());
  for (const char* key : {"dtype", "n", "bias", "scale", "tuned_m"})
    for (const Json& bad : {Json("i32"), Json(nullptr), Json(1e300), Json::array(), Json()}) {
      Json harmed = json;
      Json& product = harmed["phases"][0]["launches"][0]["product"];
      if (key == std::string("scale") && bad.is_number()) continue;
      product[key] = bad;
      CAPTURE(harmed.dump());
      CHECK_BAD_INPUT(program_from_json(harmed, "program.json"), "program.json");
      product.erase(key);
      CHECK_BAD_INPUT(program_from_json(harmed, "program.json"), "program.json");
    }
}

namespace {

// A device of which only its room counts: nothing can be loaded or run there.
class RoomOnly : public Device {
 public:
  RoomOnly(std::int64_t free, std::int64_t of_products) : free_(free), of_products_(of_products) {}
  std::string name() const override { return "room"; }
  const DeviceInfo& info() const override { return device_info("host"); }
  std::size_t free_bytes() const override { return static_cast<std::size_t>(free_); }
  std::size_t product_bytes() const override { return static_cast<std::size_t>(of_products_); }
  std::unique_ptr<Mark> make_mark() override { return nullptr; }
  std::unique_ptr<Kernel> load_product(const Product&) override { refuse(); }

  std::unique_ptr<Memory> allocate(std::size_t) override { refuse(); }
  void upload(void*, std::span<const std::byte>) override { refuse(); }
  void download(std::span<std::byte>, const void*) override { refuse(); }
  std::unique_ptr<Memory> allocate_staging(std::size_t) override { refuse(); }
  void upload_later(void*, const void*, std::size_t) override { refuse(); }
  void download_later(void*, const void*, std::size_t) override { refuse(); }
  void copy(void*, const void*, std::size_t) override { refuse(); }
  void copy_rows(const RowCopy&) override { refuse(); }
  void fill(void*, std::size_t, unsigned char) override { refuse(); }
  std::unique_ptr<Kernel> load(std::string_view, const std::filesystem::path&,
                               const std::string&) override {
    refuse();
  }
  void launch(const Kernel&, const LaunchShape&, std::span<const std::byte>) override { refuse(); }
  void encode_map(const kernels::MatrixView&, kernels::TensorMap&) const override { refuse(); }
  void synchronize() override {}
  std::unique_ptr<Recording> record(const std::function<void()>&) override { refuse(); }
  double time_now(const std::function<void()>&) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { job_failed("nothing runs"); }

  const std::int64_t free_, of_products_;
};

}  // namespace

TEST_CASE("an engine counts the memory of a library before it loads it") {
  constexpr std::int64_t kLibrary = std::int64_t{32} << 20;
  const auto why_not = [](const Program& program, std::int64_t free, std::int64_t of_products) {
    const TemporaryFolder folder;
    write_file(folder.path() / "program.json", to_json(program).dump());
    write_digests(folder.path());
    RoomOnly device(free, of_products);
    return error_of(Fault::job_failed, [&] { Engine(device, folder.path()); });
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  Program program = program_of_one();
  std::int64_t own = program.arena_bytes;
  for (const Buffer& buffer : program.buffers)
    if (buffer.role != Buffer::Role::scratch) own += buffer.bytes.at(program.longest_step());
  CHECK(has(why_not(program, own + kLibrary - 1, kLibrary), "does not fit"));
  CHECK(has(why_not(program, own + kLibrary, kLibrary), "do not run here"));
  CHECK(has(why_not(program, own, 0), "do not run here"));
  // Also of a phase that is only for long contexts.
  Phase later = program.phases[1];
  later.from = 4;
  for (Phase& phase : program.phases) phase.launches.clear(), phase.notes.clear();
  program.phases.push_back(later);
  CHECK(has(why_not(program, own + kLibrary - 1, kLibrary), "does not fit"));
  CHECK(has(why_not(program, own + kLibrary, kLibrary), "do not run here"));
}

}  // namespace ac::test::product
