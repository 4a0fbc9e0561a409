#include "base/memory_info.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

namespace lucid {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<int64_t> LeadingNumber(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + begin) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> MeminfoBytes(std::string_view meminfo, std::string_view name) {
  size_t at = 0;
  while (at < meminfo.size()) {
    const size_t end = std::min(meminfo.find('\n', at), meminfo.size());
    const std::string_view line = meminfo.substr(at, end - at);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':')) {
      const std::optional<int64_t> kib = LeadingNumber(line.substr(name.size() + 1));
      if (!kib || *kib > (int64_t{1} << 52)) return std::nullopt;
      return *kib * 1024;
    }
    at = end + 1;
  }
  return std::nullopt;
}

int64_t AvailableMemory() {
  int64_t available = MeminfoBytes(ReadAll("/proc/meminfo"), "MemAvailable").value_or(0);
  // "max" where there is no limit.
  const std::optional<int64_t> most = LeadingNumber(ReadAll("/sys/fs/cgroup/memory.max"));
  const std::optional<int64_t> used = LeadingNumber(ReadAll("/sys/fs/cgroup/memory.current"));
  if (most && used) available = std::min(available, std::max<int64_t>(*most - *used, 0));
  return available;
}

int64_t ResidentMemory() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace lucid
