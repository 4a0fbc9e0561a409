#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

namespace lucid::server {
namespace {

using prometheus::ClientMetric;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Seconds; vLLM's buckets of each kind.
const Histogram::BucketBoundaries kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06,  0.08,
                                                 0.1,   0.25,  0.5,  0.75, 1.0,  2.5,   5.0,
                                                 7.5,   10.0,  20.0, 40.0, 80.0, 160.0, 640.0};
const Histogram::BucketBoundaries kBetweenTokens = {0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                                    0.15,  0.2,   0.3,  0.4,   0.5,  0.75,  1.0,
                                                    2.5,   5.0,   7.5,  10.0,  20.0};
const Histogram::BucketBoundaries kWhole = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,   2.5,
                                            5.0,  10.0,  15.0,  20.0,  30.0,  40.0,  50.0,
                                            60.0, 120.0, 240.0, 480.0, 960.0, 1920.0};
const Histogram::BucketBoundaries kTokens = {1,   2,    5,    10,   20,    50,    100,   200,
                                             500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

double SecondsBetween(std::chrono::steady_clock::time_point from,
                      std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

struct Metrics::Impl {
  Impl(const Engine& the_engine, const std::string& model)
      : engine(the_engine), labels({{"model_name", model}}) {}

  Histogram& MakeHistogram(const char* name, const char* help,
                           const Histogram::BucketBoundaries& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }
  MetricFamily Family(const char* name, const char* help, MetricType type,
                      ClientMetric metric) const {
    for (const auto& [key, value] : labels) metric.label.push_back({key, value});
    return {.name = name, .help = help, .type = type, .metric = {std::move(metric)}};
  }
  MetricFamily Gauge(const char* name, const char* help, double value) const {
    ClientMetric metric;
    metric.gauge.value = value;
    return Family(name, help, MetricType::Gauge, std::move(metric));
  }
  MetricFamily Counter(const char* name, const char* help, int64_t value) const {
    ClientMetric metric;
    metric.counter.value = static_cast<double>(value);
    return Family(name, help, MetricType::Counter, std::move(metric));
  }
  MetricFamily StepTokens(const StepSizes& sizes) const;
  std::vector<MetricFamily> OfEngine() const;

  const Engine& engine;
  prometheus::Labels labels;
  prometheus::Registry registry;
  Histogram& first_token = MakeHistogram("lucid:time_to_first_token_seconds",
                                         "From a request to its first token.", kFirstToken);
  Histogram& between_tokens = MakeHistogram("lucid:inter_token_latency_seconds",
                                            "From a token to the next.", kBetweenTokens);
  Histogram& whole = MakeHistogram("lucid:e2e_request_latency_seconds",
                                   "From a request to its last token.", kWhole);
  Histogram& queue = MakeHistogram("lucid:request_queue_time_seconds",
                                   "From a request to its first step.", kWhole);
  Histogram& prefill = MakeHistogram("lucid:request_prefill_time_seconds",
                                     "From a request's first step to its first token.", kWhole);
  Histogram& decode = MakeHistogram("lucid:request_decode_time_seconds",
                                    "From a request's first token to its last.", kWhole);
  Histogram& prompt_tokens =
      MakeHistogram("lucid:request_prompt_tokens", "Tokens of a request's prompt.", kTokens);
  Histogram& generated_tokens =
      MakeHistogram("lucid:request_generation_tokens", "Tokens of a request's reply.", kTokens);
  prometheus::Family<prometheus::Counter>& ended =
      prometheus::BuildCounter()
          .Name("lucid:request_success_total")
          .Help("Replies that ended, by finish_reason.")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& refused =
      prometheus::BuildCounter()
          .Name("lucid:request_refused_total")
          .Help("Requests that got an error, by status.")
          .Register(registry);
};

MetricFamily Metrics::Impl::StepTokens(const StepSizes& sizes) const {
  ClientMetric metric;
  uint64_t sum = 0;
  for (size_t i = 0; i < std::size(StepSizes::kLimits); ++i) {
    sum += static_cast<uint64_t>(sizes.steps[i]);
    metric.histogram.bucket.push_back({sum, static_cast<double>(StepSizes::kLimits[i])});
  }
  metric.histogram.sample_count = sum + static_cast<uint64_t>(sizes.steps.back());
  metric.histogram.sample_sum = static_cast<double>(sizes.tokens);
  return Family("lucid:iteration_tokens_total", "Tokens of a step.", MetricType::Histogram,
                std::move(metric));
}

std::vector<MetricFamily> Metrics::Impl::OfEngine() const {
  const EngineStats stats = engine.Stats();
  const SchedulerStats& scheduler = stats.scheduler;
  const KvCacheStats& cache = stats.cache;
  double used = 0;  // of the fullest pool
  for (size_t i = 0; i < cache.total.size(); ++i) {
    if (cache.total[i] == 0) continue;
    const auto held = static_cast<double>(cache.held[i]);
    used = std::max(used, held / static_cast<double>(cache.total[i]));
  }
  return {
      Gauge("lucid:num_requests_running", "Sequences that run.",
            static_cast<double>(scheduler.running)),
      Gauge("lucid:num_requests_waiting", "Sequences that wait for their first step.",
            static_cast<double>(stats.queued + scheduler.waiting)),
      Gauge("lucid:num_requests_swapped", "Sequences whose cache is swapped out.",
            static_cast<double>(scheduler.swapped)),
      Gauge("lucid:kv_cache_usage_perc", "Part of the cache that running sequences hold; 1: all.",
            used),
      Counter("lucid:prompt_tokens_total", "Tokens of prompts that were computed.",
              scheduler.prefill_tokens),
      Counter("lucid:generation_tokens_total", "Tokens that were generated.",
              scheduler.decode_tokens),
      Counter("lucid:prefix_cache_queries_total", "Prompts that were looked up in the cache.",
              cache.prefix_lookups),
      Counter("lucid:prefix_cache_hits_total", "Prompts of which the cache had a beginning.",
              cache.prefix_hits),
      Counter("lucid:prefix_cache_hit_tokens_total", "Tokens that the cache had.",
              cache.prefix_hit_tokens),
      Counter("lucid:num_preemptions_total", "Sequences that were preempted.",
              scheduler.preemptions_recompute + scheduler.preemptions_swap),
      Counter("lucid:recomputed_tokens_total", "Tokens computed again after a preemption.",
              scheduler.recomputed_tokens),
      Counter("lucid:steps_total", "Steps of the engine.", scheduler.steps),
      StepTokens(stats.step_sizes),
  };
}

Metrics::Metrics(const Engine& engine, const std::string& model)
    : impl_(std::make_unique<Impl>(engine, model)) {}
Metrics::~Metrics() = default;

std::string Metrics::Text() const {
  std::vector<MetricFamily> families = impl_->OfEngine();
  std::vector<MetricFamily> noted = impl_->registry.Collect();
  families.insert(families.end(), std::make_move_iterator(noted.begin()),
                  std::make_move_iterator(noted.end()));
  return prometheus::TextSerializer().Serialize(families);
}

void Metrics::Refused(int status) {
  prometheus::Labels labels = impl_->labels;
  labels["status"] = std::to_string(status);
  impl_->refused.Add(labels).Increment();
}

Metrics::Request::Request(Metrics& metrics) : metrics_(&metrics), asked_(Clock::now()) {}

void Metrics::Request::Note(const TokenOutput& output) {
  Impl& m = *metrics_->impl_;
  const auto index = static_cast<size_t>(output.index);
  if (last_.size() <= index) last_.resize(index + 1);
  if (output.id >= 0) {
    const bool first = last_[index] == Clock::time_point();
    if (!first) {
      m.between_tokens.Observe(SecondsBetween(last_[index], output.made));
    } else if (index == 0) {
      m.first_token.Observe(SecondsBetween(asked_, output.made));
    }
    last_[index] = output.made;
  }
  if (output.cause == StopCause::kNone) return;
  m.generated_tokens.Observe(static_cast<double>(output.stats.generated_tokens));
  prometheus::Labels labels = m.labels;
  labels["finished_reason"] = FinishReason(output.cause);
  m.ended.Add(labels).Increment();
  if (index > 0) return;
  m.whole.Observe(SecondsBetween(asked_, output.made));
  m.queue.Observe(output.stats.queue_seconds);
  m.prefill.Observe(output.stats.prefill_seconds);
  m.decode.Observe(output.stats.decode_seconds);
  m.prompt_tokens.Observe(static_cast<double>(output.stats.prompt_tokens));
}

}  // namespace lucid::server
