// The version of Lucid, from the project line of CMakeLists.txt.
#pragma once

namespace lucid {

// "0.1.0"
const char* Version();

}  // namespace lucid
