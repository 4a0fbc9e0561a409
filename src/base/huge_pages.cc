#include "base/huge_pages.h"

#include <sys/prctl.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

namespace lucid {

namespace {
std::filesystem::path SettingFile(const std::filesystem::path& root) {
  return root / "sys/kernel/mm/transparent_hugepage/enabled";
}
}  // namespace

std::string HugePageSetting(const std::filesystem::path& root) {
  std::ifstream stream(SettingFile(root));
  std::string line;  // the choices, the chosen one in brackets
  std::getline(stream, line);
  const size_t open = line.find('[');
  const size_t close = line.find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return "";
  return line.substr(open + 1, close - open - 1);
}

Status DemandHugePages(const std::filesystem::path& root) {
  const std::string setting = HugePageSetting(root);
  if (setting.empty()) {
    return Err(ErrorCode::kUnsupported,
               "this system has no transparent huge pages: {} has no setting",
               SettingFile(root).string());
  }
  if (setting == "never") {
    return Err(ErrorCode::kUnsupported,
               "this system gives no huge pages: {} says '{}', which root can set to madvise",
               SettingFile(root).string(), setting);
  }
  return {};
}

Status ForbidHugePages() {
  if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0) return {};
  return Err(ErrorCode::kIo, "cannot forbid huge pages: {}", std::strerror(errno));
}

}  // namespace lucid
