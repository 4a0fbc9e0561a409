// lucid pack: packs a model's weights ahead of its first start, checks what was packed, lists and
// deletes what is kept.
//
// store/pack_cache.h says where packed weights lie, engine/pack.h makes them.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "engine/pack.h"
#include "store/model_store.h"
#include "store/pack_cache.h"

namespace lucid::cli {
namespace {

struct PackFlags {
  std::string model, file;
  int threads = 0;
  bool verify = false, list = false, clear = false;
};

double GigabytesPerSecond(uint64_t bytes, double seconds) {
  return static_cast<double>(bytes) / 1e9 / seconds;
}

Status Pack(const std::string& model, const PackFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const PackReport report, PackModel(model, flags.threads, flags.file));
  fmt::print("packed {} matrices, {}, in {:.2f} s ({:.2f} GB/s)\n", report.matrices,
             FormatBytes(static_cast<int64_t>(report.bytes)), report.pack_seconds,
             GigabytesPerSecond(report.bytes, report.pack_seconds));
  fmt::print("wrote {} in {:.2f} s ({:.2f} GB/s)\n", report.file, report.write_seconds,
             GigabytesPerSecond(report.bytes, report.write_seconds));
  return {};
}

Status Verify(const std::string& model, const PackFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const PackReport report, VerifyPack(model, flags.threads, flags.file));
  fmt::print("{} is right: {} matrices, {}, compared in {:.2f} s ({:.2f} GB/s)\n", report.file,
             report.matrices, FormatBytes(static_cast<int64_t>(report.bytes)), report.pack_seconds,
             GigabytesPerSecond(report.bytes, report.pack_seconds));
  return {};
}

void List() {
  const std::string folder = PackCacheFolder();
  uint64_t total = 0;
  for (const PackCacheEntry& entry : ListPackCache(folder)) {
    fmt::print("{:%Y-%m-%dT%H:%M:%SZ}  {:>10}  {}\n", fmt::gmtime(entry.used_at),
               FormatBytes(static_cast<int64_t>(entry.bytes)), entry.path);
    total += entry.bytes;
  }
  fmt::print("{} of packed weights in {}\n", FormatBytes(static_cast<int64_t>(total)), folder);
}

Status Clear() {
  uint64_t total = 0;
  for (const PackCacheEntry& entry : ListPackCache(PackCacheFolder())) {
    if (::unlink(entry.path.c_str()) != 0) {
      return Err(ErrorCode::kIo, "cannot delete {}: {}", entry.path, std::strerror(errno));
    }
    total += entry.bytes;
  }
  fmt::print("deleted {} of packed weights\n", FormatBytes(static_cast<int64_t>(total)));
  return {};
}

Status Run(const PackFlags& flags) {
  if (flags.clear) return Clear();
  if (flags.list) {
    List();
    return {};
  }
  if (flags.model.empty()) {
    return Err(ErrorCode::kInvalidArgument, "no model is named, and neither --list nor --clear");
  }
  LUCID_ASSIGN_OR_RETURN(const std::string model, ResolveModel(flags.model));
  return flags.verify ? Verify(model, flags) : Pack(model, flags);
}

}  // namespace

void AddPackCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command =
      root.add_subcommand("pack", "Pack a model's weights ahead, so that starts only map them");
  command->footer(
      "Kernels read quantised weights in an order of their own. The first start of a model packs\n"
      "them and keeps them in $LUCID_HOME/packed, at most LUCID_PACK_GB (64) gigabytes, the last\n"
      "used ones; later starts map that file. 'lucid pack' does so ahead. A file MODEL.pack "
      "beside\n"
      "the model is used too, such as one that -o wrote for a folder that many machines read. A\n"
      "model whose size or time has changed is packed anew. Packed weights may be deleted at any\n"
      "time; --no-pack-cache of other commands neither reads nor writes them.");
  auto flags = std::make_shared<PackFlags>();
  CLI::Option* model = command->add_option("model,-m,--model", flags->model,
                                           "model: a file, a folder or a name of 'lucid models'");
  CLI::Option* output = command->add_option(
      "-o,--output", flags->file,
      "the file to write, or to verify, instead of the one in $LUCID_HOME/packed; of what is there "
      "only packed weights are replaced");
  CLI::Option* threads =
      command->add_option("-t,--threads", flags->threads, "threads; 0: one per physical core")
          ->check(CLI::Range(0, 1024))
          ->capture_default_str();
  CLI::Option* verify =
      command->add_flag("--verify", flags->verify,
                        "write nothing: pack again and compare every byte with what is there");
  CLI::Option* list =
      command->add_flag("--list", flags->list, "list what is kept, the last used first");
  CLI::Option* clear = command->add_flag("--clear", flags->clear, "delete all that is kept");
  list->excludes(clear);
  for (CLI::Option* other : {model, output, threads, verify}) {
    list->excludes(other);
    clear->excludes(other);
  }
  command->callback([flags, &context] {
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
