// Metrics: what GET /metrics tells Prometheus, under vLLM's names with the prefix "lucid:".
//
// Counters and gauges of the engine are read when somebody asks; times of requests are noted as
// their outputs come.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace lucid::server {

class Metrics {
 public:
  Metrics(const Engine& engine, const std::string& model);
  ~Metrics();

  // In the text format of Prometheus, version 0.0.4.
  std::string Text() const;

  // A request that was refused, with the status that it got.
  void Refused(int status);

  // The times of one request to the engine; outputs are noted in order.
  class Request {
   public:
    explicit Request(Metrics& metrics);
    void Note(const TokenOutput& output);

   private:
    using Clock = std::chrono::steady_clock;
    Metrics* metrics_;
    Clock::time_point asked_;
    // Of the replies together: the last output of each would cost a list, and gaps between replies
    // of one step are none.
    std::vector<Clock::time_point> last_;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lucid::server
