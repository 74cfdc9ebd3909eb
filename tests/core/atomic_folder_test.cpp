#include "core/atomic_folder.h"

#include <filesystem>

#include "core/error.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;

TEST_CASE("atomic folder: it appears on commit with all that is in it", "[atomic_folder]") {
  const TemporaryFolder parent;
  AtomicFolder folder(parent.file("a/b/"));
  folder.write("x", "content");
  CHECK_FALSE(fs::exists(parent.file("a/b")));
  folder.commit();
  CHECK(parent.read("a/b/x") == "content");
  CHECK_FALSE(fs::exists(parent.file("a/b.partial")));
  CHECK_THROWS_AS(folder.commit(), Error);
}

TEST_CASE("atomic folder: without commit nothing is left", "[atomic_folder]") {
  const TemporaryFolder parent;
  { AtomicFolder(parent.file("a")).write("x", "content"); }
  CHECK(fs::is_empty(parent.path));
  fs::create_directory(parent.file("a.partial"));
  parent.write("a.partial/.unfinished", "");
  parent.write("a.partial/left", "behind by a killed process");
  AtomicFolder folder(parent.file("a"));
  folder.commit();
  CHECK(fs::is_empty(parent.file("a")));
}

TEST_CASE("atomic folder: a folder of the user's is not taken for a partial one",
          "[atomic_folder]") {
  const TemporaryFolder parent;
  fs::create_directory(parent.file("a.partial"));
  parent.write("a.partial/notes", "precious");
  CHECK(rejection([&] { AtomicFolder x(parent.file("a")); }) ==
        parent.file("a.partial") + ": is in the way; rename it or choose another name");
  CHECK(parent.read("a.partial/notes") == "precious");
}

TEST_CASE("atomic folder: one process at a time writes it", "[atomic_folder]") {
  const TemporaryFolder parent;
  AtomicFolder first(parent.file("a"));
  first.write("x", "content");
  CHECK_THROWS_WITH(AtomicFolder(parent.file("a")),
                    parent.file("a") + ": another process is writing this folder");
  first.commit();
  CHECK(parent.read("a/x") == "content");
}

TEST_CASE("atomic folder: what is there is not replaced, unless it is an empty folder",
          "[atomic_folder]") {
  const TemporaryFolder parent;
  const auto said = [](const std::string& path) {
    return rejection([&] { AtomicFolder x(path); });
  };
  parent.write("file", "x");
  CHECK(said(parent.file("file")).find("is there already") != std::string::npos);
  fs::create_directory(parent.file("full"));
  parent.write("full/x", "x");
  CHECK(said(parent.file("full")).find("is there already") != std::string::npos);
  fs::create_symlink("nowhere", parent.file("link"));
  CHECK(said(parent.file("link")).find("is there already") != std::string::npos);
  CHECK(said("").find("must have a name") != std::string::npos);
  fs::create_directory(parent.file("empty"));
  AtomicFolder folder(parent.file("empty"));
  folder.write("x", "content");
  folder.commit();
  CHECK(parent.read("empty/x") == "content");
  CHECK_THROWS_AS(AtomicFolder("/proc/none/x"), Error);
}

}  // namespace
}  // namespace xtrain
