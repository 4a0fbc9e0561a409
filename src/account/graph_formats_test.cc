// Every architecture of the registry as a graph, in every format and both phases; the formats
// themselves on two of them against golden files. LUCID_UPDATE_GOLDENS=1 rewrites those.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "account/graph_html.h"
#include "models/arch_test_util.h"
#include "plan/graph_render.h"
#include "plan/graph_test_util.h"
#include "plan/op_table.h"
#include "plan/pass.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

// What a page says; how it looks is of no concern here.
std::string PageBody(const Graph& graph, const GraphHeading& heading) {
  const std::string page = GraphHtml(graph, heading);
  const size_t begin = page.find("<h1>");
  return page.substr(begin, page.find("<script>") - begin);
}

struct Format {
  const char* suffix;
  std::string (*render)(const Graph& graph, const GraphHeading& heading);
};
constexpr Format kFormats[] = {{"txt", GraphText},
                               {"json", GraphJson},
                               {"dot", GraphDot},
                               {"mmd", GraphMermaid},
                               {"html", PageBody}};

Plan PlanOf(const ArchSpec& arch) {
  const Result<ModelConfig> config = arch.from_hf(SmallConfig(arch));
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return BuildPlan(arch, *config);
}

GraphOptions OptionsOf(const Plan& plan, Phase phase) {
  GraphOptions options;
  options.phase = phase;
  options.sizes = phase == Phase::kPrompt
                      ? Sizes{.tokens = 10, .outputs = 1, .sequences = 1, .context = 10}
                      : Sizes{.tokens = 2, .outputs = 2, .sequences = 2, .context = 11};
  options.weight_dtypes.assign(plan.values.size(), DType::kBF16);
  return options;
}

Graph GraphOf(const Plan& plan, const GraphOptions& options) {
  Result<Graph> graph = MakeGraph(plan, options);
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return *std::move(graph);
}

// Brackets outside of quoted strings close in order, and so do the quotes.
bool Balanced(const std::string& text) {
  std::string open;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '{' || c == '[')) {
      open += c;
    } else if (!quoted && (c == '}' || c == ']')) {
      if (open.empty() || (open.back() == '{') != (c == '}')) return false;
      open.pop_back();
    }
  }
  return open.empty() && !quoted;
}

// Every <tag> has its </tag>, but for those that have none.
bool TagsClose(const std::string& html) {
  const std::set<std::string> empty = {"meta", "input", "path", "circle", "!DOCTYPE"};
  std::vector<std::string> open;
  for (size_t i = html.find('<'); i != std::string::npos; i = html.find('<', i + 1)) {
    const bool closes = html[i + 1] == '/';
    const size_t begin = i + (closes ? 2 : 1);
    const std::string tag = html.substr(begin, html.find_first_of(" />\n", begin) - begin);
    if (closes && (open.empty() || open.back() != tag)) return false;
    if (closes) open.pop_back();
    if (!closes && !empty.contains(tag)) open.push_back(tag);
    const bool is_text = tag == "script" || tag == "style";
    if (!closes && is_text) i = html.find("</" + tag, i + 1) - 1;
  }
  return open.empty();
}

// Nodes that edges name but nobody declares.
std::string UndeclaredDotNodes(const std::string& dot) {
  std::set<std::string> declared;
  std::set<std::string> used;
  std::istringstream lines(dot);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, second, third;
    words >> first >> second >> third;
    if (second == "->") {
      used.insert({first, third});
    } else {
      declared.insert(first);
    }
  }
  std::string missing;
  for (const std::string& node : used) {
    if (!declared.contains(node)) missing += node + " ";
  }
  return missing;
}

class GraphFormatsTest : public testing::TestWithParam<const ArchSpec*> {};

TEST_P(GraphFormatsTest, EveryPhaseOfEveryPlanIsWellFormed) {
  const GraphHeading heading{.model = "a \"model\" <of> test & more\\"};
  const Plan declared = PlanOf(*GetParam());
  for (const Plan& plan : {declared, FusePlan(declared)}) {
    for (const Phase phase : {Phase::kPrompt, Phase::kGenerated}) {
      const Graph graph = GraphOf(plan, OptionsOf(plan, phase));
      EXPECT_GE(graph.n_layers, 2);
      const std::string text = GraphText(graph, heading);
      EXPECT_NE(text.find("after the layers"), std::string::npos);
      const Json json = Json::parse(GraphJson(graph, heading));
      EXPECT_EQ(json["arch"], plan.arch);
      EXPECT_EQ(json["ops"].back()["name"], "logits");
      const std::string dot = GraphDot(graph, heading);
      EXPECT_TRUE(Balanced(dot)) << dot;
      EXPECT_EQ(UndeclaredDotNodes(dot), "");
      EXPECT_TRUE(TagsClose(GraphHtml(graph, heading)));
      for (size_t b = 0; b < graph.blocks.size(); ++b) EXPECT_EQ(LaneCollision(graph, b), "");
      const std::string mermaid = GraphMermaid(graph, heading);
      EXPECT_EQ(std::ranges::count(mermaid, '"') % 2, 0);
    }
  }
}

