#include "core/cuda/stream_times.h"

#include <algorithm>

#include "core/cuda/check.h"

namespace xtrain {
namespace {

// Measures the work between its calls, on one stream.
class StreamClock {
 public:
  explicit StreamClock(cudaStream_t stream) : stream_(stream) {
    for (cudaEvent_t& event : events_) XT_CUDA(cudaEventCreate(&event));
  }
  ~StreamClock() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;
  void start() { XT_CUDA(cudaEventRecord(events_[0], stream_)); }
  double stop_microseconds() {
    XT_CUDA(cudaEventRecord(events_[1], stream_));
    XT_CUDA(cudaEventSynchronize(events_[1]));
    float milliseconds = 0.0f;
    XT_CUDA(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
    return 1e3 * milliseconds;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t events_[2] = {};
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace

std::vector<double> times_in_turns(cudaStream_t stream, size_t ways,
                                   const std::function<void(size_t way)>& run) {
  constexpr int kRounds = 7, kCalls = 3;
  std::vector<std::vector<double>> microseconds(ways);
  StreamClock clock(stream);
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t i = 0; i < ways; ++i) {
      clock.start();
      for (int j = 0; j < kCalls; ++j) run(i);
      const double passed = clock.stop_microseconds() / kCalls;
      if (round > 0) microseconds[i].push_back(passed);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& of_way : microseconds) medians.push_back(median(of_way));
  return medians;
}

}  // namespace xtrain
