// lucid plan MODEL: the compute graph, drawn from the plan: ops, shapes, weights, types; or what
// one op depends on.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "account/graph_html.h"
#include "cli/command.h"
#include "cli/layer_range.h"
#include "cli/model_flags.h"
#include "engine/describe.h"
#include "plan/graph.h"
#include "plan/graph_render.h"
#include "store/model_store.h"

namespace lucid::cli {
namespace {

struct Flags {
  std::string model;
  std::string phase = "prefill";
  std::string format = "text";
  std::string trace_back;
  std::string layers;
  std::string type;
  int64_t prompt = 10;
  int64_t batch = 1;
  int64_t context = 0;  // 0: what the phase needs
  bool full = false, fused = false;
  RopeOverrides rope;
};

// What a step of that phase brings: whole prompts, or a token of each sequence behind its prompt.
Result<Sizes> SizesOf(const Flags& flags) {
  const bool prefill = flags.phase == "prefill";
  Sizes sizes;
  sizes.sequences = flags.batch;
  sizes.tokens = flags.batch * (prefill ? flags.prompt : 1);
  sizes.outputs = flags.batch;
  const int64_t needed = flags.prompt + (prefill ? 0 : 1);
  sizes.context = flags.context > 0 ? flags.context : needed;
  if (sizes.context < needed) {
    return Err(ErrorCode::kInvalidArgument,
               "a context of {} does not hold the {} tokens of a sequence", sizes.context, needed);
  }
  return sizes;
}

Status Run(const Flags& flags) {
  LUCID_ASSIGN_OR_RETURN(const std::string path, ResolveModel(flags.model));
  GraphOptions options;
  options.phase = flags.phase == "prefill" ? Phase::kPrompt : Phase::kGenerated;
  options.trace_back = flags.trace_back;
  options.all_layers = flags.full;
  LUCID_ASSIGN_OR_RETURN(options.sizes, SizesOf(flags));
  if (!flags.layers.empty()) {
    LUCID_ASSIGN_OR_RETURN(options.layers, ParseLayers(flags.layers));
  }
  LUCID_ASSIGN_OR_RETURN(PlanDescription described,
                         DescribePlan(path, flags.type, flags.rope, flags.fused));
  options.weight_dtypes = std::move(described.weight_dtypes);
  LUCID_ASSIGN_OR_RETURN(const Graph graph, MakeGraph(described.plan, std::move(options)));
  const GraphHeading heading{.model = flags.model, .fused = flags.fused};
  const std::string text = flags.format == "json"      ? GraphJson(graph, heading)
                           : flags.format == "dot"     ? GraphDot(graph, heading)
                           : flags.format == "mermaid" ? GraphMermaid(graph, heading)
                           : flags.format == "html"    ? GraphHtml(graph, heading)
                                                       : GraphText(graph, heading);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

}  // namespace

void AddPlanCommand(CLI::App& root, CommandContext& context) {
  constexpr int64_t kMostTokens = int64_t{1} << 24;
  CLI::App* command =
      root.add_subcommand("plan", "Draw the compute graph of a model, or what an op depends on");
  auto flags = std::make_shared<Flags>();
  CLI::Option* model =
      command->add_option("model,-m,--model", flags->model,
                          "model: a file, a folder, a config.json or a name of 'lucid models'");
  command
      ->add_option("--phase", flags->phase,
                   "prefill or decode: which ops run, where that depends on it, and the numbers "
                   "of the shapes")
      ->check(CLI::IsMember({"prefill", "decode"}))
      ->capture_default_str();
  command
      ->add_option("--format", flags->format,
                   "text, json, dot (Graphviz), mermaid, or html: one page that needs no other")
      ->check(CLI::IsMember({"text", "json", "dot", "mermaid", "html"}))
      ->capture_default_str();
  command
      ->add_option("--trace-back", flags->trace_back,
                   "only what this op or value depends on, from it backwards: logits, "
                   "blk.0.attn, ...")
      ->check([](const std::string& name) {
        return name.empty() ? "wants the name of an op or value" : std::string();
      });
  command->add_flag("--full", flags->full, "every layer by itself, not equal ones as one");
  command
      ->add_option("--layers", flags->layers,
                   "a layer (3) or a range of them (3-7) to show each by itself")
      ->type_name("N|A-B");
  command->add_flag("--fused", flags->fused,
                    "the plan as it runs, neighbouring ops fused; without it, as declared");
  command->add_option("-p,--n-prompt", flags->prompt, "tokens of a prompt")
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->capture_default_str();
  command->add_option("-B,--batch", flags->batch, "sequences of a step")
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->capture_default_str();
  command
      ->add_option("-c,--ctx-size", flags->context,
                   "key positions of a sequence; without it, as many as the step needs")
      ->check(CLI::Range(int64_t{1}, kMostTokens));
  command->add_option("--type", flags->type,
                      "weights as of this type: f16, q8_0, q4_k_m, ...; without it, as the model "
                      "has them");
  AddRopeFlags(*command, flags->rope);
  command->callback([flags, model, &context] {
    // Not required(): its message would name the flag alone.
    if (model->count() == 0) throw CLI::RequiredError("a model, as in 'lucid plan MODEL',");
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
