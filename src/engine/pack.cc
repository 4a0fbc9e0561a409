#include "engine/pack.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/timer.h"
#include "exec/packed_weights.h"
#include "models/load.h"
#include "store/pack_cache.h"

namespace lucid {
namespace {

int Threads(int n_threads) {
  return n_threads > 0 ? n_threads : PhysicalCoreCount();
}

Status MakeRoom(const std::string& file, uint64_t bytes) {
  LUCID_ASSIGN_OR_RETURN(const uint64_t limit, PackCacheLimit());
  if (bytes > limit) {
    return Err(ErrorCode::kCapacity,
               "the packed weights have {} bytes, and LUCID_PACK_GB allows {}; -o FILE writes them "
               "elsewhere",
               bytes, limit);
  }
  return MakePackRoom(file, bytes, limit);
}

bool IsAmong(const std::string& file, std::span<const std::string> files) {
  return std::any_of(files.begin(), files.end(), [&file](const std::string& each) {
    std::error_code ignored;
    return std::filesystem::equivalent(file, each, ignored);
  });
}

// Whether a file of that name may be written: nothing is there, or packed weights are. Nor may its
// name while it is unfinished be that of the model.
Status CheckReplaceable(const std::string& file, std::span<const std::string> model_files) {
  const auto refuse = [&file](std::string_view what) {
    return Err(ErrorCode::kInvalidArgument, "-o {} would replace {}", file, what);
  };
  if (IsAmong(file, model_files) || IsAmong(file + kUnfinishedPack, model_files)) {
    return refuse("the model itself");
  }
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(file, error);
  if (!std::filesystem::exists(there)) return {};
  if (!std::filesystem::is_regular_file(there)) return refuse("what is no regular file");
  if (!IsPackedFile(file)) return refuse("a file that holds no packed weights");
  return {};
}

// The file that a start would look at first.
Result<std::string> FindPack(const std::string& model) {
  std::string file = PackCacheFile(PackCacheFolder(), model);
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) file = PackFileBeside(model);
  if (!file.empty()) return file;
  return Err(ErrorCode::kNotFound, "there are no packed weights of {}; 'lucid pack' makes them",
             model);
}

}  // namespace

Result<PackReport> PackModel(const std::string& path, int n_threads, const std::string& file) {
  LUCID_ASSIGN_OR_RETURN(const Model model, LoadModel(path));
  if (!file.empty()) LUCID_RETURN_IF_ERROR(CheckReplaceable(file, model.checkpoint->files()));
  ThreadPool pool(Threads(n_threads));
  const Clock::time_point start = Clock::now();
  LUCID_ASSIGN_OR_RETURN(const PackedWeights packed,
                         PackedWeights::Pack(FusedPlan(model), model, pool));
  PackReport report{.file = file,
                    .matrices = packed.matrices(),
                    .bytes = packed.bytes(),
                    .pack_seconds = SecondsSince(start)};
  if (report.bytes == 0) {
    return Err(ErrorCode::kUnsupported, "{} has no matrices that are packed", path);
  }
  if (file.empty()) {
    report.file = PackCacheFile(PackCacheFolder(), path);
    LUCID_RETURN_IF_ERROR(MakeRoom(report.file, packed.file_bytes()));
  }
  const Clock::time_point packed_at = Clock::now();
  LUCID_ASSIGN_OR_RETURN(const bool written,
                         packed.Write(report.file, [](size_t) { return true; }));
  if (!written) {
    return Err(ErrorCode::kCapacity, "another process is writing {} at this moment", report.file);
  }
  report.write_seconds = SecondsSince(packed_at);
  return report;
}

Result<PackReport> VerifyPack(const std::string& path, int n_threads, const std::string& file) {
  PackReport report{.file = file};
  if (file.empty()) {
    LUCID_ASSIGN_OR_RETURN(report.file, FindPack(path));
  }
  LUCID_ASSIGN_OR_RETURN(const Model model, LoadModel(path));
  ThreadPool pool(Threads(n_threads));
  const Plan plan = FusedPlan(model);
  const Clock::time_point start = Clock::now();
  LUCID_ASSIGN_OR_RETURN(const PackedWeights packed,
                         PackedWeights::Verify(plan, model, pool, report.file));
  report.matrices = packed.matrices();
  report.bytes = packed.bytes();
  report.pack_seconds = SecondsSince(start);
  return report;
}

}  // namespace lucid
