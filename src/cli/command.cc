#include "cli/command.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace lucid::cli {

void ReportError(const Error& error, CommandContext& context) {
  std::fflush(stdout);  // what was printed before comes first
  fmt::print(stderr, "lucid: {}\n", error.message);
  context.exit_code = 1;
}

Result<std::string> ReadTextFile(const std::string& path) {
  const bool from_stdin = path == "-";
  const std::string shown = from_stdin ? "standard input" : path;
  const std::unique_ptr<FILE, int (*)(FILE*)> opened(
      from_stdin ? nullptr : std::fopen(path.c_str(), "rb"),
      [](FILE* f) { return f == nullptr ? 0 : std::fclose(f); });
  FILE* file = from_stdin ? stdin : opened.get();
  if (file == nullptr) {
    return Err(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}", shown,
               std::strerror(errno));
  }
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), file)) text.append(buffer, n);
  if (std::ferror(file) != 0) {
    return Err(ErrorCode::kIo, "cannot read {}: {}", shown, std::strerror(errno));
  }
  return text;
}

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace lucid::cli
