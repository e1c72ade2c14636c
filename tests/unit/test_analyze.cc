// Regions of whole models.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <map>

#include "analyze/analyse.h"
#include "base/error.h"
#include "base/files.h"
#include "expect_error.h"
#include "regions_models.h"
#include "tests/tools/source_folder.h"

using namespace ac;
namespace fs = std::filesystem;

namespace {

const Bindings kDecode{-1, 1, 1024};

std::map<Category, int> categories(const Regions& regions) {
  std::map<Category, int> count{{Category::mixed, 0}};
  for (const Region& region : regions.regions) ++count[region.category];
  return count;
}

std::vector<std::string> ops(const Regions& regions) {
  std::vector<std::string> lines;
  for (const Region& region : regions.regions) {
    std::string line;
    for (const Op op : region.ops) line += (line.empty() ? "" : "+") + std::string(info(op).name);
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> signatures(const Regions& regions) {
  std::vector<std::string> list;
  for (const Region& region : regions.regions) list.push_back(region.signature);
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace

TEST_CASE("decode steps of published geometries") {
  struct Case {
    const char* name;
    int layers;
    std::size_t signatures, regions_a_layer;
    double weight_gigabytes;
    std::int64_t cache_bytes_a_token;
  };
  // A layer of Llama: norm, q, k, v, two RoPEs, attention, o + add, norm, gate + silu, up * , down
  // + add. Besides: embedding, last norm, head. k and v share a signature, and the norms do.
  for (const Case& model : {Case{"llama-3.2-1b", 16, 12, 12, 2.471, 32768},
                            Case{"qwen3-1.7b", 28, 12, 12, 3.441, 114688},
                            Case{"qwen3-4b", 36, 12, 12, 8.045, 147456}}) {
    CAPTURE(std::string(model.name));
    const StepGraph step = test::published(model.name, true);
    const auto start = std::chrono::steady_clock::now();
    const Regions regions = analyse(step);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    CHECK(elapsed.count() < 2.0);
    verify(regions, model.name);
    CHECK(regions.regions.size() ==
          static_cast<std::size_t>(model.layers) * model.regions_a_layer + 3);
    CHECK(regions.signatures.size() == model.signatures);
    auto count = categories(regions);
    CHECK(count[Category::gemm] == model.layers * 3 + 1);
    CHECK(count[Category::gemm_epilogue] == model.layers * 4);
    CHECK(count[Category::rms_norm] == model.layers * 2 + 1);
    CHECK(count[Category::attention] == model.layers);
    CHECK(count[Category::embedding] == 1);
    CHECK(count[Category::mixed] == 0);
    const Amount total = regions.total(kDecode);
    CHECK(static_cast<double>(total.weight_bytes) ==
          doctest::Approx(model.weight_gigabytes * 1e9).epsilon(0.0005));
    CHECK(total.state_bytes == model.cache_bytes_a_token * 1025);
    CHECK(total.flops > total.weight_bytes);  // two a weight of two bytes
    CHECK(total.flops < total.weight_bytes * 5 / 4);

    // The same model in prefill: the rows are dynamic, the regions the same ones.
    const Regions prefill = analyse(test::published(model.name, false));
    verify(prefill, model.name);
    CHECK(categories(prefill) == categories(regions));
    for (const Region& region : prefill.regions)
      if (region.category == Category::attention) CHECK(region.dynamic_rows);
    // Only the last row of the last layer goes on: its products are over one row.
    CHECK(prefill.signatures.size() > regions.signatures.size());
    CHECK(prefill.total({-1, 512, 0}).flops > 300 * total.flops);
  }
}

TEST_CASE("the work of regions is that of their ops, less what stays inside") {
  for (const StepGraph& step : {test::gemma_like(2, 1), test::gpt2_like(2, Dim(Symbol::T))}) {
    const Regions regions = analyse(step);
    Amount alone;
    for (const Work& work : regions.node_work) alone += evaluate(work, {-1, 1, 100});
    const Amount total = regions.total({-1, 1, 100});
    CHECK(total.flops == alone.flops);
    CHECK(total.weight_bytes == alone.weight_bytes);
    CHECK(total.state_bytes == alone.state_bytes);
    CHECK(total.activation_bytes < alone.activation_bytes);
  }
}

TEST_CASE("a Gemma-like step: norms merge with what follows them, the head has a softcap") {
  const Regions regions = analyse(test::gemma_like(1, 1));
  verify(regions, "gemma");
  CHECK(ops(regions) ==
        std::vector<std::string>{"embedding", "mul+rms_norm", "linear", "rms_norm+rope", "linear",
                                 "rms_norm+rope", "linear", "append_attend", "linear",
                                 "rms_norm+add+rms_norm", "linear+gelu", "linear+mul", "linear",
                                 "rms_norm+add+rms_norm", "linear+div+tanh+mul"});
  CHECK(regions.regions[1].category == Category::reduction_pointwise);
  CHECK(regions.regions[1].outputs.size() == 2);  // the residual stream goes on
  CHECK(regions.regions[3].category == Category::reduction_pointwise);
  CHECK(regions.regions[14].category == Category::gemm_epilogue);
  // The scalars of the softcap are no arguments; the weight is tied to the table.
  CHECK(regions.regions[14].arguments.size() == 3);
  CHECK(regions.regions[0].inputs[0].storage == regions.regions[14].inputs[1].storage);
  CHECK(regions.regions[0].inputs[0].bytes == Dim(64));
  CHECK(regions.regions[14].inputs[1].bytes == Dim(50 * 32 * 2));
  CHECK(regions.regions[7].work.window == 16);

  // Layers alternate between windowed and full attention; everything else is shared.
  const Regions four = analyse(test::gemma_like(4, 1)), two = analyse(test::gemma_like(2, 1));
  CHECK(four.signatures.size() == two.signatures.size());
  int attentions = 0;
  for (const Equals& equals : four.signatures)
    if (four.regions[static_cast<std::size_t>(equals.regions[0])].category == Category::attention) {
      ++attentions;
      CHECK(equals.regions.size() == 2);
    }
  CHECK(attentions == 2);
}

TEST_CASE("a GPT-2-like step: views of the fused product become layouts") {
  const Regions regions = analyse(test::gpt2_like(1, Dim(Symbol::T)));
  verify(regions, "gpt2");
  CHECK(ops(regions) == std::vector<std::string>{"embedding", "embedding", "add+layer_norm",
                                                 "linear", "append_attend", "linear+add",
                                                 "layer_norm", "linear+gelu", "linear+add",
                                                 "layer_norm", "linear"});
  CHECK(regions.regions[1].inputs[1].role == Role::positions);
  CHECK(regions.regions[1].arguments.back().kind == Argument::Kind::cached_tokens);
  CHECK(regions.regions[6].category == Category::layer_norm);
  const Region& attention = regions.regions[4];
  REQUIRE(attention.inputs.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const Parameter& input = attention.inputs[i];
    CHECK(input.storage == regions.regions[3].outputs[0].value);
    CHECK(input.views.size() == 2);
    CHECK(input.layout.placement == Placement::strided);
    CHECK(input.layout.strides == Shape{96, 8, 1});
    CHECK(input.layout.offset == Dim(static_cast<std::int64_t>(i) * 32));
    CHECK(input.bytes == Dim(Symbol::T) * 64);
  }
  REQUIRE(attention.states.size() == 1);
  CHECK(attention.states[0].role == Role::state);
  CHECK(attention.dynamic_rows);
  CHECK(attention.dynamic_context);
  CHECK(attention.accumulation == DType::f32);
}

// AC_UPDATE_GOLDEN=1 rewrites the file.
TEST_CASE("the printed regions of a one-layer Qwen3") {
  const Regions regions = analyse(test::one_layer_qwen3());
  verify(regions, "qwen3");
  const std::string text = print(regions, kDecode);
  CHECK(print(analyse(test::one_layer_qwen3()), kDecode) == text);
  const fs::path golden = test_data() / "golden/regions_qwen3.txt";
  const char* update = std::getenv("AC_UPDATE_GOLDEN");
  if (update && std::string(update) == "1") write_file_atomically(golden, text);
  CHECK(read_file(golden, 1 << 20) == text);
}

TEST_CASE("JSON says what the text says") {
  const Regions regions = analyse(test::one_layer_qwen3());
  const Json json = to_json(regions, kDecode);
  CHECK(json["stage"] == "regions");
  CHECK(json["total"]["weight_bytes"] == regions.total(kDecode).weight_bytes);
  REQUIRE(json["regions"].size() == regions.regions.size());
  for (std::size_t i = 0; i < regions.regions.size(); ++i) {
    const Json& object = json["regions"][i];
    CHECK(object["category"] == to_string(regions.regions[i].category));
    const std::size_t index = object["signature"].get<std::size_t>();
    CHECK(json["signatures"][index]["signature"] == regions.regions[i].signature);
    CHECK(object["arguments"].size() == regions.regions[i].arguments.size());
  }
  CHECK(parse_json(json.dump(), "test") == json);
}

TEST_CASE("regions do not depend on the order of the nodes") {
  for (const StepGraph& step : {test::one_layer_qwen3(), test::gemma_like(2, Dim(Symbol::T)),
                                test::gpt2_like(2, 1), test::published("llama-3.2-1b", false)}) {
    const Regions expected = analyse(step);
    for (unsigned seed = 0; seed < 3; ++seed) {
      const Regions regions = analyse(test::shuffled(step, seed));
      verify(regions, "shuffled");
      CHECK(signatures(regions) == signatures(expected));
      CHECK(ops(regions) == ops(expected));
    }
  }
}

TEST_CASE("the verifier refuses regions that are not those of the step") {
  const Regions good = analyse(test::gemma_like(1, 1));
  verify(good, "test");
  Regions bad = good;
  bad.regions.pop_back();
  CHECK_BAD_INPUT(verify(bad, "test"), "test: ", "is in no region");
  bad = good;
  std::swap(bad.regions[2], bad.regions[3]);
  std::swap(bad.regions[2].id, bad.regions[3].id);
  CHECK_BAD_INPUT(verify(bad, "test"), "runs before its in0");
  bad = good;
  bad.regions[4] = bad.regions[2];
  bad.regions[4].id = 4;
  CHECK_BAD_INPUT(verify(bad, "test"), "is in regions 2 and 4");
  bad = good;
  bad.regions[5].outputs[0].type.dtype = DType::f32;
  CHECK_BAD_INPUT(verify(bad, "test"), "region 5 does not describe its nodes");
  bad = good;
  bad.regions[7].nodes.push_back(bad.regions[8].nodes.back());
  CHECK_BAD_INPUT(verify(bad, "test"), "region 7 is not legal (state)");
  bad = good;
  bad.regions[1].id = 7;
  CHECK_BAD_INPUT(verify(bad, "test"), "region 7 stands at place 1");
  bad = good;
  bad.signatures.pop_back();
  CHECK_BAD_INPUT(verify(bad, "test"), "signatures are not those");
  bad = good;
  bad.node_work.pop_back();
  CHECK_BAD_INPUT(verify(bad, "test"), "work of");
}
