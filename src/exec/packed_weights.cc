#include "exec/packed_weights.h"

#include <algorithm>
#include <atomic>

#include "base/mmap_file.h"
#include "kernels/packed.h"

namespace lucid {
namespace {

// The matrices that an op multiplies with.
std::vector<Value> MatricesOf(const Op& op) {
  switch (op.kind) {
    case OpKind::kLinear:
      return {op.inputs[1]};
    case OpKind::kGluLinear:
      return {op.inputs[1], op.inputs[3]};
    case OpKind::kLinearGroup: {
      std::vector<Value> matrices;
      for (size_t i = 1; i < op.inputs.size(); i += 2) matrices.push_back(op.inputs[i]);
      return matrices;
    }
    default:
      return {};
  }
}

struct Job {
  Tensor w;
  std::byte* packed;
  int64_t strips;
  bool mapped;  // the source lies in a mapped file
};

constexpr int64_t kStripsAtOnce = 16;

// Strips are dealt out in small parts, since threads may lose their CPU meanwhile. The pages of a
// mapped source are given back as soon as all of it is packed, so that a model is not in memory
// twice.
void RunJobs(const std::vector<Job>& jobs, ThreadPool& pool) {
  std::vector<std::atomic<int64_t>> done(jobs.size());
  std::atomic<int64_t> next{0};
  pool.Run([&](int) {
    while (true) {
      int64_t part = next.fetch_add(1, std::memory_order_relaxed);
      size_t i = 0;
      for (; i < jobs.size(); ++i) {
        const int64_t parts = (jobs[i].strips + kStripsAtOnce - 1) / kStripsAtOnce;
        if (part < parts) break;
        part -= parts;
      }
      if (i == jobs.size()) return;
      const int64_t begin = part * kStripsAtOnce;
      const int64_t end = std::min(begin + kStripsAtOnce, jobs[i].strips);
      PackStrips(jobs[i].w, begin, end, jobs[i].packed);
      const int64_t before = done[i].fetch_add(end - begin, std::memory_order_acq_rel);
      if (before + end - begin == jobs[i].strips && jobs[i].mapped) {
        ReleaseMappedPages(jobs[i].w.data, static_cast<size_t>(jobs[i].w.bytes()));
      }
    }
  });
}

}  // namespace

Result<PackedWeights> PackedWeights::Pack(const Plan& plan, const Weights& weights,
                                          ThreadPool& pool) {
  std::vector<bool> wanted(plan.values.size(), false);
  for (const Op& op : plan.ops) {
    const std::vector<Value> matrices = MatricesOf(op);
    const bool all = std::all_of(matrices.begin(), matrices.end(), [&](Value v) {
      return FindPackedForm(weights[v].dtype) != nullptr;
    });
    for (const Value v : matrices) {
      if (all) wanted[static_cast<size_t>(v.id)] = true;
    }
  }
  PackedWeights packed;
  packed.places_.assign(plan.values.size(), nullptr);
  int64_t bytes = 0;
  for (const Value v : plan.Weights()) {
    if (wanted[static_cast<size_t>(v.id)]) bytes += PackedBytes(weights[v]);
  }
  if (bytes == 0) return packed;
  LUCID_ASSIGN_OR_RETURN(packed.memory_, Buffer::Allocate(static_cast<size_t>(bytes)));
  packed.memory_.PreferHugePages();
  std::vector<Job> jobs;
  std::byte* at = packed.memory_.data();
  for (const Value v : plan.Weights()) {
    if (!wanted[static_cast<size_t>(v.id)]) continue;
    const Tensor& w = weights[v];
    packed.places_[static_cast<size_t>(v.id)] = at;
    jobs.push_back({w, at, (w.rows() + kStripRows - 1) / kStripRows, weights.mapped(v)});
    at += PackedBytes(w);
  }
  RunJobs(jobs, pool);
  return packed;
}

}  // namespace lucid
