#include "engine/multiple_choice.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "decode/samplers/logit_row.h"
#include "engine/text_scorer.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

void ReplaceAll(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

// HellaSwag's texts carry marks of the articles they were cut from: "[title]", "[step]" and the
// like.
std::string Cleaned(std::string text) {
  const auto space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), space));
  text.erase(std::find_if_not(text.rbegin(), text.rend(), space).base(), text.end());
  ReplaceAll(text, " [title]", ". ");
  for (size_t open; (open = text.find('[')) != std::string::npos;) {
    const size_t close = text.find(']', open);
    if (close == std::string::npos) break;
    text.erase(open, close - open + 1);
  }
  ReplaceAll(text, "  ", " ");
  return text;
}

std::string Capitalized(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string TextOf(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
}

Result<size_t> LabelOf(const Json& json, size_t n_endings) {
  const auto it = json.find("label");
  int64_t label = -1;
  if (it != json.end() && it->is_number_integer()) label = it->get<int64_t>();
  if (it != json.end() && it->is_string()) {
    const auto& text = it->get_ref<const std::string&>();
    std::from_chars(text.data(), text.data() + text.size(), label);
  }
  if (label < 0 || label >= static_cast<int64_t>(n_endings)) {
    return Err(ErrorCode::kInvalidArgument, "\"label\" must be a number from 0 to {}",
               n_endings - 1);
  }
  return static_cast<size_t>(label);
}

// The log-probability of the tokens from `first` on, given those before.
Result<double> LogProbFrom(Engine& engine, std::span<const TokenId> ids, size_t first) {
  double sum = 0;
  LogitRow row;
  const auto add = [&](int64_t position, std::span<const float> logits) -> Status {
    row.Reset(logits, BestRowKernels());
    if (!row.CanWeigh()) {
      return Err(ErrorCode::kInvalidArgument, "the model's logits are not finite");
    }
    const auto next = static_cast<size_t>(ids[static_cast<size_t>(position + 1)]);
    sum += static_cast<double>(logits[next]) - row.LogSum();
    return {};
  };
  LUCID_RETURN_IF_ERROR(ScorePrompt(engine, ids, static_cast<int64_t>(first) - 1, add));
  return sum;
}

size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

Result<ChoiceTask> ParseChoiceTask(std::string_view text) {
  LUCID_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "a line"));
  if (!json.is_object()) return Err(ErrorCode::kInvalidArgument, "a line must be a JSON object");
  ChoiceTask task;
  task.context = TextOf(json, "ctx");
  if (json.contains("ctx_b")) {
    task.context = TextOf(json, "ctx_a") + " " + Capitalized(TextOf(json, "ctx_b"));
  }
  const std::string activity = TextOf(json, "activity_label");
  if (!activity.empty()) task.context = activity + ": " + task.context;
  task.context = Cleaned(task.context);
  if (task.context.empty()) {
    return Err(ErrorCode::kInvalidArgument, "a line needs \"ctx\", the text before the endings");
  }
  const auto endings = json.find("endings");
  if (endings == json.end() || !endings->is_array() || endings->size() < 2) {
    return Err(ErrorCode::kInvalidArgument,
               "a line needs \"endings\", a list of two or more texts");
  }
  for (const Json& ending : *endings) {
    if (!ending.is_string()) {
      return Err(ErrorCode::kInvalidArgument, "\"endings\" must hold texts");
    }
    task.endings.push_back(Cleaned(ending.get<std::string>()));
  }
  LUCID_ASSIGN_OR_RETURN(task.label, LabelOf(json, task.endings.size()));
  return task;
}

Result<ChoiceScore> ScoreChoices(Engine& engine, const ChoiceTask& task) {
  LUCID_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  const std::vector<TokenId> context = tokenizer->Encode(task.context);
  ChoiceScore score;
  std::vector<double> normed;
  for (const std::string& ending : task.endings) {
    // Encoded together: a token may reach over the border's space.
    const std::vector<TokenId> ids = tokenizer->Encode(task.context + " " + ending);
    const size_t first = std::max<size_t>(1, std::min(context.size(), ids.size()));
    LUCID_ASSIGN_OR_RETURN(const double sum, LogProbFrom(engine, ids, first));
    score.log_probs.push_back(sum);
    normed.push_back(sum / static_cast<double>(std::max<size_t>(1, Characters(ending))));
  }
  const auto best = [](const std::vector<double>& values) {
    return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
  };
  score.best = best(score.log_probs);
  score.best_norm = best(normed);
  return score;
}

}  // namespace lucid
