#include "account/machine.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "base/thread_pool.h"
#include "base/topology.h"
#include "store/file_util.h"
#include "store/model_store.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

// Readings of buffers whose sizes differ by less than this factor stand for each other.
constexpr double kSimilarSize = 1.25;
// Above so many level-3 caches a pass finds next to nothing in them.
constexpr int64_t kBeyondCaches = 8;

// Writes members, for structs below that list theirs once.
struct Writer {
  Json& json;
  template <typename T>
  void operator()(const char* name, const T& value) const {
    json[name] = value;
  }
};

// Reads them; the first that is missing or of another type is kept as the error.
struct Reader {
  const Json& json;
  std::string_view what;
  std::optional<Error>& error;

  const Json* Find(const char* name, bool (*fits)(const Json&)) const {
    const auto found = json.is_object() ? json.find(name) : json.end();
    if (json.is_object() && found != json.end() && fits(*found)) return &*found;
    if (!error) {
      error = Error{ErrorCode::kInvalidFile,
                    fmt::format("{}: \"{}\" is missing or has the wrong type", what, name)};
    }
    return nullptr;
  }
  void operator()(const char* name, std::string& value) const {
    const Json* found = Find(name, [](const Json& j) { return j.is_string(); });
    if (found != nullptr) value = found->get<std::string>();
  }
  void operator()(const char* name, double& value) const {
    const Json* found = Find(name, [](const Json& j) { return j.is_number(); });
    if (found != nullptr) value = found->get<double>();
  }
  void operator()(const char* name, int64_t& value) const {
    const Json* found = Find(name, [](const Json& j) { return j.is_number_integer(); });
    if (found != nullptr) value = found->get<int64_t>();
  }
  void operator()(const char* name, int& value) const {
    int64_t number = 0;
    (*this)(name, number);
    value = static_cast<int>(std::clamp<int64_t>(number, 0, 1 << 20));
  }
  void operator()(const char* name, bool& value) const {
    const Json* found = Find(name, [](const Json& j) { return j.is_boolean(); });
    if (found != nullptr) value = found->get<bool>();
  }
};

template <typename Visitor>
void Visit(const Visitor& visit, ReadSpeed& record) {
  visit("bytes", record.bytes);
  visit("threads", record.threads);
  visit("huge_pages", record.huge_pages);
  visit("bytes_per_second", record.bytes_per_second);
  visit("fastest_bytes_per_second", record.fastest);
  visit("loop", record.how);
}

template <typename Visitor>
void Visit(const Visitor& visit, ComputePeak& record) {
  visit("numbers", record.numbers);
  visit("isa", record.isa);
  visit("threads", record.threads);
  visit("macs_per_second", record.macs_per_second);
}

template <typename Visitor>
void Visit(const Visitor& visit, KernelSpeed& record) {
  visit("weights", record.weights);
  visit("numerics", record.numerics);
  visit("threads", record.threads);
  visit("isa", record.isa);
  visit("build", record.build);
  visit("stream_bytes_per_second", record.stream_bytes_per_second);
  visit("cached_bytes_per_second", record.cached_bytes_per_second);
  visit("macs_per_second", record.macs_per_second);
  visit("attention_macs_per_second", record.attention_macs_per_second);
  visit("token_attention_macs_per_second", record.token_attention_macs_per_second);
  visit("activation_bytes_per_second", record.activation_bytes_per_second);
  visit("op_seconds", record.op_seconds);
}

template <typename Visitor>
void Visit(const Visitor& visit, ThreadCost& record) {
  visit("threads", record.threads);
  visit("value", record.value);
}

template <typename Visitor>
void Visit(const Visitor& visit, Refusal& record) {
  visit("isa", record.isa);
  visit("reason", record.reason);
}

template <typename Visitor>
void Visit(const Visitor& visit, Machine& record) {
  visit("cpu", record.cpu);
  visit("cpus", record.cpus);
  visit("cores", record.cores);
  visit("l3_bytes", record.l3_bytes);
  visit("memory_bytes", record.memory_bytes);
  visit("transparent_huge_pages", record.huge_pages);
  visit("measured_at", record.measured_at);
  visit("seconds", record.seconds);
  visit("steal", record.steal);
  visit("other_load", record.other_load);
}

template <typename T>
void WriteList(Json& json, const char* name, const std::vector<T>& records) {
  Json list = Json::array();
  for (T record : records) {
    Json item = Json::object();
    Visit(Writer{item}, record);
    list.push_back(std::move(item));
  }
  json[name] = std::move(list);
}

