// Huge pages of this process: large arrays ask for them anyway (Buffer::PreferHugePages); here that
// becomes an order, or is forbidden.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace lucid {

// The system's setting, "always", "madvise" or "never"; "" where there are no transparent huge
// pages. It is in sys/kernel/mm/transparent_hugepage under `root`; source: Linux
// Documentation/admin-guide/mm/transhuge.rst.
std::string HugePageSetting(const std::filesystem::path& root = "/");

// kUnsupported with the system's setting where it does not give huge pages to those who ask.
Status DemandHugePages(const std::filesystem::path& root);

// From here on no memory of this process gets huge pages, whoever asks. kIo if the system refuses.
Status ForbidHugePages();

}  // namespace lucid
