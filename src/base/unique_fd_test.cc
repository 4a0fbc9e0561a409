#include "base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace lucid {
namespace {

TEST(UniqueFd, ClosesOnceAndMovesItsFile) {
  UniqueFd first(::open("/dev/null", O_RDONLY));
  ASSERT_TRUE(first.open());
  const int number = first.get();
  UniqueFd second(std::move(first));
  EXPECT_FALSE(first.open());  // NOLINT: what a moved-from owner promises
  EXPECT_EQ(second.get(), number);
  second.Close();
  EXPECT_FALSE(second.open());
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST(OpenRegularFile, TakesFilesAndRefusesTheRest) {
  const std::string base = testing::TempDir() + "/lucid_fd_" + std::to_string(getpid());
  std::ofstream(base) << "12345";
  const auto file = OpenRegularFile(base, ErrorCode::kIo);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->bytes, 5);
  EXPECT_EQ(OpenRegularFile(base + ".none", ErrorCode::kIo).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(OpenRegularFile("/", ErrorCode::kInvalidFile).error().code, ErrorCode::kInvalidFile);
  // A pipe nobody writes to: refused, not waited for.
  const std::string pipe = base + ".pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(OpenRegularFile(pipe, ErrorCode::kIo).error().code, ErrorCode::kIo);
  std::remove(pipe.c_str());
  std::remove(base.c_str());
}

}  // namespace
}  // namespace lucid
