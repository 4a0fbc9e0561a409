// What `lucid profile` prints of a Profile, a function and a file for each format. profile_tables.h
// has what the text and the page share; docs/accounting.md the schemas.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/profile.h"

namespace lucid::cli {

// For a terminal. `full`: every op of every layer.
std::string ProfileText(const Engine& engine, const Profile& profile, bool full);
nlohmann::ordered_json ProfileJson(const Engine& engine, const Profile& profile);
// A page with charts, complete in itself (account/html_page.h).
std::string ProfileHtml(const Engine& engine, const Profile& profile, bool full);
// The timed steps as Chrome's trace events, which Perfetto opens: a track of steps, and one for
// every thread with its ops.
std::string ProfileEvents(const Engine& engine, const Profile& profile);

}  // namespace lucid::cli
