#include "distributed/ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <fstream>
#include <thread>

#include "core/copy.h"
#include "distributed/backend.h"
#include "distributed/folder_store.h"
#include "distributed/local_communicator.h"
#include "support/temporary_folder.h"

namespace xtrain {
namespace {

std::string result_of(const std::function<std::string()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return std::string("error: ") + error.what();
  }
}

pid_t fork_rank(const TemporaryFolder& folder, Backend backend, const ConnectOptions& options,
                const RankBody& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  const std::string result = result_of([&] {
    FolderStore store(folder.path);
    const Context ctx =
        backend == Backend::nccl ? cuda_context(options.rank, {}, 1) : cpu_context(1);
    const auto communicator = connect(backend, ctx, options, store);
    return body(ctx, *communicator);
  });
  folder.write("result" + std::to_string(options.rank), result);
  _exit(0);
}

// --- checks --------------------------------------------------------------------------------------

// Element i of a rank's input: small integers, exact in every dtype and so are their sums.
double input(int rank, int64_t i) {
  return static_cast<double>((i * 7 + rank * 3) % 13) - 6.0;
}

class CollectiveChecks {
 public:
  CollectiveChecks(const Context& ctx, Communicator& communicator, Dtype dtype, int64_t n)
      : ctx_(ctx), comm_(communicator), dtype_(dtype), n_(n) {}

  std::string run() {
    all_reduce(n_);
    all_reduce(n_ * comm_.size());
    reduce_scatter(false);
    reduce_scatter(true);
    all_gather(false);
    all_gather(true);
    for (int root = 0; root < comm_.size(); ++root) broadcast(root);
    return wrong_;
  }

 private:
  Tensor tensor(int64_t count, const std::function<double(int64_t)>& element) const {
    std::vector<double> values(count);
    for (int64_t i = 0; i < count; ++i) values[i] = element(i);
    Tensor result = empty(ctx_, {count}, dtype_);
    copy(ctx_, from_host(ctx_, values, {count}), result);
    return result;
  }
  Tensor inputs(int64_t count) const {
    return tensor(count, [&](int64_t i) { return input(comm_.rank(), i); });
  }
  double sum(int64_t i) const {
    double total = 0.0;
    for (int r = 0; r < comm_.size(); ++r) total += input(r, i);
    return total;
  }
  void expect(const char* operation, const Tensor& found,
              const std::function<double(int64_t)>& element) {
    comm_.finish(ctx_);
    Tensor wide = empty(ctx_, found.shape(), Dtype::f64);
    copy(ctx_, found, wide);
    const std::vector<double> values = to_host<double>(ctx_, wide);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == element(static_cast<int64_t>(i))) continue;
      wrong_ += text(operation, " of ", n_, " ", dtype_, ": element ", i, " is ", values[i],
                     " and must be ", element(static_cast<int64_t>(i)), "\n");
      return;
    }
  }

  void all_reduce(int64_t count) {
    const Tensor x = inputs(count);
    comm_.all_reduce(ctx_, x);
    expect("all_reduce", x, [&](int64_t i) { return sum(i); });
  }
  void reduce_scatter(bool in_place) {
    const Tensor x = inputs(n_ * comm_.size());
    const int64_t begin = comm_.rank() * n_;
    const Tensor own = in_place ? x.slice(0, begin, n_) : empty(ctx_, {n_}, dtype_);
    comm_.reduce_scatter(ctx_, x, own);
    expect("reduce_scatter", own, [&](int64_t i) { return sum(begin + i); });
  }
  void all_gather(bool in_place) {
    const Tensor all = zeros(ctx_, {n_ * comm_.size()}, dtype_);
    Tensor own = inputs(n_);
    if (in_place) {
      const Tensor part = all.slice(0, comm_.rank() * n_, n_);
      copy(ctx_, own, part);
      own = part;
    }
    comm_.all_gather(ctx_, own, all);
    expect("all_gather", all, [&](int64_t i) { return input(static_cast<int>(i / n_), i % n_); });
  }
  void broadcast(int root) {
    const Tensor x = inputs(n_);
    comm_.broadcast(ctx_, x, root);
    expect("broadcast", x, [&](int64_t i) { return input(root, i); });
  }

  const Context ctx_;
  Communicator& comm_;
  const Dtype dtype_;
  const int64_t n_;
  std::string wrong_;
};

}  // namespace

RankResults run_threads(int size, const RankBody& body) {
  const LocalGroup group(size);
  RankResults results(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = result_of([&] {
        const auto communicator = group.communicator(rank);
        return body(cpu_context(1), *communicator);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

RankResults run_processes(Backend backend, int size, const RankBody& body,
                          const ProcessOptions& options) {
  const TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const ConnectOptions connection{rank, size, "127.0.0.1", options.timeout, options.share_memory};
    children.push_back(fork_rank(folder, backend, connection, body));
  }
  RankResults results;
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    const bool killed = WIFSIGNALED(status);
    results.push_back(killed ? text("signal ", WTERMSIG(status))
                             : folder.read("result" + std::to_string(rank)));
  }
  return results;
}

std::string check_collectives(const Context& ctx, Communicator& communicator) {
  std::string wrong;
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::i64, Dtype::i32}) {
    for (int64_t n : {0, 1, 3, 1000, 70001}) {
      wrong += CollectiveChecks(ctx, communicator, dtype, n).run();
    }
  }
  return wrong;
}

}  // namespace xtrain
