// PackWriter: keeps the packed weights of a model that has just been loaded for its next start, on
// a thread of lowest priority while the model is used.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

#include "exec/packed_weights.h"

namespace lucid {

class PackWriter {
 public:
  // `weights` must outlive the writer. What goes wrong is a warning in the log.
  PackWriter(const PackedWeights& weights, std::string file);
  // Waits for the end, if it is near (seconds): else gives up and removes what there is.
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  void Wait();

 private:
  void Write();

  const PackedWeights& weights_;
  const std::string file_;
  std::atomic<size_t> written_{0};  // bytes
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace lucid
