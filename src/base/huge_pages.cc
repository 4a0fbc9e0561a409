#include "base/huge_pages.h"

#include <sys/prctl.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

namespace lucid {

Status DemandHugePages(const std::filesystem::path& root) {
  const std::filesystem::path file = root / "sys/kernel/mm/transparent_hugepage/enabled";
  std::ifstream stream(file);
  std::string setting;  // the choices, the chosen one in brackets
  if (!std::getline(stream, setting)) {
    return Err(ErrorCode::kUnsupported, "this system has no transparent huge pages: there is no {}",
               file.string());
  }
  if (setting.find("[never]") != std::string::npos) {
    return Err(ErrorCode::kUnsupported,
               "this system gives no huge pages: {} says '{}', which root can set to madvise",
               file.string(), setting);
  }
  return {};
}

Status ForbidHugePages() {
  if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0) return {};
  return Err(ErrorCode::kIo, "cannot forbid huge pages: {}", std::strerror(errno));
}

}  // namespace lucid
