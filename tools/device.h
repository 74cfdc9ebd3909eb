#pragma once
// Where and how a program computes.

#include <string>

#include "core/context.h"

namespace CLI {
class App;
}

namespace xtrain {

// Adds the option --device to a program; `device` holds its default.
void add_device_option(CLI::App& app, std::string& device);

// Adds the flags --flash, the default, and --no-flash for attention.
void add_attention_flags(CLI::App& app, bool& flash);

// Whether "cpu", "cuda" or "auto", a GPU where there is one, is a GPU here. InputError for another
// name, and for "cuda" where there is none.
bool wants_gpu(const std::string& device);

// A context on the device of that name. `threads` 0: one a core; on the CPU they are bound to the
// cores.
Context context_on(const std::string& device, int threads = 0);

std::string device_text(Device device);  // "cpu", or "cuda:0, NVIDIA H200"

}  // namespace xtrain
