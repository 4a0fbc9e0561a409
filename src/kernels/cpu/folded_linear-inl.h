// Linear, LinearGroup and GluLinear of packed weights for rows of prompts whose error budget allows
// any rounding to bytes (`--numerics fast`): folded_panel-inl.h says what is computed,
// prompt_linear-inl.h where rows of replies go, docs/adr/0016-folded-scales.md why, and what it
// costs.
//
// A first pass rounds the activations. Then every thread takes some strips of rows of the matrix: a
// slice of a panel of them, unpacked once, stays in the first-level cache and meets all rows, of
// which the same slice stays in the second level for all panels of a group.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/args.h"
#include "kernels/cpu/folded_panel-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/prompt_linear-inl.h"
#include "kernels/packed.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

// The method of prompts.
class OnFoldedPanels {
 public:
  static constexpr int64_t kUnit = kStripTile;
  static constexpr int64_t kPanelStrips = 8 * kStripTile;

  static const char* Refuse(const LinearArgs& a) {
    if (a.error_budget < kAnyError) return "wants an error budget that allows any rounding";
    return FindFold(a.w.dtype) != nullptr ? nullptr : "wants quantised weights";
  }
  static int64_t RowBytes(int64_t n_in) { return FoldedRowBytes(n_in); }
  static void Round(const LinearArgs& a, const RowRun& run, const ThreadSlot& thread) {
    const RoundedPrompts to = RoundedPromptsOf<OnFoldedPanels>(a, thread);
    const int64_t n_in = a.w.shape[1];
    const Share share = ShareOf(run.rows, kRowTile, thread);
    for (int64_t r = share.begin; r < share.end; ++r) {
      const int64_t tile = r / kRowTile * kRowTile;
      RoundFoldedRow(a.x + (run.begin + r) * n_in, n_in, r - tile, Least(kRowTile, run.rows - tile),
                     to.At(run.begin + tile));
    }
  }
  static size_t ScratchBytes(int64_t rows) {
    return static_cast<size_t>(kFoldedPanelBytes + 2 * rows * kWidth * 4);
  }
  static float* Up(const ThreadSlot& thread, int64_t rows) { return Sums(thread) + rows * kWidth; }
  void Strips(const LinearArgs& a, const StepView& step, const ThreadSlot& thread, int64_t begin,
              int64_t end, const PromptDestination& to) {
    const Product p(a, step, thread, to);
    for (int64_t s = begin; s < end; s += kPanelStrips) {
      p.Panels(s, Least(s + kPanelStrips, end));
    }
  }

 private:
  static constexpr int64_t kColumns = kStripTile * kStripRows;
  static constexpr int64_t kWidth = kPanelStrips * kStripRows;
  // [panel][rows][kColumns]: sums of panels that do not go straight to their place.
  static float* Sums(const ThreadSlot& thread) {
    return reinterpret_cast<float*>(thread.scratch + kFoldedPanelBytes);
  }

  class Product {
   public:
    Product(const LinearArgs& a, const StepView& step, const ThreadSlot& thread,
            const PromptDestination& to)
        : step_(step),
          to_(to),
          fold_(FindFold(a.w.dtype)),
          w_(reinterpret_cast<const uint8_t*>(a.packed)),
          bias_(a.bias),
          n_out_(a.w.shape[0]),
          x_(RoundedPromptsOf<OnFoldedPanels>(a, thread)),
          panel_(reinterpret_cast<uint8_t*>(thread.scratch)),
          sums_(Sums(thread)) {
      const PackedForm* form = FindPackedForm(a.w.dtype);
      strip_bytes_ = form->StripBytes(a.w.shape[1]);
      shape_ = StripShapeOf(*form, a.w.shape[1]);
    }

    // Strips [begin, end), a group of panels.
    void Panels(int64_t begin, int64_t end) const {
      const int64_t tiles = shape_.whole + (shape_.rest > 0 ? 1 : 0);
      const int64_t slice = SliceTiles(shape_.blocks());
      for (int64_t tile = 0; tile < tiles; tile += slice) {
        for (int64_t s = begin; s < end; s += kStripTile) {
          for (int v = 0; v < kStripTile; ++v) {
            // Beyond the last strip the panel repeats it; those sums are dropped.
            const int64_t strip = Least(s + v, end - 1);
            fold_(w_ + strip * strip_bytes_, shape_, tile, Least(tile + slice, tiles), v, panel_);
          }
          const PromptDestination sums = SumsOf(s, s - begin, end);
          ForPrompts(step_, [&](const RowRun& run) { Slice(run, tile * 8, sums); });
        }
      }
      for (int64_t s = begin; s < end; s += kStripTile) {
        const PromptDestination sums = SumsOf(s, s - begin, end);
        const int64_t n = s * kStripRows;
        const int64_t columns = Least(Least(kColumns, (end - s) * kStripRows), n_out_ - n);
        ForPrompts(step_, [&](const RowRun& run) { Finish(run, n, columns, sums); });
      }
    }

   private:
    // Where sums of the panel at strip `s` gather: in their place if all its columns have one, and
    // if they are not read again, slice by slice, while other panels pass.
    PromptDestination SumsOf(int64_t s, int64_t strip_of_group, int64_t end) const {
      const int64_t n = s * kStripRows;
      const bool whole = s + kStripTile <= end && n + kColumns <= n_out_;
      if (whole && shape_.blocks() <= kMaxSliceTiles * 8) return {to_.y + n, to_.ldy};
      return {sums_ + strip_of_group * kStripRows * step_.n_tokens, kColumns};
    }

    // The panel, a slice that begins with `block`, for the rows of a run.
    void Slice(const RowRun& run, int64_t block, const PromptDestination& sums) const {
      const int64_t blocks = Least(SliceTiles(shape_.blocks()) * 8, shape_.blocks() - block);
      for (int64_t r = 0; r < run.rows; r += kRowTile) {
        const int64_t rows = Least(kRowTile, run.rows - r);
        const int64_t row = run.begin + r;
        const uint8_t* x =
            x_.At(row) + rows * (block * kPackedBlock + block / kChunkBlocks * kChunkHeadBytes);
        kFoldedTiles[rows - 1](panel_, blocks, x, block == 0, sums.y + row * sums.ldy, sums.ldy);
      }
    }

    // Adds the bias and moves what is not yet in its place.
    void Finish(const RowRun& run, int64_t n, int64_t columns,
                const PromptDestination& sums) const {
      const bool there = sums.y == to_.y + n;
      if (there && bias_ == nullptr) return;
      for (int64_t row = run.begin; row < run.begin + run.rows; ++row) {
        const float* from = sums.y + row * sums.ldy;
        float* y = to_.y + row * to_.ldy + n;
        for (int64_t c = 0; c < columns; ++c) {
          y[c] = bias_ != nullptr ? from[c] + bias_[n + c] : from[c];
        }
      }
    }

    const StepView& step_;
    PromptDestination to_;
    FoldFn fold_;
    const uint8_t* w_;
    const float* bias_;
    int64_t n_out_;
    RoundedPrompts x_;
    uint8_t* panel_;
    float* sums_;
    int64_t strip_bytes_ = 0;
    StripShape shape_ = {};
  };
};

}  // namespace
}  // namespace lucid::LUCID_ISA

// Rows of a Kernel array; `isa` is a string literal. They come before those of `replies`.
#define LUCID_FOLDED_KERNELS(isa, replies) \
  LUCID_LINEARS_BY_PHASE("folded", isa, OnFoldedPanels, replies)
