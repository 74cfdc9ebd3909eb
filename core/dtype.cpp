#include "core/dtype.h"

#include <ostream>

#include "core/error.h"

namespace xtrain {

std::string_view name_of(Dtype d) {
  switch (d) {
    case Dtype::f64:
      return "f64";
    case Dtype::f32:
      return "f32";
    case Dtype::bf16:
      return "bf16";
    case Dtype::i32:
      return "i32";
    case Dtype::i64:
      return "i64";
  }
  return "?";
}

Dtype dtype_from_name(std::string_view name) {
  for (Dtype d : {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::i32, Dtype::i64}) {
    if (name == name_of(d)) return d;
  }
  reject_input("dtype must be f64, f32, bf16, i32 or i64; got \"", name, "\"");
}

std::ostream& operator<<(std::ostream& out, Dtype d) {
  return out << name_of(d);
}

}  // namespace xtrain
