#include "core/tensor.h"

#include <limits>

#include "core/copy.h"
#include "core/error.h"
#include "support/catch.h"

using namespace xtrain;
using Ints = std::vector<int64_t>;

namespace {

Tensor counted(const Context& ctx, const Shape& shape) {
  Ints values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i);
  return from_host(ctx, values, shape);
}

Ints elements(const Context& ctx, const Tensor& x) {
  return to_host<int64_t>(ctx, x);
}

// Whether place(i, j, k) = places[0] + i s0 + j s1 + k s2 for some strides.
bool lies_regularly(const Ints& places, const Shape& shape) {
  const auto place = [&](int64_t i, int64_t j, int64_t k) {
    return places[(i * shape[1] + j) * shape[2] + k] - places[0];
  };
  for (int64_t i = 0; i < shape[0]; ++i) {
    for (int64_t j = 0; j < shape[1]; ++j) {
      for (int64_t k = 0; k < shape[2]; ++k) {
        const int64_t s0 = i ? place(1, 0, 0) : 0, s1 = j ? place(0, 1, 0) : 0;
        const int64_t s2 = k ? place(0, 0, 1) : 0;
        if (place(i, j, k) != i * s0 + j * s1 + k * s2) return false;
      }
    }
  }
  return true;
}

constexpr int64_t kHuge = int64_t{1} << 40;

}  // namespace

TEST_CASE("views show the elements that their names say", "[core]") {
  const Context ctx = cpu_context(1);
  const Tensor x = counted(ctx, {2, 3, 4});
  CHECK(x.strides() == Strides{12, 4, 1});
  CHECK(elements(ctx, x.reshape({4, 6}).slice(0, 2, 1)) == Ints{12, 13, 14, 15, 16, 17});
  CHECK(elements(ctx, x.slice(-1, 1, 2).slice(0, 1, 1)) == Ints{13, 14, 17, 18, 21, 22});
  CHECK(elements(ctx, x.transpose(0, 2).slice(0, 1, 1)) == Ints{1, 13, 5, 17, 9, 21});
  const int order[] = {2, 0, 1};
  const Tensor p = x.permute(order);
  CHECK(p.shape() == Shape{4, 2, 3});
  CHECK(elements(ctx, p.slice(0, 3, 1)) == Ints{3, 7, 11, 15, 19, 23});
  const Tensor row = x.slice(0, 0, 1).slice(1, 2, 1).reshape({4});
  CHECK(elements(ctx, row.expand({2, 4})) == Ints{8, 9, 10, 11, 8, 9, 10, 11});
  for (const Tensor& view : {p, row, x.slice(0, 1, 1)}) CHECK(view.shares_storage(x));
}

TEST_CASE("views that do not fit are refused with their values", "[core]") {
  const Context ctx = cpu_context(1);
  const Tensor x = counted(ctx, {2, 3});
  CHECK_THROWS_WITH(x.reshape({4}), "reshape: the number of elements must stay; got (2, 3) to (4)");
  CHECK_THROWS_WITH(x.slice(1, 2, 2),
                    "slice: [2, 2 + 2) must lie within size 3 of dimension 1 of (2, 3)");
  CHECK_THROWS_AS(x.slice(1, -1, 1), Error);
  CHECK_THROWS_AS(x.slice(1, 0, -1), Error);
  CHECK_THROWS_AS(x.slice(1, 2, std::numeric_limits<int64_t>::max()), Error);
  CHECK_THROWS_WITH(x.transpose(0, 2), "tensor: dimension must be in [-2, 2); got 2");
  const int twice[] = {0, 0};
  CHECK_THROWS_WITH(x.permute(twice), "permute: each dimension must be named once, shape (2, 3)");
  const int few[] = {0};
  CHECK_THROWS_AS(x.permute(few), Error);
  CHECK_THROWS_WITH(x.expand({4, 3}), "expand: (2, 3) cannot repeat into (4, 3)");
  CHECK_THROWS_WITH(x.expand({3}), "expand: the rank must not shrink; got (2, 3) to (3)");
}

TEST_CASE("rows behind a tensor are those of its storage, as far as it reaches", "[core]") {
  const Context ctx = cpu_context(1);
  const Tensor all = from_host(ctx, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}, {4, 2});
  const Tensor middle = all.slice(0, 1, 1).with_rows_behind(2);
  CHECK(middle.shares_storage(all));
  CHECK(to_host<float>(ctx, middle) == std::vector<float>{2, 3, 4, 5, 6, 7});
  CHECK(to_host<float>(ctx, all.with_rows_behind(0)) == to_host<float>(ctx, all));
  const Tensor left = all.slice(1, 0, 1).slice(0, 1, 1);  // one row, and contiguous therefore
  CHECK(to_host<float>(ctx, left.with_rows_behind(2)) == std::vector<float>{2, 3, 4});
  CHECK_THROWS_WITH(all.with_rows_behind(-1), "with_rows_behind: rows must be 0 or more; got -1");
  CHECK_THROWS_WITH(all.slice(0, 1, 1).with_rows_behind(3),
                    "with_rows_behind: 3 rows must lie behind (1, 2) in its storage; it has 32 "
                    "bytes");
  CHECK_THROWS_WITH(all.transpose(0, 1).with_rows_behind(0),
                    "with_rows_behind: a contiguous tensor with rows must be given; got (2, 4)");
}

