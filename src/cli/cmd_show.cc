// lucid show MODEL: metadata, hyperparameters, tensor table, bytes by type and bits per weight of a
// model file.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/show_report.h"
#include "store/model_store.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShortText = 72;  // bytes of a string, unless --full
constexpr size_t kShortList = 6;   // elements of an array, unless --full
constexpr auto kReplaceBadUtf8 = Json::error_handler_t::replace;

// Bytes of the UTF-8 character that begins `text`, or 0 where none does or it is a control
// character.
size_t PrintableCharacter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return byte(0) == 0xc2 && byte(1) < 0xa0 ? 0 : size;  // U+0080 to U+009F are controls
}

// Text of a file made safe for a terminal: control and broken bytes as escapes, cut at `max_bytes`.
std::string Printable(std::string_view text, size_t max_bytes) {
  std::string out;
  size_t i = 0;
  while (i < text.size() && i < max_bytes) {
    if (const size_t size = PrintableCharacter(text.substr(i)); size > 0) {
      out += text.substr(i, size);
      i += size;
    } else {
      const char c = text[i++];
      out += c == '\n'   ? "\\n"
             : c == '\t' ? "\\t"
                         : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (i < text.size()) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

// A metadata value on one line.
std::string ValueText(const Json& value, bool full) {
  const size_t max_bytes = full ? std::string::npos : kShortText;
  if (value.is_string()) return Printable(value.get_ref<const std::string&>(), max_bytes);
  if (!value.is_array()) return Printable(value.dump(-1, ' ', false, kReplaceBadUtf8), max_bytes);
  std::string out = "[";
  size_t n = 0;
  for (const Json& item : value) {
    if (n > 0) out += ", ";
    if (!full && n == kShortList) {
      out += fmt::format("... ({} elements)", value.size());
      break;
    }
    const std::string text = ValueText(item, full);
    out += item.is_string() ? "\"" + text + "\"" : text;
    ++n;
  }
  return out + "]";
}

// 1234567 as "1,234,567".
std::string Grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string ShapeText(const Tensor& tensor) {
  return fmt::format("[{}]",
                     fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, ", "));
}

void PrintSummary(const ShowReport& report) {
  const Checkpoint& checkpoint = *report.checkpoint;
  for (const std::string& file : checkpoint.files()) fmt::print("file             {}\n", file);
  fmt::print("format           {}\n", report.format);
  fmt::print("size             {} bytes\n", Grouped(checkpoint.file_bytes()));
  fmt::print("parameters       {}\n", Grouped(static_cast<uint64_t>(report.n_params)));
  fmt::print("bits per weight  {:.3f}\n", report.bits_per_weight());
  for (const std::string& line : report.positions) fmt::print("positions        {}\n", line);
  for (const auto& [reason, names] : report.passed_over) {
    const std::string more = names.size() == 1 ? "" : fmt::format(" and {} more", names.size() - 1);
    fmt::print("passed over      {}{}: {}\n", Printable(names.front(), kShortText), more, reason);
  }
  if (!report.refusal.empty()) {
    fmt::print("cannot be run    {}\n", Printable(report.refusal, std::string::npos));
  }
}

void PrintValues(std::string_view title, std::span<const ShowValue> values, bool full) {
  if (values.empty()) return;
  fmt::print("\n{} ({})\n", title, values.size());
  size_t width = 0;
  for (const ShowValue& item : values)
    width = std::max(width, Printable(item.key, kShortText).size());
  for (const ShowValue& item : values) {
    const std::string type = item.type.empty() ? "" : fmt::format("{:<10}", item.type);
    fmt::print("  {:<{}}  {}{}\n", Printable(item.key, kShortText), width, type,
               ValueText(item.value, full));
  }
}

void PrintTensors(const Checkpoint& checkpoint) {
  const bool sharded = checkpoint.files().size() > 1;
  size_t name_width = 4;
  size_t shape_width = 5;
  for (const TensorEntry& entry : checkpoint.tensors()) {
    name_width = std::max(name_width, Printable(entry.name, kShortText).size());
    shape_width = std::max(shape_width, ShapeText(entry.tensor).size());
  }
  fmt::print("\ntensors ({}; shapes outermost first, bytes and offsets in the file)\n",
             checkpoint.tensors().size());
  fmt::print("  {:<{}}  {:<{}}  {:<8}  {:>13}  {:>14}{}\n", "name", name_width, "shape",
             shape_width, "type", "bytes", "offset", sharded ? "  file" : "");
  for (const TensorEntry& entry : checkpoint.tensors()) {
    fmt::print("  {:<{}}  {:<{}}  {:<8}  {:>13}  {:>14}{}\n", Printable(entry.name, kShortText),
               name_width, ShapeText(entry.tensor), shape_width, Name(entry.tensor.dtype),
               entry.tensor.bytes(), entry.offset,
               sharded ? fmt::format("  {:>4}", entry.shard + 1) : "");
  }
}

void PrintTypes(const ShowReport& report) {
  if (report.types.empty()) return;
  fmt::print("\ntypes\n  {:<8}  {:>7}  {:>17}  {:>17}  {:>7}  {:>12}\n", "type", "tensors",
             "parameters", "bytes", "share", "bits/weight");
  for (const auto& [type, totals] : report.types) {
    const double share = 100.0 * static_cast<double>(totals.bytes) /
                         std::max(1.0, static_cast<double>(report.tensor_bytes));
    const double bits =
        8.0 * static_cast<double>(totals.bytes) / std::max(1.0, static_cast<double>(totals.params));
    fmt::print("  {:<8}  {:>7}  {:>17}  {:>17}  {:>6.2f}%  {:>12.4f}\n", Name(type), totals.tensors,
               Grouped(static_cast<uint64_t>(totals.params)),
               Grouped(static_cast<uint64_t>(totals.bytes)), share, bits);
  }
}

Json TensorsJson(const Checkpoint& checkpoint) {
  Json list = Json::array();
  for (const TensorEntry& entry : checkpoint.tensors()) {
    const auto shape_begin = entry.tensor.shape.begin();
    Json item;
    item["name"] = entry.name;
    item["shape"] = std::vector<int64_t>(shape_begin, shape_begin + entry.tensor.rank);
    item["type"] = std::string(Name(entry.tensor.dtype));
    item["bytes"] = entry.tensor.bytes();
    item["offset"] = entry.offset;
    item["file"] = entry.shard;
    list.push_back(std::move(item));
  }
  return list;
}

// {key: member of the value, ...}. Appended without the look-up that operator[] would do: keys
// differ already.
template <typename Member>
Json ObjectOf(std::span<const ShowValue> values, Member member) {
  Json::object_t object;
  for (const ShowValue& item : values) object.push_back({item.key, Json(item.*member)});
  return object;
}

void PrintJson(const ShowReport& report) {
  const Checkpoint& checkpoint = *report.checkpoint;
  Json out;
  out["files"] = std::vector<std::string>(checkpoint.files().begin(), checkpoint.files().end());
  out["format"] = report.format;
  out["file_bytes"] = checkpoint.file_bytes();
  Json types = ObjectOf(report.metadata, &ShowValue::type);
  out["metadata"] = ObjectOf(report.metadata, &ShowValue::value);
  if (checkpoint.format() == Checkpoint::Format::kGguf) out["metadata_types"] = std::move(types);
  out["hyperparameters"] = ObjectOf(report.hyperparameters, &ShowValue::value);
  out["positions"] = report.positions;
  out["passed_over"] = report.passed_over;
  if (!report.refusal.empty()) out["cannot_be_run"] = report.refusal;
  out["tensors"] = TensorsJson(checkpoint);
  out["types"] = Json::object();
  for (const auto& [type, totals] : report.types) {
    out["types"][std::string(Name(type))] = {
        {"tensors", totals.tensors}, {"params", totals.params}, {"bytes", totals.bytes}};
  }
  out["total_bytes"] = report.tensor_bytes;
  out["n_params"] = report.n_params;
  out["bits_per_weight"] = report.bits_per_weight();
  fmt::print("{}\n", out.dump(1, ' ', false, kReplaceBadUtf8));
}

struct Flags {
  std::string model;
  bool json = false;
  bool full = false;
  RopeOverrides rope;
};

void Show(const Flags& flags, CommandContext& context) {
  const Result<std::string> path = ResolveModel(flags.model);
  if (!path) return ReportError(path.error(), context);
  const Result<ShowReport> report = MakeShowReport(*path, flags.rope);
  if (!report) return ReportError(report.error(), context);
  if (flags.json) return PrintJson(*report);
  PrintSummary(*report);
  PrintValues("hyperparameters", report->hyperparameters, flags.full);
  PrintValues("metadata", report->metadata, flags.full);
  PrintTensors(*report->checkpoint);
  PrintTypes(*report);
}

}  // namespace

void AddShowCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command =
      root.add_subcommand("show", "Print what is in a model file: metadata, sizes, tensors, types");
  auto flags = std::make_shared<Flags>();
  CLI::Option* model = command->add_option("model,-m,--model", flags->model,
                                           "model: a file, a folder or a name of 'lucid models'");
  command->add_flag("--json", flags->json, "print everything as JSON, arrays whole");
  command->add_flag("--full", flags->full, "do not shorten long arrays and texts");
  AddRopeFlags(*command, flags->rope);
  command->callback([flags, model, &context] {
    // Not required(): its message would name the flag alone.
    if (model->count() == 0) throw CLI::RequiredError("a model, as in 'lucid show MODEL',");
    Show(*flags, context);
  });
}

}  // namespace lucid::cli
