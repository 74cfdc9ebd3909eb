#include "core/atomic_file.h"

#include <sys/stat.h>

#include "core/error.h"
#include "core/mapped_file.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

namespace xtrain {
namespace {

TEST_CASE("atomic file: the target appears on commit, whole", "[atomic_file]") {
  const TemporaryFolder folder;
  folder.write("a", "old");
  {
    AtomicFile file(folder.file("a"));
    file.write("new ");
    file.write("content");
    CHECK(folder.read("a") == "old");
    file.commit();
    CHECK_THROWS_AS(file.commit(), Error);
    CHECK_THROWS_AS(file.write("more"), Error);
  }
  CHECK(folder.read("a") == "new content");
  CHECK_FALSE(std::filesystem::exists(folder.file("a.partial")));
}

TEST_CASE("atomic file: without commit the old file stays and nothing is left beside it",
          "[atomic_file]") {
  const TemporaryFolder folder;
  folder.write("a", "old");
  { AtomicFile(folder.file("a")).write("half"); }
  CHECK(folder.read("a") == "old");
  CHECK_FALSE(std::filesystem::exists(folder.file("a.partial")));
}

TEST_CASE("atomic file: a partial file left by a killed process is overwritten", "[atomic_file]") {
  const TemporaryFolder folder;
  folder.write("a.partial", "a long remnant of another attempt");
  AtomicFile file(folder.file("a"));
  file.write("x");
  file.commit();
  CHECK(folder.read("a") == "x");
}

TEST_CASE("atomic file: a folder that does not exist is named", "[atomic_file]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("none/a");
  CHECK_THROWS_WITH(AtomicFile(path),
                    path + ".partial: cannot create the file: No such file or directory");
}

std::string content_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_CASE("mapped file: gives the bytes and keeps them when moved", "[mapped_file]") {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "some bytes");
  MappedFile first(path);
  CHECK(content_of(first) == "some bytes");
  CHECK(first.text() == "some bytes");
  CHECK(first.size() == 10);
  CHECK(first.data()[9] == 's');
  MappedFile second(std::move(first));
  CHECK(content_of(second) == "some bytes");
  CHECK(second.path() == path);
  MappedFile third(folder.write("b", "others"));
  third = std::move(second);
  CHECK(content_of(third) == "some bytes");
  CHECK(third.path() == path);
}

TEST_CASE("mapped file: an empty file has no bytes", "[mapped_file]") {
  const TemporaryFolder folder;
  CHECK(MappedFile(folder.write("a", "")).bytes().empty());
}

TEST_CASE("mapped file: what is no regular file is refused by name", "[mapped_file]") {
  const TemporaryFolder folder;
  const auto refusal_of = [](const std::string& path) {
    return rejection([&] { MappedFile{path}; });
  };
  CHECK(refusal_of(folder.file("none")) ==
        folder.file("none") + ": cannot be opened: No such file or directory");
  CHECK(refusal_of(folder.path.string()) ==
        folder.path.string() + ": is a directory; name the files in it");
  CHECK(refusal_of("/dev/null") == "/dev/null: must be a regular file");
  const std::string pipe = folder.file("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(refusal_of(pipe) == pipe + ": must be a regular file");
}

}  // namespace
}  // namespace xtrain
