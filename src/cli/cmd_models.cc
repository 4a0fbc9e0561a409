// lucid models [rm NAME]: lists or removes the models of the local store.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "store/catalogue.h"
#include "store/model_store.h"

namespace lucid::cli {
namespace {

void PrintTable(const std::vector<StoredModel>& models) {
  size_t width = std::string_view("NAME").size();
  for (const StoredModel& model : models) width = std::max(width, model.name.size());
  fmt::print("{:<{}}  {:>10}  {:<20}  {}\n", "NAME", width, "SIZE", "PULLED", "PATH");
  for (const StoredModel& model : models) {
    fmt::print("{:<{}}  {:>6.1f} MiB  {:<20}  {}\n", model.name, width,
               static_cast<double>(model.bytes) / (1 << 20), model.pulled_at, model.path);
  }
}

void PrintJson(const std::vector<StoredModel>& models) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const StoredModel& model : models) {
    nlohmann::ordered_json entry;
    entry["name"] = model.name;
    entry["path"] = model.path;
    entry["source"] = model.source;
    entry["sha256"] = model.sha256;
    entry["bytes"] = model.bytes;
    entry["pulled_at"] = model.pulled_at;
    list.push_back(entry);
  }
  fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

// For shell completion: stored and built-in names, one a line.
void PrintNames(const std::vector<StoredModel>& models) {
  for (const StoredModel& model : models) fmt::print("{}\n", model.name);
  for (const CatalogueModel& built_in : Catalogue()) {
    const bool stored = std::any_of(models.begin(), models.end(), [&](const StoredModel& model) {
      return model.name == built_in.name;
    });
    if (!stored) fmt::print("{}\n", built_in.name);
  }
}

struct Flags {
  bool json = false;
  bool names = false;
  std::string remove;
};

void Run(const Flags& flags, CommandContext& context) {
  const auto models = ListModels();
  if (!models) return ReportError(models.error(), context);
  if (flags.json) return PrintJson(*models);
  if (flags.names) return PrintNames(*models);
  if (!models->empty()) return PrintTable(*models);
  fmt::print("No models in {}; 'lucid pull smollm2' fetches a small one.\n", ModelStoreFolder());
}

}  // namespace

void AddModelsCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("models", "List or remove the models of the local store");
  auto flags = std::make_shared<Flags>();
  command->add_flag("--json", flags->json, "print the list as JSON");
  command->add_flag("--names", flags->names, "print names only, built-in ones too");
  CLI::App* remove = command->add_subcommand("rm", "Delete a model from the store");
  remove->add_option("name", flags->remove, "name of the model")->required();
  command->require_subcommand(0, 1);
  command->callback([command, remove, flags, &context] {
    if (!command->got_subcommand(remove)) return Run(*flags, context);
    if (const Status removed = RemoveModel(flags->remove); !removed) {
      return ReportError(removed.error(), context);
    }
    fmt::print("removed {}\n", flags->remove);
  });
}

}  // namespace lucid::cli
