#include <cupti.h>
#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "core/error.h"
#include "tools/kernel_times.h"

namespace xtrain {
namespace {

void check_cupti(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = "unknown error";
  cuptiGetResultString(result, &text);
  fail("kernel times: CUPTI must be free to use; ", what, " says ", text,
       "; run without another profiler");
}

// CUPTI hands its records over on threads of its own.
struct Notes {
  std::mutex mutex;
  std::map<std::string, KernelTime> by_name;  // mangled
};

Notes& notes() {
  static Notes all;
  return all;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  constexpr size_t kBytes = size_t{4} << 20, kAlignment = 8;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBytes));
  *size = *buffer ? kBytes : 0;
  *most_records = 0;  // as many as fit
}

void add(const char* name, uint64_t start, uint64_t end) {
  KernelTime& kernel = notes().by_name[name ? name : "?"];
  ++kernel.runs;
  kernel.seconds += 1e-9 * static_cast<double>(end - start);
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  {
    const std::lock_guard lock(notes().mutex);
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
      // Later versions of these records begin with the same fields.
      if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
        add(kernel->name, kernel->start, kernel->end);
      } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
        add("copy", copy->start, copy->end);
      } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
        add("fill", fill->start, fill->end);
      }
    }
  }
  std::free(buffer);
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = plain ? plain : name;
  std::free(plain);
  return result;
}

}  // namespace

bool can_note_kernels() {
  return true;
}

void note_kernels() {
  check_cupti(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "registering");
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    check_cupti(cuptiActivityEnable(kind), "enabling");
  }
}

std::vector<KernelTime> noted_kernels() {
  check_cupti(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flushing");
  const std::lock_guard lock(notes().mutex);
  std::vector<KernelTime> kernels;
  for (auto& [name, kernel] : notes().by_name) {
    kernel.name = demangled(name);
    kernels.push_back(kernel);
  }
  notes().by_name.clear();
  return kernels;
}

}  // namespace xtrain