TEST_P(GraphFormatsTest, BlocksHoldEveryOpOfThePhase) {
  const Plan plan = PlanOf(*GetParam());
  for (const Phase phase : {Phase::kPrompt, Phase::kGenerated}) {
    const auto runs = [&](const Op& op) { return Computes(op, phase); };
    GraphOptions options = OptionsOf(plan, phase);
    options.all_layers = true;
    size_t drawn = 0;
    for (const GraphBlock& block : GraphOf(plan, options).blocks) drawn += block.nodes.size();
    EXPECT_EQ(static_cast<int64_t>(drawn), std::ranges::count_if(plan.ops, runs));
    size_t counted = 0;
    for (const GraphBlock& block : GraphOf(plan, OptionsOf(plan, phase)).blocks) {
      counted += block.nodes.size() * std::max<size_t>(1, block.layers.size());
    }
    EXPECT_EQ(counted, drawn);
    // The logits need all of it: no op of an architecture is idle.
    options.trace_back = "logits";
    size_t traced = 0;
    for (const GraphBlock& block : GraphOf(plan, options).blocks) traced += block.nodes.size();
    EXPECT_EQ(traced, drawn);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, GraphFormatsTest,
                         testing::ValuesIn(AllArchs().begin(), AllArchs().end()),
                         [](const auto& test) { return std::string(test.param->name); });

std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void CompareGoldens(const std::string& name, const Graph& graph) {
  for (const Format& format : kFormats) {
    const std::string path =
        std::string(LUCID_SOURCE_DIR) + "/tests/plans/graphs/" + name + "." + format.suffix;
    const std::string text = format.render(graph, {.model = name});
    if (std::getenv("LUCID_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << text;
    EXPECT_EQ(text, ReadFile(path)) << "LUCID_UPDATE_GOLDENS=1 accepts the new drawing";
  }
}

const ArchSpec& Arch(std::string_view name) {
  return **std::ranges::find_if(AllArchs(),
                                [&](const ArchSpec* arch) { return arch->name == name; });
}

TEST(GraphGoldenTest, LlamaInPrefill) {
  const Plan plan = PlanOf(Arch("llama"));
  CompareGoldens("llama", GraphOf(plan, OptionsOf(plan, Phase::kPrompt)));
}

TEST(GraphGoldenTest, DeepseekInDecode) {
  const Plan plan = PlanOf(Arch("deepseek2"));
  CompareGoldens("deepseek2", GraphOf(plan, OptionsOf(plan, Phase::kGenerated)));
}

TEST(GraphGoldenTest, TraceOfLlamasLogits) {
  const Plan plan = PlanOf(Arch("llama"));
  GraphOptions options = OptionsOf(plan, Phase::kPrompt);
  options.trace_back = "logits";
  const std::string text = GraphText(GraphOf(plan, options), {.model = "llama"});
  const std::string path = std::string(LUCID_SOURCE_DIR) + "/tests/plans/graphs/llama.trace.txt";
  if (std::getenv("LUCID_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << text;
  EXPECT_EQ(text, ReadFile(path)) << "LUCID_UPDATE_GOLDENS=1 accepts the new drawing";
}

TEST(GraphJsonTest, SaysWhatAnOperandIs) {
  const Plan plan = PlanOf(Arch("llama"));
  const Json json =
      Json::parse(GraphJson(GraphOf(plan, OptionsOf(plan, Phase::kPrompt)), {.model = "m"}));
  const auto op =
      std::ranges::find_if(json["ops"], [](const Json& o) { return o["name"] == "blk.0.attn_k"; });
  ASSERT_NE(op, json["ops"].end());
  const Json expected = {{"role", "w"},
                         {"name", "blk.0.attn_k"},
                         {"kind", "weight"},
                         {"dtype", "BF16"},
                         {"shape_symbolic", {32, 64}},
                         {"shape", {32, 64}},
                         {"bytes", 32 * 64 * 2},
                         {"read", true},
                         {"from", Json::array()}};
  EXPECT_EQ((*op)["inputs"][1], expected);
  EXPECT_EQ((*op)["outputs"][0]["shape_symbolic"], Json({"T", 32}));
  EXPECT_EQ((*op)["outputs"][0]["shape"], Json({10, 32}));
  EXPECT_EQ((*op)["outputs"][0]["bytes"], 10 * 32 * 4);
  EXPECT_EQ((*op)["inputs"][0]["from"][0]["op"], "blk.0.attn_norm");
}

}  // namespace
}  // namespace lucid
