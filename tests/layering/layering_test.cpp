// The tree keeps to the order of its layers, and the check that says so finds every kind of breach.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "layering/include_rules.h"
#include "support/catch.h"

namespace xtrain::layering {
namespace {

namespace fs = std::filesystem;

// A throw-away source tree.
class FixtureTree {
 public:
  FixtureTree() {
    std::string name = (fs::temp_directory_path() / "xtrain_layering_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    root_ = name;
    for (const char* header :
         {"core/tensor.h", "core/cuda/stream.h", "autodiff/tape.h", "ops/gelu/gelu.h",
          "model/config.h", "train/trainer.h", "distributed/ddp.h", "tests/support/catch.h"}) {
      write(header, {});
    }
  }
  ~FixtureTree() { fs::remove_all(root_); }

  void write(const fs::path& file, const std::vector<std::string>& lines) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream out(root_ / file);
    out << "#pragma once\n\n";
    for (const std::string& line : lines) out << line << "\n";
    REQUIRE(out.flush());
  }

  const fs::path& root() const { return root_; }
  std::string violations() const { return to_string(check_includes(root_).violations); }

 private:
  fs::path root_;
};

struct Case {
  std::string file;
  std::string line;     // stands in line 3 of the file
  std::string message;  // part of what must be said; empty: nothing may be
};

const Case kUpwardIncludes[] = {
    {"core/gemm.cpp", "#include \"autodiff/tape.h\"",
     "core must not include the higher layer autodi"},
    {"autodiff/tape.cpp", "#include \"ops/gelu/gelu.h\"", "autodiff must not include the higher"},
    {"ops/gelu/gelu.cpp", "#include \"model/config.h\"", "ops must not include the higher"},
    {"model/layers.h", "#include \"train/trainer.h\"", "model must not include the higher"},
    {"train/replica.h", "#include \"distributed/ddp.h\"", "train must not include the higher"},
    {"ops/gelu/gelu_case.cpp", "#include \"support/catch.h\"", "the higher layer tests"},
    {"tools/train.cpp", "  #  include \"tests/support/catch.h\"", "the higher layer tests"},
};

const Case kMisplacedHeaders[] = {
    {"core/tensor.cpp", "#include <cuda_runtime.h>", "belongs to the CUDA toolkit"},
    {"ops/gelu/gelu.cpp", "#include <cublas_v2.h>", "belongs to the CUDA toolkit"},
    {"distributed/ddp.cpp", "#include <cuda_bf16.h>", "belongs to the CUDA toolkit"},
    {"ops/gelu/gelu.cpp", "#include \"core/cuda/stream.h\"", "belongs to core/cuda"},
    {"train/replica.cpp", "#include <nccl.h>", "belongs to NCCL"},
    {"tools/train_ddp.cpp", "#include <gloo/context.h>", "belongs to Gloo"},
    {"train/trainer.cpp", "#include <sys/socket.h>", "belongs to sockets"},
    {"train/trainer.cpp", "#include <CLI/CLI.hpp>", "belongs to CLI11"},
    {"ops/gelu/gelu_case.cpp", "#include <catch2/catch.hpp>", "belongs to Catch2"},
    {"tests/ops/gelu_test.cpp", "#include <catch2/catch.hpp>", "belongs to Catch2"},
    {"model/config_json.h", "#include <nlohmann/json.hpp>", "belongs to nlohmann/json"},
    {"ops/gelu/gelu.cpp", "#include <nlohmann/json.hpp>", "belongs to nlohmann/json"},
    {"ops/matmul/matmul_cpu.cpp", "#include <cblas.h>", "belongs to OpenBLAS"},
    {"core/gemm.h", "#include <cblas.h>", "belongs to OpenBLAS"},
    {"ops/gelu/gelu_cpu.cpp", "#include <omp.h>", "belongs to OpenMP"},
    {"model/hf/safetensors.cpp", "#include <xxhash.h>", "belongs to xxHash"},
    {"train/data/shard.h", "#include <sys/mman.h>", "belongs to the operating system"},
    {"core/tensor.cpp", "#include <Eigen/Dense>", "no row in the table"},
    {"core/tensor.cpp", "#include <boost.hpp>", "no row in the table"},
};

const Case kMisspeltIncludes[] = {
    {"core/tensor.cpp", "#include \"../core/tensor.h\"", "from the root of the tree"},
    {"core/tensor.cpp", "#include \"./tensor.h\"", "from the root of the tree"},
    {"core/tensor.cpp", "#include \"core/cpu/../tensor.h\"", "from the root of the tree"},
    {"core/tensor.cpp", "#include \"tensor.h\"", "is no file of the tree"},
    {"core/tensor.cpp", "#include \"core/tensr.h\"", "is no file of the tree"},
    {"core/gemm.cpp", "#include \"cblas.h\"", "is no file of the tree"},
    {"core/gemm.cpp", "#include <autodiff/tape.h>", "write it in quotes"},
    {"core/gemm.cpp", "#include XT_HEADER", "not a macro"},
};

const Case kRightfulIncludes[] = {
    {"core/tensor.cpp", "#include \"core/tensor.h\"", ""},
    {"core/tensor.cpp", "#include <vector>", ""},
    {"core/tensor.cpp", "// #include \"train/trainer.h\"", ""},
    {"core/gemm_library.cpp", "#include <cblas.h>", ""},
    {"core/parallel.cpp", "#include <omp.h>", ""},
    {"core/cuda/pool.cpp", "#include <cuda_runtime.h>", ""},
    {"core/device.cpp", "#include \"core/cuda/stream.h\"", ""},
    {"ops/gelu/gelu_cuda.cu", "#include <cuda_bf16.h>", ""},
    {"train/adamw/adamw_cuda.cu", "#include \"core/cuda/stream.h\"", ""},
    {"model/config.cpp", "#include <nlohmann/json.hpp>", ""},
    {"train/checkpoint.cpp", "#include <xxhash.h>", ""},
    {"train/data/shard.cpp", "#include <sys/mman.h>", ""},
    {"distributed/nccl_communicator.cpp", "#include <nccl.h>", ""},
    {"distributed/launch.cpp", "#include <sys/socket.h>", ""},
    {"tools/train.cpp", "#include <CLI/CLI.hpp>", ""},
    {"tools/train_ddp.cpp", "#include \"distributed/ddp.h\"", ""},
    {"tests/support/catch.h", "#include <catch2/catch.hpp>", ""},
    {"tests/ops/gelu_test.cpp", "#include \"support/catch.h\"", ""},
    {"tests/train/trainer_test.cpp", "#include \"train/trainer.h\"", ""},
};

template <size_t N>
void check_cases(const Case (&cases)[N]) {
  for (const Case& c : cases) {
    CAPTURE(c.file, c.line);
    const FixtureTree tree;
    tree.write(c.file, {c.line});
    const std::string found = tree.violations();
    CAPTURE(found);
    if (c.message.empty()) {
      CHECK(found.empty());
    } else {
      CHECK(found.rfind(c.file + ":3: ", 0) == 0);
      CHECK(found.find(c.message) != std::string::npos);
      CHECK(found.find('\n') == found.size() - 1);  // one violation, not several
    }
  }
}

TEST_CASE("the project's own includes keep to the layers") {
  const Report report = check_includes(XT_SOURCE_DIR);
  CHECK(to_string(report.violations) == "");
  CHECK(report.files > 10);  // it did read the tree
  CHECK(report.includes > report.files);
}

TEST_CASE("an include of a higher layer is found") {
  check_cases(kUpwardIncludes);
}

TEST_CASE("a third-party header away from its home is found") {
  check_cases(kMisplacedHeaders);
}

TEST_CASE("an include that is not written from the root is found") {
  check_cases(kMisspeltIncludes);
}

TEST_CASE("rightful includes pass") {
  check_cases(kRightfulIncludes);
}

TEST_CASE("a header meant for one file is found in the second") {
  const FixtureTree tree;
  tree.write("core/cpu/gemm_blas.cpp", {"#include <cblas.h>"});
  tree.write("core/gemm.cpp", {"#include <vector>", "#include <cblas.h>"});
  CHECK(tree.violations() ==
        "core/gemm.cpp:4: OpenBLAS is included by 2 files and may be by 1: "
        "core/cpu/gemm_blas.cpp, core/gemm.cpp\n");
}

TEST_CASE("CUDA code away from its home is found") {
  const FixtureTree tree;
  tree.write("model/layers_cuda.cu", {});
  tree.write("ops/gelu/gelu.cu", {});
  tree.write("ops/gelu/gelu_cuda.cu", {});
  const std::string found = tree.violations();
  CAPTURE(found);
  CHECK(found.find("model/layers_cuda.cu:1: CUDA code stands only in") == 0);
  CHECK(found.find("\nops/gelu/gelu.cu:1: CUDA code stands only in") != std::string::npos);
  CHECK(found.find("gelu_cuda.cu:1") == std::string::npos);
}

TEST_CASE("every violation is listed, by file and line") {
  const FixtureTree tree;
  tree.write("core/b.cpp", {"#include \"train/trainer.h\"", "#include <nccl.h>"});
  tree.write("core/a.cpp", {"#include <gloo/context.h>"});
  const auto violations = check_includes(tree.root()).violations;
  REQUIRE(violations.size() == 3);
  CHECK(violations[0].file == "core/a.cpp");
  CHECK(violations[0].line == 3);
  CHECK(violations[1].file == "core/b.cpp");
  CHECK(violations[1].line == 3);
  CHECK(violations[2].line == 4);
}

}  // namespace
}  // namespace xtrain::layering
