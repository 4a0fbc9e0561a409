// What `lucid account` prints of a Study, a function and a file for each format. account_tables.h
// has what the table and the page share; docs/accounting.md the schemas.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/study.h"

namespace lucid::cli {

// For a terminal. `full`: every op of every layer.
std::string AccountText(const Study& study, bool full);
nlohmann::ordered_json AccountJson(const Study& study);
// A line for every op of both phases.
std::string AccountCsv(const Study& study);
// A page with charts, complete in itself (account/html_page.h).
std::string AccountHtml(const Study& study, bool full);

}  // namespace lucid::cli