TEST_CASE("a strided tensor reshapes without a copy exactly when strides can say it", "[core]") {
  const Context ctx = cpu_context(1);
  const Tensor x = counted(ctx, {4, 6});
  const auto check_view = [&](const Tensor& source, const Shape& shape) {
    REQUIRE(source.can_reshape(shape));
    const Tensor view = source.reshape(shape);
    CHECK(view.shape() == shape);
    CHECK(view.shares_storage(source));
    CHECK(elements(ctx, view) == elements(ctx, source));
  };
  const auto check_refused = [&](const Tensor& source, const Shape& shape) {
    CHECK_FALSE(source.can_reshape(shape));
    CHECK_THROWS_AS(source.reshape(shape), Error);
  };
  const Tensor columns = x.slice(1, 1, 4);  // rows of 4 with gaps
  check_view(columns, {2, 2, 4});
  check_view(columns, {4, 2, 2});
  check_view(columns, {1, 4, 1, 2, 1, 2, 1});
  check_view(columns, {2, 2, 2, 2});
  check_refused(columns, {16});
  check_refused(columns, {2, 8});
  check_refused(columns, {8, 2, 1, 1, 4});
  const Tensor turned = x.transpose(0, 1);  // (6, 4)
  check_view(turned, {2, 3, 4});
  check_view(turned, {6, 2, 2});
  check_view(turned, {6, 1, 4});
  check_refused(turned, {24});
  check_refused(turned, {4, 6});
  const Tensor expanded = x.slice(0, 0, 1).expand({4, 6});
  check_view(expanded, {2, 2, 6});
  check_view(expanded, {4, 2, 3});
  check_refused(expanded, {24});
  const Tensor repeated = counted(ctx, {1}).expand({12});  // stride 0 throughout
  check_view(repeated, {3, 4});
  check_view(counted(ctx, {1}), {});
  check_view(counted(ctx, {}), {1, 1});
  check_view(x.slice(0, 1, 0), {3, 0, 5});
}

TEST_CASE("a reshape is a view if and only if the elements lie at regular distances", "[core]") {
  const Context ctx = cpu_context(1);
  const Tensor x = counted(ctx, {3, 4, 5, 2});  // each element is its own place in memory
  const std::vector<Tensor> sources = {
      x.slice(1, 0, 2).slice(2, 1, 4), x.transpose(1, 2).slice(0, 0, 2).slice(1, 0, 4),
      x.slice(0, 1, 1).expand({3, 4, 5, 2}), x.slice(3, 1, 1).slice(2, 0, 4),
      x.slice(2, 0, 1).expand({3, 4, 4, 2})};
  int views = 0, copies = 0;
  for (const Tensor& source : sources) {
    const Ints places = elements(ctx, source);
    const int64_t n = source.numel();
    for (int64_t a = 1; a <= n; ++a) {
      for (int64_t b = 1; n % a == 0 && a * b <= n; ++b) {
        if (n / a % b != 0) continue;
        const Shape shape{a, b, n / a / b};
        INFO(source.shape() << " strides " << source.strides() << " as " << shape);
        REQUIRE(source.can_reshape(shape) == lies_regularly(places, shape));
        if (source.can_reshape(shape)) {
          CHECK(elements(ctx, source.reshape(shape)) == places);
        }
        ++(source.can_reshape(shape) ? views : copies);
      }
    }
  }
  CHECK(views > 0);
  CHECK(copies > 0);
}

TEST_CASE("contiguity is judged by the elements, not by strides that do not matter", "[core]") {
  const Context ctx = cpu_context(1);
  const Tensor x = counted(ctx, {2, 3, 4});
  CHECK(x.is_contiguous());
  CHECK(x.slice(0, 1, 1).is_contiguous());
  CHECK_FALSE(x.slice(1, 0, 2).is_contiguous());
  CHECK(x.slice(1, 0, 2).slice(0, 0, 1).is_contiguous());
  CHECK_FALSE(x.transpose(1, 2).is_contiguous());
  CHECK(x.slice(2, 0, 0).is_contiguous());
  CHECK_FALSE(counted(ctx, {1}).expand({2}).is_contiguous());
}

TEST_CASE("sizes beyond 31 bits are counted right", "[core]") {
  const Context ctx = cpu_context(1);
  const Tensor one = counted(ctx, {1, 1});
  const Tensor wide = one.expand({kHuge, 4});
  CHECK(wide.numel() == kHuge * 4);
  CHECK(wide.nbytes() == kHuge * 32);
  CHECK(wide.storage_bytes() == 8);
  CHECK(wide.slice(0, kHuge - 1, 1).numel() == 4);
  CHECK(elements(ctx, wide.slice(0, kHuge - 2, 2)) == Ints(8, 0));
  const Tensor pair = counted(ctx, {2, 1}).expand({2, kHuge}).slice(1, kHuge - 1, 1);
  CHECK(elements(ctx, pair) == Ints{0, 1});
  CHECK(wide.can_reshape({4, kHuge}));
}

