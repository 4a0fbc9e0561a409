// Huge pages of this process: large arrays ask for them anyway (Buffer::PreferHugePages); here that
// becomes an order, or is forbidden.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace lucid {

// kUnsupported with the system's setting where it does not give huge pages to those who ask. The
// setting is in sys/kernel/mm/transparent_hugepage under `root`; source: Linux
// Documentation/admin-guide/mm/transhuge.rst.
Status DemandHugePages(const std::filesystem::path& root);

// From here on no memory of this process gets huge pages, whoever asks. kIo if the system refuses.
Status ForbidHugePages();

}  // namespace lucid
