#include "exec/packed_weights.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/memory_info.h"
#include "kernels/packed.h"
#include "plan/pass.h"

namespace lucid {

// A matrix, or a stack of them that are packed one after the other.
struct PackedWeights::Matrix {
  Value value;
  std::string name;                     // of the weight slot
  Tensor w;                             // one matrix of a stack
  std::vector<const std::byte*> parts;  // where each of them lies
  bool mapped = false;                  // the source lies in a mapped file
  int64_t offset = 0;                   // in the image
  int64_t bytes = 0;                    // packed, all together

  int64_t strips_of_part() const { return (w.rows() + kStripRows - 1) / kStripRows; }
  int64_t strips() const { return strips_of_part() * std::ssize(parts); }
  int64_t strip_bytes() const { return bytes / strips(); }
};

namespace {

using Matrix = PackedWeights::Matrix;

// Kernels load whole cache lines.
constexpr int64_t kMatrixAlignment = 64;

// The matrices that an op multiplies with.
std::vector<Value> OperandsOf(const Op& op) {
  switch (op.kind) {
    case OpKind::kLinear:
      return {op.inputs[1]};
    case OpKind::kGluLinear:
      return {op.inputs[1], op.inputs[3]};
    case OpKind::kExpertGlu:
      return {op.inputs[2], op.inputs[4]};
    case OpKind::kExpertLinear:
      return {op.inputs[2]};
    case OpKind::kHeadLinear:
      return {op.inputs[1]};
    case OpKind::kLinearGroup: {
      std::vector<Value> matrices;
      for (size_t i = 1; i < op.inputs.size(); i += 2) matrices.push_back(op.inputs[i]);
      return matrices;
    }
    default:
      return {};
  }
}

// The matrices to pack and their places in the image, in order of first use.
std::vector<Matrix> MatricesOf(const Plan& plan, const Weights& weights,
                               bool with_quantised = true) {
  std::vector<bool> wanted(plan.values.size(), false);
  for (const Op& op : plan.ops) {
    const std::vector<Value> operands = OperandsOf(op);
    const bool all = std::all_of(operands.begin(), operands.end(), [&](Value v) {
      const DType type = weights[v].dtype;
      const PackedForm* form = FindPackedForm(type);
      return form != nullptr && (with_quantised || form->plain()) &&
             PackAlike(type, weights[operands[0]].dtype);
    });
    for (const Value v : operands) {
      if (all) wanted[static_cast<size_t>(v.id)] = true;
    }
  }
  std::vector<Matrix> matrices;
  int64_t offset = 0;
  for (const Value v : plan.Weights()) {
    if (!wanted[static_cast<size_t>(v.id)]) continue;
    Tensor w = weights[v];
    std::vector<const std::byte*> parts = {w.data};
    if (w.rank == 3) {
      parts.assign(weights.parts(v).begin(), weights.parts(v).end());
      w.rank = 2;
      w.shape = {w.shape[1], w.shape[2]};
    }
    const int64_t bytes = PackedBytes(w) * std::ssize(parts);
    matrices.push_back(
        {v, plan.Info(v).name, w, std::move(parts), weights.mapped(v), offset, bytes});
    offset += (matrices.back().bytes + kMatrixAlignment - 1) / kMatrixAlignment * kMatrixAlignment;
  }
  return matrices;
}

// Calls body(matrix, first strip, end) for all strips of all matrices. They are dealt out in small
// parts, since threads may lose their CPU meanwhile.
constexpr int64_t kStripsAtOnce = 16;

template <typename Body>
void ForAllStrips(const std::vector<Matrix>& matrices, ThreadPool& pool, const Body& body) {
  std::atomic<int64_t> next{0};
  pool.Run([&](int) {
    while (true) {
      int64_t part = next.fetch_add(1, std::memory_order_relaxed);
      size_t i = 0;
      for (; i < matrices.size(); ++i) {
        const int64_t parts = (matrices[i].strips() + kStripsAtOnce - 1) / kStripsAtOnce;
        if (part < parts) break;
        part -= parts;
      }
      if (i == matrices.size()) return;
      const int64_t begin = part * kStripsAtOnce;
      body(i, begin, std::min(begin + kStripsAtOnce, matrices[i].strips()));
    }
  });
}

int64_t ImageBytes(const std::vector<Matrix>& matrices) {
  return matrices.empty() ? 0 : matrices.back().offset + matrices.back().bytes;
}

// Packs strips [begin, end) of `m` to their places in `packed`, where all of its strips lie.
void PackStripsOf(const Matrix& m, int64_t begin, int64_t end, std::byte* packed) {
  const int64_t strips = m.strips_of_part();
  for (int64_t s = begin; s < end;) {
    const int64_t part = s / strips;
    const int64_t part_end = std::min(end, (part + 1) * strips);
    Tensor w = m.w;
    w.data = m.parts[static_cast<size_t>(part)];
    PackStrips(w, s - part * strips, part_end - part * strips,
               packed + part * strips * m.strip_bytes());
    s = part_end;
  }
}

void ReleaseSource(const Matrix& m) {
  if (!m.mapped) return;
  for (const std::byte* part : m.parts) {
    ReleaseMappedPages(part, static_cast<size_t>(m.w.bytes()));
  }
}

// The pages of a mapped source are given back as soon as all of it is packed, so that a model is
// not in memory twice.
void PackAll(const std::vector<Matrix>& matrices, ThreadPool& pool, std::byte* image) {
  std::vector<std::atomic<int64_t>> done(matrices.size());
  ForAllStrips(matrices, pool, [&](size_t i, int64_t begin, int64_t end) {
    const Matrix& m = matrices[i];
    PackStripsOf(m, begin, end, image + m.offset);
    const int64_t before = done[i].fetch_add(end - begin, std::memory_order_acq_rel);
    if (before + end - begin == m.strips()) ReleaseSource(m);
  });
}

// What the image follows from: the matrices, and the files they come from. Files are told apart by
// size and time; whether their weights are those of the image is looked at, see SamplesFit.
PackKey KeyOf(const std::vector<Matrix>& matrices, std::span<const std::string> files) {
  std::string facts;
  for (const Matrix& m : matrices) {
    facts += fmt::format("{} {} {} {} {} {}\n", m.name, Name(m.w.dtype),
                         m.w.rows() * std::ssize(m.parts), m.w.cols(), m.offset, m.bytes);
  }
  for (const std::string& file : files) {
    struct stat info {};  // stays zero for a model that lies in memory
    ::stat(file.c_str(), &info);
    facts += fmt::format("{} {}.{:09}\n", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  }
  const XXH128_hash_t hash = XXH3_128bits(facts.data(), facts.size());
  return PackKey{hash.low64, hash.high64};
}

// Whether strips [begin, end) of a matrix are in the image what packing them gives.
bool StripsFit(const Matrix& m, int64_t begin, int64_t end, const std::byte* image,
               std::vector<std::byte>& scratch) {
  const int64_t strips = m.strips_of_part();
  for (int64_t s = begin; s < end;) {
    const int64_t part = s / strips;
    const int64_t part_end = std::min(end, (part + 1) * strips);
    const int64_t row = (s - part * strips) * kStripRows;
    Tensor rows = m.w;
    rows.rank = 2;
    rows.shape = {std::min((part_end - part * strips) * kStripRows, m.w.rows()) - row, m.w.cols()};
    rows.data = m.parts[static_cast<size_t>(part)] + row * m.w.row_bytes();
    const auto bytes = static_cast<size_t>((part_end - s) * m.strip_bytes());
    scratch.resize(bytes);
    PackStrips(rows, 0, part_end - s, scratch.data());
    const std::byte* packed = image + m.offset + s * m.strip_bytes();
    if (std::memcmp(scratch.data(), packed, bytes) != 0) return false;
    s = part_end;
  }
  return true;
}

// Packs one strip of every matrix and compares: an image of other weights, or of another form of
// packing, does not pass, nor a file that lost much of its content. The choice of the strip spreads
// over the image.
bool SamplesFit(const std::vector<Matrix>& matrices, ThreadPool& pool, const std::byte* image) {
  std::atomic<size_t> next{0};
  std::atomic<bool> fits{true};
  pool.Run([&](int) {
    std::vector<std::byte> scratch;
    for (size_t i = next++; i < matrices.size() && fits; i = next++) {
      const Matrix& m = matrices[i];
      const auto strip = static_cast<int64_t>(i * 0x9E3779B1u % static_cast<uint64_t>(m.strips()));
      if (!StripsFit(m, strip, strip + 1, image, scratch)) fits = false;
      ReleaseSource(m);
    }
  });
  return fits;
}

// The whole image, on all threads. kIo if it cannot be read.
Status Populate(const MmapFile& file, ThreadPool& pool) {
  constexpr size_t kPart = size_t{32} << 20;
  const std::span<const std::byte> bytes = file.bytes().subspan(kImageOffset);
  // What there is no memory for is read when it is used.
  if (const int64_t most = AvailableMemory(); most > 0 && std::ssize(bytes) > most) return {};
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  pool.Run([&](int) {
    for (size_t at = kPart * next++; at < bytes.size() && !failed; at = kPart * next++) {
      const size_t n = std::min(kPart, bytes.size() - at);
      if (!PopulateMappedPages(bytes.data() + at, n)) failed = true;
    }
  });
  if (failed) return Err(ErrorCode::kIo, "cannot read {}", file.path());
  return {};
}

}  // namespace

Plan FusedPlan(const Model& model) {
  return FusePlan(model.plan, [&](Value a, Value b) {
    return PackAlike(model.weights[a].dtype, model.weights[b].dtype);
  });
}

PackedWeights::PackedWeights(const Plan& plan, const Model& model,
                             const std::vector<Matrix>& matrices)
    : places_(plan.values.size(), nullptr),
      bytes_(static_cast<size_t>(ImageBytes(matrices))),
      matrices_(std::ssize(matrices)),
      key_(KeyOf(matrices, model.checkpoint != nullptr ? model.checkpoint->files()
                                                       : std::span<const std::string>())) {}

void PackedWeights::SetPlaces(const std::vector<Matrix>& matrices) {
  for (const Matrix& m : matrices) {
    places_[static_cast<size_t>(m.value.id)] = image().data() + m.offset;
  }
}

Result<PackedWeights> PackedWeights::Pack(const Plan& plan, const Model& model, ThreadPool& pool,
                                          bool with_quantised) {
  const std::vector<Matrix> matrices = MatricesOf(plan, model.weights, with_quantised);
  PackedWeights packed(plan, model, matrices);
  if (matrices.empty()) return packed;
  LUCID_ASSIGN_OR_RETURN(packed.memory_, Buffer::Allocate(packed.bytes_));
  packed.memory_.PreferHugePages();
  PackAll(matrices, pool, packed.memory_.data());
  packed.SetPlaces(matrices);
  return packed;
}

PackedWeights PackedWeights::Outline(const Plan& plan, const Model& model, bool with_quantised) {
  alignas(kMatrixAlignment) static constexpr std::byte kNowhere[kMatrixAlignment] = {};
  const std::vector<Matrix> matrices = MatricesOf(plan, model.weights, with_quantised);
  PackedWeights packed(plan, model, matrices);
  for (const Matrix& m : matrices) packed.places_[static_cast<size_t>(m.value.id)] = kNowhere;
  return packed;
}

Result<PackedWeights> PackedWeights::Map(const Plan& plan, const Model& model, ThreadPool& pool,
                                         const std::string& file) {
  const std::vector<Matrix> matrices = MatricesOf(plan, model.weights);
  PackedWeights packed(plan, model, matrices);
  LUCID_ASSIGN_OR_RETURN(packed.map_, OpenPackedFile(file, packed.key_, packed.bytes_));
  LUCID_RETURN_IF_ERROR(Populate(packed.map_, pool));
  if (!SamplesFit(matrices, pool, packed.image().data())) {
    return Err(ErrorCode::kInvalidFile, "{} does not hold this model's weights", file);
  }
  packed.SetPlaces(matrices);
  return packed;
}

Result<PackedWeights> PackedWeights::Open(const Plan& plan, const Model& model, ThreadPool& pool,
                                          const std::string& file) {
  LUCID_ASSIGN_OR_RETURN(PackedWeights packed, Map(plan, model, pool, file));
  LUCID_RETURN_IF_ERROR(CheckImage(packed.map_, pool, /*anyway=*/false));
  return packed;
}

Result<PackedWeights> PackedWeights::Load(const Plan& plan, const Model& model, ThreadPool& pool,
                                          std::span<const std::string> files) {
  for (const std::string& file : files) {
    Result<PackedWeights> packed = Open(plan, model, pool, file);
    if (packed) return packed;
    if (packed.error().code == ErrorCode::kInvalidFile) {
      LogWarn("{}, so the weights are packed anew", packed.error().message);
    } else if (packed.error().code != ErrorCode::kNotFound) {
      LogInfo("{}", packed.error().message);  // writing it will not go better, and warn
    }
  }
  return Pack(plan, model, pool);
}

std::span<const std::byte> PackedWeights::image() const {
  return file().empty() ? std::span<const std::byte>(memory_.data(), bytes_)
                        : map_.bytes().subspan(kImageOffset);
}

Result<bool> PackedWeights::Write(const std::string& path,
                                  const std::function<bool(size_t)>& go_on) const {
  return WritePackedFile(path, key_, image(), go_on);
}

Result<PackedWeights> PackedWeights::Verify(const Plan& plan, const Model& model, ThreadPool& pool,
                                            const std::string& file) {
  LUCID_ASSIGN_OR_RETURN(PackedWeights packed, Map(plan, model, pool, file));
  const std::vector<Matrix> matrices = MatricesOf(plan, model.weights);
  const std::byte* image = packed.image().data();
  std::atomic<size_t> first{matrices.size()};  // of those that differ
  ForAllStrips(matrices, pool, [&](size_t i, int64_t begin, int64_t end) {
    std::vector<std::byte> scratch;
    if (StripsFit(matrices[i], begin, end, image, scratch)) return;
    for (size_t least = first; i < least && !first.compare_exchange_weak(least, i);) {
    }
  });
  if (first < matrices.size()) {
    return Err(ErrorCode::kInvalidFile, "{} is damaged: {} is not what packing the model gives",
               file, matrices[first].name);
  }
  // Nor may the bytes between them be others: the file is what was written, or it is not right.
  LUCID_RETURN_IF_ERROR(CheckImage(packed.map_, pool, /*anyway=*/true));
  return packed;
}

}  // namespace lucid