TEST_CASE("sizes that overflow or are negative are refused", "[core]") {
  const Context ctx = cpu_context(1);
  CHECK_THROWS_WITH(
      numel_of({kHuge, kHuge}),
      "tensor: the number of elements must fit 63 bits; got (1099511627776, 1099511627776)");
  CHECK(numel_of({kHuge, kHuge, 0}) == 0);
  CHECK(numel_of({0, kHuge, kHuge}) == 0);
  CHECK(numel_of({}) == 1);
  CHECK_THROWS_WITH(numel_of({2, -1}), "tensor: sizes must not be negative; got (2, -1)");
  CHECK_THROWS_WITH(
      empty(ctx, {int64_t{1} << 61}, Dtype::f64),
      "tensor: the number of bytes must fit 63 bits; got shape (2305843009213693952)");
  CHECK_THROWS_AS(counted(ctx, {1, 1}).expand({kHuge, kHuge}), Error);
  CHECK_THROWS_AS((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
  CHECK(ctx.allocator->current_bytes() == 0);
}

TEST_CASE("tensors of no elements are legal", "[core]") {
  const Context ctx = cpu_context(1);
  const Tensor x = empty(ctx, {3, 0}, Dtype::f32);
  CHECK(x.defined());
  CHECK(x.numel() == 0);
  CHECK(to_host<float>(ctx, x).empty());
  CHECK(x.reshape({0, 7}).shape() == Shape{0, 7});
  CHECK(x.transpose(0, 1).shape() == Shape{0, 3});
  CHECK(x.slice(0, 3, 0).numel() == 0);
  CHECK(x.slice(1, 0, 0).shape() == Shape{3, 0});
  CHECK(from_host(ctx, std::vector<float>{}, {0}).numel() == 0);
  CHECK_THROWS_AS(to_host<double>(ctx, x), Error);
}

TEST_CASE("elements are reached in the tensor's own dtype only", "[core]") {
  const Context ctx = cpu_context(1);
  Tensor x = empty(ctx, {2}, Dtype::bf16);
  CHECK_NOTHROW(x.data<BFloat16>());
  CHECK_THROWS_WITH(x.data<float>(), "tensor: read or written as f32 but its dtype is bf16");
  CHECK_THROWS_WITH(x.mutable_data<int32_t>(),
                    "tensor: read or written as i32 but its dtype is bf16");
  Tensor undefined;
  CHECK_FALSE(undefined.defined());
  CHECK_THROWS_WITH(undefined.data<float>(),
                    "tensor: must hold storage to be read or written; got an undefined tensor");
}

TEST_CASE("a write counts for all views of a storage, a read for none", "[core]") {
  const Context ctx = cpu_context(1);
  Tensor x = empty(ctx, {4}, Dtype::f32), view = x.slice(0, 1, 2);
  const Tensor other = empty(ctx, {4}, Dtype::f32);
  const uint64_t before = x.version(), unrelated = other.version();
  x.data<float>();
  CHECK(x.version() == before);
  view.mutable_data<float>()[0] = 1.0f;
  CHECK(x.version() == before + 1);
  CHECK(view.version() == x.version());
  fill(ctx, x, 0.0);
  CHECK(view.version() > before + 1);
  copy(ctx, other, x);
  CHECK(other.version() == unrelated);
}

TEST_CASE("a tensor with a view is not the sole holder of its storage", "[core]") {
  const Context ctx = cpu_context(1);
  Tensor x = empty(ctx, {4}, Dtype::f32);
  CHECK(x.is_sole_holder());
  {
    const Tensor view = x.slice(0, 0, 2);
    CHECK_FALSE(x.is_sole_holder());
    CHECK_FALSE(view.is_sole_holder());
  }
  CHECK(x.is_sole_holder());
}

TEST_CASE("shapes that broadcast do so from the right", "[core]") {
  CHECK(broadcast_shape({3, 1}, {1, 4}, "op") == Shape{3, 4});
  CHECK(broadcast_shape({4}, {2, 3, 4}, "op") == Shape{2, 3, 4});
  CHECK(broadcast_shape({}, {2}, "op") == Shape{2});
  CHECK(broadcast_shape({0, 1}, {1, 5}, "op") == Shape{0, 5});
  CHECK(broadcast_shape({1}, {0}, "op") == Shape{0});
  CHECK_THROWS_WITH(broadcast_shape({2, 3}, {2}, "op"),
                    "op: shapes must be equal or repeat along sizes of 1; got (2, 3) and (2)");
  CHECK_THROWS_AS(broadcast_shape({0}, {2}, "op"), Error);
}