template <typename T>
void ReadList(const Reader& reader, const char* name, std::vector<T>& records) {
  const Json* list = reader.Find(name, [](const Json& j) { return j.is_array(); });
  if (list == nullptr) return;
  for (const Json& item : *list) {
    T record;
    Visit(Reader{item, reader.what, reader.error}, record);
    records.push_back(std::move(record));
  }
}

// Entries of another version's form are left out: they would be of other kernels anyway.
void ReadKernels(const Reader& reader, std::vector<KernelSpeed>& kernels) {
  const Json* list = reader.Find("kernels", [](const Json& j) { return j.is_array(); });
  if (list == nullptr) return;
  for (const Json& item : *list) {
    KernelSpeed record;
    std::optional<Error> other_form;
    Visit(Reader{item, reader.what, other_form}, record);
    if (!other_form) kernels.push_back(std::move(record));
  }
}

}  // namespace

Json ToJson(const Machine& machine) {
  Json json = Json::object();
  Machine members = machine;  // one list of members reads and writes, so it takes no constant
  Visit(Writer{json}, members);
  json["notes"] = machine.notes;
  WriteList(json, "reads", machine.reads);
  WriteList(json, "peaks", machine.peaks);
  WriteList(json, "kernels", machine.kernels);
  WriteList(json, "clock_hertz", machine.clocks);
  WriteList(json, "barrier_seconds", machine.barriers);
  WriteList(json, "refused", machine.refused);
  return json;
}

Result<Machine> MachineFromJson(std::string_view text, std::string_view what) {
  LUCID_ASSIGN_OR_RETURN(const Json json, ParseJson(text, what));
  Machine machine;
  std::optional<Error> error;
  const Reader reader{json, what, error};
  Visit(reader, machine);
  if (const Json* notes = reader.Find("notes", [](const Json& j) { return j.is_array(); })) {
    for (const Json& note : *notes) {
      if (note.is_string()) machine.notes.push_back(note.get<std::string>());
    }
  }
  ReadList(reader, "reads", machine.reads);
  ReadList(reader, "peaks", machine.peaks);
  if (json.is_object() && json.contains("kernels")) ReadKernels(reader, machine.kernels);
  ReadList(reader, "clock_hertz", machine.clocks);
  ReadList(reader, "barrier_seconds", machine.barriers);
  ReadList(reader, "refused", machine.refused);
  if (error) return tl::unexpected<Error>(*std::move(error));
  return machine;
}

std::string MachinePath() {
  return LucidFolder() + "/machine.json";
}

Result<Machine> LoadMachine(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return MachineFromJson(text, path);
}

Status SaveMachine(const Machine& machine, const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos) LUCID_RETURN_IF_ERROR(MakeFolders(path.substr(0, slash)));
  return WriteFileAtomically(path, ToJson(machine).dump(2) + "\n");
}

std::string CpuModelName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

bool IsThisMachine(const Machine& machine) {
  return machine.cpu == CpuModelName() && machine.cpus == AllowedCpuCount() &&
         machine.cores == PhysicalCoreCount();
}

double Disturbance(const Machine& machine) {
  return machine.steal + machine.other_load;
}

std::string ThreadsText(int threads) {
  return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
}

const ReadSpeed* FindRead(const Machine& machine, int64_t bytes, int threads) {
  const ReadSpeed* best = nullptr;
  double best_distance = 0;
  for (const ReadSpeed& read : machine.reads) {
    const auto ratio = static_cast<double>(read.bytes) / static_cast<double>(bytes);
    const double distance = std::max(ratio, 1 / ratio);
    const int64_t beyond = kBeyondCaches * machine.l3_bytes;
    const bool both_beyond = beyond > 0 && read.bytes >= beyond && bytes >= beyond;
    if (read.threads != threads || (distance > kSimilarSize && !both_beyond)) continue;
    // The nearest size; of one size, the faster kind of pages.
    if (best == nullptr || distance < best_distance ||
        (distance == best_distance && read.bytes_per_second > best->bytes_per_second)) {
      best = &read;
      best_distance = distance;
    }
  }
  return best;
}

double TwoThreadsOverOne(const Machine& machine) {
  double least = 0;
  for (const ComputePeak& one : machine.peaks) {
    for (const ComputePeak& two : machine.peaks) {
      if (one.threads != 1 || two.threads != 2 || one.isa != two.isa ||
          one.numbers != two.numbers || one.macs_per_second <= 0) {
        continue;
      }
      const double ratio = two.macs_per_second / one.macs_per_second;
      least = least == 0 ? ratio : std::min(least, ratio);
    }
  }
  return least;
}

}  // namespace lucid
