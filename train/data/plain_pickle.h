#pragma once
// Python pickles that hold plain data: whole numbers, truth values, None, text, lists and
// dictionaries, as pickle's protocols 2 to 5 write them.
//
// A pickle is a program for a small stack machine, which may call anything. Only the instructions
// that build such data are known here, and any other is refused, so nothing is ever called.

#include <string>
#include <string_view>

namespace xtrain {

// The data as JSON; numbers that are keys of dictionaries become text, as JSON wants it. Throws
// InputError, beginning with `where`, for an instruction that is not known, for what is cut short
// or does not fit together, and for text that is not UTF-8.
std::string json_of_pickle(std::string_view pickle, const std::string& where);

}  // namespace xtrain
