#include "exec/packed_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/unique_fd.h"
#include "format/test_util.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr PackKey kKey{0x0123456789abcdef, 42};
constexpr size_t kHeaderBytes = 56;

bool GoOn(size_t) {
  return true;
}

class PackedFileTest : public testing::Test {
 protected:
  PackedFileTest() : image_(100'001) {
    for (size_t i = 0; i < image_.size(); ++i) image_[i] = static_cast<std::byte>(i * 7 % 251);
  }
  void Write() {
    const auto written = WritePackedFile(path_, kKey, image_, GoOn);
    ASSERT_TRUE(written) << written.error().message;
    ASSERT_TRUE(*written);
  }
  // The complaint about the file as it is now, "" if there is none.
  std::string Complaint(const PackKey& key = kKey) const {
    const auto file = OpenPackedFile(path_, key, image_.size());
    return file ? "" : file.error().message;
  }

  TempFolder folder_;
  const std::string path_ = folder_.File("m.pack");
  const std::string part_ = path_ + ".part";
  std::vector<std::byte> image_;
};

TEST_F(PackedFileTest, GivesBackWhatWasWritten) {
  Write();
  const auto file = OpenPackedFile(path_, kKey, image_.size());
  ASSERT_TRUE(file) << file.error().message;
  const auto got = file->bytes().subspan(kImageOffset);
  ASSERT_EQ(got.size(), image_.size());
  EXPECT_EQ(std::memcmp(got.data(), image_.data(), got.size()), 0);
  EXPECT_FALSE(fs::exists(part_));
}

TEST_F(PackedFileTest, AbsentIsNotFound) {
  EXPECT_EQ(OpenPackedFile(path_, kKey, 1).error().code, ErrorCode::kNotFound);
}

TEST_F(PackedFileTest, AnotherKeyOrSizeIsRefused) {
  Write();
  EXPECT_THAT(Complaint({kKey.low, kKey.high + 1}), HasSubstr("another version of the model"));
  EXPECT_FALSE(OpenPackedFile(path_, kKey, image_.size() - 1));
  EXPECT_FALSE(OpenPackedFile(path_, kKey, image_.size() + 1));
}

TEST_F(PackedFileTest, EveryLengthButTheRightOneIsRefused) {
  Write();
  const size_t size = kImageOffset + image_.size();
  for (const size_t length : {size + 1, size - 1, size_t{kImageOffset}, size_t{kImageOffset - 1},
                              kHeaderBytes, kHeaderBytes - 1, size_t{7}, size_t{1}, size_t{0}}) {
    fs::resize_file(path_, length);
    EXPECT_THAT(Complaint(), HasSubstr(path_)) << length;
  }
}

TEST_F(PackedFileTest, EveryChangedBitOfTheHeaderIsRefused) {
  Write();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  std::string header(kHeaderBytes, '\0');
  file.read(header.data(), kHeaderBytes);
  for (size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    std::string changed = header;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    file.seekp(0).write(changed.data(), kHeaderBytes).flush();
    EXPECT_NE(Complaint(), "") << "bit " << bit;
  }
  file.seekp(0).write(header.data(), kHeaderBytes).flush();
  EXPECT_EQ(Complaint(), "");
}

TEST_F(PackedFileTest, AFileOfAnotherVersionIsToldApart) {
  Write();
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary).seekp(8).put('\1');
  EXPECT_THAT(Complaint(), HasSubstr("another version of lucid"));
}

TEST_F(PackedFileTest, EveryDamagedByteOfTheImageIsFound) {
  image_.resize(size_t{20} << 20, std::byte{5});  // three parts, the last one shorter
  Write();
  ThreadPool pool(2);
  const auto check = [&](bool anyway) {
    return CheckImage(OpenPackedFile(path_, kKey, image_.size()).value(), pool, anyway);
  };
  ASSERT_TRUE(check(false));
  for (const size_t at : {size_t{0}, (size_t{8} << 20) - 1, size_t{8} << 20, image_.size() - 1}) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    const auto place = static_cast<std::streamoff>(kImageOffset + at);
    file.seekp(place).put(static_cast<char>(image_[at] ^ std::byte{64})).flush();
    const Status damaged = check(false);
    ASSERT_FALSE(damaged) << at;
    EXPECT_EQ(damaged.error().code, ErrorCode::kInvalidFile);
    EXPECT_THAT(damaged.error().message, HasSubstr(path_ + " is damaged"));
    file.seekp(place).put(static_cast<char>(image_[at])).flush();
    EXPECT_TRUE(check(false)) << at;
  }
}

TEST_F(PackedFileTest, AnImageThatWasRightIsReadAgainOnlyIfAsked) {
  Write();
  ThreadPool pool(1);
  const auto check = [&](bool anyway) {
    return CheckImage(OpenPackedFile(path_, kKey, image_.size()).value(), pool, anyway);
  };
  ASSERT_TRUE(check(false));
  const fs::file_time_type noted = fs::last_write_time(path_);
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(kImageOffset))
      .put('x');
  EXPECT_FALSE(check(false));  // its time has changed with it
  fs::last_write_time(path_, noted);
  EXPECT_TRUE(check(false));
  EXPECT_FALSE(check(true));
}

TEST_F(PackedFileTest, KnowsPackedFilesByTheirBeginning) {
  Write();
  EXPECT_TRUE(IsPackedFile(path_));
  EXPECT_FALSE(IsPackedFile(folder_.File("absent")));
  EXPECT_FALSE(IsPackedFile(folder_.path()));
  EXPECT_FALSE(IsPackedFile(folder_.Put("short", "LUCIDPK")));
  EXPECT_FALSE(IsPackedFile(folder_.Put("other", "GGUF and much more")));
}

TEST_F(PackedFileTest, AFileThatIsWrittenByAnotherProcessIsLeftAlone) {
  const UniqueFd other(::open(part_.c_str(), O_RDWR | O_CREAT, 0666));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  const auto written = WritePackedFile(path_, kKey, image_, GoOn);
  ASSERT_TRUE(written);
  EXPECT_FALSE(*written);
  EXPECT_TRUE(fs::exists(part_));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(PackedFileTest, WhatAKilledProcessLeftIsWrittenAnew) {
  std::ofstream(part_) << std::string(3'000'000, 'x');
  Write();
  EXPECT_EQ(Complaint(), "");
  EXPECT_FALSE(fs::exists(part_));
}

TEST_F(PackedFileTest, AFileInUseIsReplacedNotChanged) {
  Write();
  const auto old = OpenPackedFile(path_, kKey, image_.size());
  ASSERT_TRUE(old);
  image_[0] = std::byte{99};
  Write();
  EXPECT_EQ(old->bytes()[kImageOffset], std::byte{0});
  EXPECT_EQ(OpenPackedFile(path_, kKey, image_.size())->bytes()[kImageOffset], std::byte{99});
}

TEST_F(PackedFileTest, CancellingOrFailingLeavesNothing) {
  const auto cancelled = WritePackedFile(path_, kKey, image_, [](size_t) { return false; });
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  fs::create_directory(path_);  // which no file can replace
  const auto failed = WritePackedFile(path_, kKey, image_, GoOn);
  EXPECT_EQ(failed.error().code, ErrorCode::kIo);
  EXPECT_THAT(failed.error().message, HasSubstr(path_));
  EXPECT_FALSE(fs::exists(part_));
  const std::string nowhere = folder_.File("absent/m.pack");
  EXPECT_EQ(WritePackedFile(nowhere, kKey, image_, GoOn).error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace lucid
