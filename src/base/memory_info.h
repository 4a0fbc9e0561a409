// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lucid {

// Bytes that can be taken without swapping: MemAvailable of /proc/meminfo, or what the control
// group's memory.max leaves if that is less. 0 if the system does not say.
int64_t AvailableMemory();

// Bytes of memory that this process has just now (its resident set). 0 if the system does not say.
// Source: Linux proc(5), statm.
int64_t ResidentMemory();

// The bytes of a line "<name>:   123 kB" of /proc/meminfo. Source: Linux proc(5).
std::optional<int64_t> MeminfoBytes(std::string_view meminfo, std::string_view name);

}  // namespace lucid
