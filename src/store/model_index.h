// The index file of the model store: which models were pulled. Changes are made under a lock, so
// pulls and removals of several processes do not lose each other's entries.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/model_store.h"

namespace lucid {

// Entries ascending by name; none if there is no index yet. kInvalidFile names the index file.
Result<std::vector<StoredModel>> LoadModelIndex();

// The entry of that name, or nullopt.
Result<std::optional<StoredModel>> FindInModelIndex(const std::string& name);

// Adds the model, in place of an entry of the same name.
Status PutInModelIndex(const StoredModel& model);

// Removes the entry; false if there was none.
Result<bool> DropFromModelIndex(const std::string& name);

// The folder of a model inside the store. Every byte but letters, digits, '_', '-' and inner dots
// is written as %XX, so no name can lead out of the store and no two names share a folder.
std::string ModelFolder(const std::string& name);

}  // namespace lucid
