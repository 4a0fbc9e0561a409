#include "account/hardware.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "account/limit.h"
#include "base/json.h"
#include "store/file_util.h"

namespace lucid {
namespace {

constexpr std::string_view kFloat32 = "float32", k16Bit = "16 bit", k8Bit = "8 bit";

struct BuiltIn {
  std::string_view key, name, source;
  double gigabytes_per_second, memory_gigabytes;
  double tera_32, tera_16, tera_8;  // FLOP/s, dense; 0: none of its own
};

// NVIDIA: data sheets of A100 80GB SXM, H100 SXM and H200 SXM, dense tensor core figures (those of
// the sheets "with sparsity" halved), FP32 of the plain units, FP8 for 8 bits (INT8 for A100).
// Apple: technical specifications of Mac Studio and MacBook Pro for bandwidth and largest memory;
// Apple gives no FLOP/s: GPU lanes x 2 x clock as reported, M2 Ultra 9728 x 1.398 GHz, M3 Max 5120
// x 1.398 GHz, M4 Max 5120 x 1.678 GHz, the same for 16-bit numbers.
constexpr BuiltIn kBuiltIn[] = {
    {"a100", "A100 SXM 80 GB", "data sheet", 2039, 80, 19.5, 312, 624},
    {"h100", "H100 SXM", "data sheet", 3350, 80, 66.9, 989.4, 1978.9},
    {"h200", "H200 SXM", "data sheet", 4800, 141, 66.9, 989.4, 1978.9},
    {"m2-ultra", "M2 Ultra, 76 GPU cores", "specifications, FLOP/s from lanes and clock", 800, 192,
     27.2, 0, 0},
    {"m3-max", "M3 Max, 40 GPU cores", "specifications, FLOP/s from lanes and clock", 400, 128,
     14.3, 0, 0},
    {"m4-max", "M4 Max, 40 GPU cores", "specifications, FLOP/s from lanes and clock", 546, 128,
     17.2, 0, 0},
};

Hardware Make(const BuiltIn& row) {
  Hardware hardware{.name = std::string(row.name),
                    .source = std::string(row.source),
                    .bytes_per_second = row.gigabytes_per_second * 1e9,
                    .memory_bytes = static_cast<int64_t>(row.memory_gigabytes * 1e9),
                    .peaks = {},
                    .kernels = {}};
  const std::pair<std::string_view, double> peaks[] = {
      {kFloat32, row.tera_32}, {k16Bit, row.tera_16}, {k8Bit, row.tera_8}};
  for (const auto& [numbers, tera] : peaks) {
    if (tera > 0) hardware.peaks.push_back({std::string(numbers), tera * 1e12});
  }
  return hardware;
}

using Json = nlohmann::ordered_json;

Result<double> PositiveNumber(const Json& json, const char* key, const std::string& path) {
  const auto found = json.find(key);
  if (found != json.end() && found->is_number() && found->get<double>() > 0) {
    return found->get<double>();
  }
  return Err(ErrorCode::kInvalidFile, "{}: \"{}\" is missing or not a number above 0", path, key);
}

Result<Hardware> FromUserFile(const Json& json, const std::string& path) {
  Hardware hardware;
  hardware.source = path;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) {
    return Err(ErrorCode::kInvalidFile, "{}: \"name\" is missing or not a text", path);
  }
  hardware.name = name->get<std::string>();
  LUCID_ASSIGN_OR_RETURN(const double read, PositiveNumber(json, "read_gb_per_s", path));
  hardware.bytes_per_second = read * 1e9;
  if (json.contains("memory_gb")) {
    LUCID_ASSIGN_OR_RETURN(const double memory, PositiveNumber(json, "memory_gb", path));
    hardware.memory_bytes = static_cast<int64_t>(memory * 1e9);
  }
  const auto peaks = json.find("tflop_per_s");
  if (peaks == json.end() || !peaks->is_object() || peaks->empty()) {
    return Err(ErrorCode::kInvalidFile,
               "{}: \"tflop_per_s\" is missing or not an object such as {{\"16 bit\": 100}}", path);
  }
  for (const auto& [numbers, value] : peaks->items()) {
    if (numbers != kFloat32 && numbers != k16Bit && numbers != k8Bit) {
      return Err(ErrorCode::kInvalidFile,
                 "{}: tflop_per_s has \"{}\"; it may have \"float32\", \"16 bit\" and \"8 bit\"",
                 path, numbers);
    }
    LUCID_ASSIGN_OR_RETURN(const double tera, PositiveNumber(*peaks, numbers.c_str(), path));
    hardware.peaks.push_back({numbers, tera * 1e12});
  }
  return hardware;
}

}  // namespace

