#include "engine/distribution_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

namespace lucid {
namespace {

constexpr std::string_view kMagic = "LUCIDKL1";
constexpr int64_t kMostNumbers = int64_t{1} << 40;  // of any count, so that products fit
constexpr float kRange = 16;                        // nats below the largest that have a level
constexpr size_t kRowHeader = sizeof(double) + 2 * sizeof(float);

size_t Padded(size_t bytes) {
  return (bytes + 7) / 8 * 8;
}
size_t RowBytes(int64_t vocab) {
  return Padded(kRowHeader + static_cast<size_t>(vocab) * sizeof(uint16_t));
}
template <typename T>
void Put(std::byte*& to, T value) {
  std::memcpy(to, &value, sizeof(value));
  to += sizeof(value);
}
template <typename T>
T Get(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

Result<DistributionWriter> DistributionWriter::Create(const std::string& path,
                                                      const DistributionHeader& header) {
  LUCID_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  LUCID_RETURN_IF_ERROR(file.Write(kMagic));
  const int64_t numbers[] = {header.vocab, header.windows.context, header.windows.stride,
                             header.windows.windows, std::ssize(header.text)};
  LUCID_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(numbers))));
  LUCID_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(header.text))));
  LUCID_RETURN_IF_ERROR(file.Pad(8));
  DistributionWriter writer(std::move(file));
  writer.row_.resize(RowBytes(header.vocab));
  return writer;
}

Status DistributionWriter::Add(std::span<const float> logits, double log_sum, TokenId token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  const float smallest =
      std::max(*std::min_element(logits.begin(), logits.end()), largest - kRange);
  const float step = (largest - smallest) / 65535;
  std::byte* to = row_.data();
  Put(to, static_cast<double>(logits[static_cast<size_t>(token)]) - log_sum);
  Put(to, static_cast<float>(smallest - log_sum));
  Put(to, step);
  const float inverse = step > 0 ? 1 / step : 0;
  for (const float x : logits) {
    const float level = std::clamp((x - smallest) * inverse, 0.0f, 65535.0f);
    Put(to, static_cast<uint16_t>(std::lrint(level)));
  }
  return file_.Write(row_);
}

Result<DistributionReader> DistributionReader::Open(const std::string& path) {
  DistributionReader reader;
  LUCID_ASSIGN_OR_RETURN(reader.file_, MmapFile::Open(path));
  const std::span<const std::byte> bytes = reader.file_.bytes();
  int64_t numbers[5] = {};
  const size_t start = kMagic.size() + sizeof(numbers);
  if (bytes.size() < start || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Err(ErrorCode::kInvalidFile,
               "{} is no file of distributions (lucid perplexity --save-base writes them)", path);
  }
  std::memcpy(numbers, bytes.data() + kMagic.size(), sizeof(numbers));
  for (const int64_t n : numbers) {
    if (n < 0 || n > kMostNumbers) {
      return Err(ErrorCode::kInvalidFile, "{}: {} in its header is out of range", path, n);
    }
  }
  DistributionHeader& header = reader.header_;
  header.vocab = numbers[0];
  header.windows = {.context = numbers[1], .stride = numbers[2], .windows = numbers[3]};
  const auto n_text = static_cast<size_t>(numbers[4]);
  if (n_text > (bytes.size() - start) / sizeof(TokenId)) {
    return Err(ErrorCode::kInvalidFile, "{} is cut off within its text", path);
  }
  LUCID_ASSIGN_OR_RETURN(const int64_t windows, CountWindows(numbers[4], header.windows));
  header.text.resize(n_text);
  std::memcpy(header.text.data(), bytes.data() + start, n_text * sizeof(TokenId));
  reader.at_ = Padded(start + n_text * sizeof(TokenId));
  const auto rows = static_cast<size_t>(windows * ScoredTokens(header.windows));
  const size_t rest = bytes.size() - std::min(bytes.size(), reader.at_);
  if (windows != numbers[3] || rest / RowBytes(header.vocab) != rows ||
      rest % RowBytes(header.vocab) != 0) {
    return Err(ErrorCode::kInvalidFile, "{} has {} bytes of distributions, not {} rows of {}", path,
               rest, rows, RowBytes(header.vocab));
  }
  return reader;
}

Result<SavedRow> DistributionReader::Next() {
  const std::span<const std::byte> bytes = file_.bytes();
  if (at_ >= bytes.size()) {
    return Err(ErrorCode::kInvalidFile, "{} has no more distributions", file_.path());
  }
  SavedRow row;
  row.token_log_prob = Get<double>(bytes, at_);
  row.lowest = Get<float>(bytes, at_ + sizeof(double));
  row.step = Get<float>(bytes, at_ + sizeof(double) + sizeof(float));
  row.levels = {reinterpret_cast<const uint16_t*>(bytes.data() + at_ + kRowHeader),
                static_cast<size_t>(header_.vocab)};
  at_ += RowBytes(header_.vocab);
  return row;
}

}  // namespace lucid
