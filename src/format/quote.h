// Quote: a name from an untrusted file, made safe for an error sentence or a terminal.
#pragma once

#include <string>
#include <string_view>

namespace lucid {

// `name` in double quotes, at most `max_bytes` of it; bytes outside printable ASCII as \xNN.
std::string Quote(std::string_view name, size_t max_bytes = 80);

}  // namespace lucid