double Hardware::FlopsFor(DType weights) const {
  const auto find = [this](std::string_view numbers) {
    const auto found = std::find_if(peaks.begin(), peaks.end(),
                                    [&](const TypePeak& p) { return p.numbers == numbers; });
    return found == peaks.end() ? 0.0 : found->flops;
  };
  const double single = find(kFloat32), half = find(k16Bit), eighth = find(k8Bit);
  const bool floats_of_8 = weights == DType::kF8E4M3 || weights == DType::kF8E5M2;
  if (floats_of_8 && eighth > 0) return eighth;
  if (weights == DType::kF32 && single > 0) return single;
  return half > 0 ? half : single > 0 ? single : eighth;
}

const std::vector<std::string>& HardwareNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const BuiltIn& row : kBuiltIn) list.emplace_back(row.key);
    return list;
  }();
  return names;
}

Result<Hardware> HardwareOf(const Machine& machine, int threads, int64_t bytes, bool eight_bits) {
  const ReadSpeed* read = FindRead(machine, bytes, threads);
  const std::optional<ArithmeticPeak> peak =
      BestArithmetic(machine.peaks, threads, eight_bits ? Factors::kInt8 : Factors::kInt8Pairs);
  if (read == nullptr || !peak) {
    return Err(ErrorCode::kNotFound,
               "there are no figures of {} for {} threads; 'lucid limits' measures them",
               machine.cpu, threads);
  }
  double single = 0;
  for (const ComputePeak& p : machine.peaks) {
    if (p.threads == threads && p.numbers == "float32")
      single = std::max(single, p.macs_per_second);
  }
  Hardware hardware{
      .name = fmt::format("{}, {} thread{}", machine.cpu, threads, threads == 1 ? "" : "s"),
      .source = fmt::format("measured {}", machine.measured_at),
      .bytes_per_second = read->bytes_per_second,
      .memory_bytes = machine.memory_bytes,
      .peaks = {{std::string(k16Bit), 2 * peak->macs_per_second}},
      .kernels = {}};
  if (single > 0) hardware.peaks.push_back({std::string(kFloat32), 2 * single});
  for (const KernelSpeed& kernel : machine.kernels) {
    const bool same_numerics = kernel.numerics == (eight_bits ? "fast" : "default");
    if (kernel.threads == threads && same_numerics) hardware.kernels.push_back(kernel);
  }
  return hardware;
}

Result<Hardware> FindHardware(const std::string& name, int threads, int64_t bytes,
                              bool eight_bits) {
  for (const BuiltIn& row : kBuiltIn) {
    if (row.key == name) return Make(row);
  }
  const Result<std::string> text = ReadFile(name);
  if (!text) {
    std::string names;
    for (const std::string& known : HardwareNames()) names += known + ", ";
    return Err(ErrorCode::kInvalidArgument,
               "there is no hardware '{}': it is this, {}or a file ({})", name, names,
               text.error().message);
  }
  LUCID_ASSIGN_OR_RETURN(const Json json, ParseJson(*text, name));
  if (!json.is_object()) {
    return Err(ErrorCode::kInvalidFile, "{}: it is not a JSON object", name);
  }
  if (!json.contains("reads")) return FromUserFile(json, name);
  LUCID_ASSIGN_OR_RETURN(const Machine machine, MachineFromJson(*text, name));
  return HardwareOf(machine, threads, bytes, eight_bits);
}

}  // namespace lucid
