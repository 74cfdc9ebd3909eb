#include "train/data/input_files.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names(const TemporaryFolder& folder,
                               const std::vector<std::string>& inputs) {
  std::vector<std::string> names;
  for (const InputFile& file : list_input_files(inputs)) {
    names.push_back(fs::path(file.path).lexically_relative(folder.path).string());
  }
  return names;
}

TEST_CASE("input_files: folders, patterns and files, in the order given, each sorted by path") {
  const TemporaryFolder folder;
  fs::create_directories(folder.path / "d/b");
  fs::create_directories(folder.path / "d/.git");
  for (const char* name : {"d/z.txt", "d/b/2.txt", "d/b/1.txt", "d/.hidden", "d/.git/x", "q2.md",
                           "q1.md", "one[1].txt"}) {
    folder.write(name, name);
  }
  fs::create_directory_symlink("b", folder.path / "d/link");
  fs::create_symlink("../q1.md", folder.path / "d/a.md");
  using Names = std::vector<std::string>;
  CHECK(names(folder, {folder.file("d")}) == Names{"d/a.md", "d/b/1.txt", "d/b/2.txt", "d/z.txt"});
  CHECK(names(folder, {folder.file("q*.md"), folder.file("d/b"), folder.file("one[1].txt")}) ==
        Names{"q1.md", "q2.md", "d/b/1.txt", "d/b/2.txt", "one[1].txt"});
}

TEST_CASE("input_files: size and time are told, and streams have neither") {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.txt", "12345");
  const auto files = list_input_files({path, "-"});
  REQUIRE(files.size() == 2);
  CHECK(files[0].bytes == 5);
  CHECK(files[0].modified_ns > 0);
  CHECK_FALSE(files[0].stream);
  CHECK(files[1] == InputFile{"-", 0, 0, true});
  CHECK(list_input_files({path})[0] == files[0]);
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK(list_input_files({folder.file("pipe")})[0].stream);
}

TEST_CASE("input_files: what cannot be found, holds nothing or is named twice is refused") {
  const TemporaryFolder folder;
  fs::create_directory(folder.path / "empty");
  const auto why = [](const std::vector<std::string>& inputs) {
    return rejection([&] { list_input_files(inputs); });
  };
  CHECK(why({folder.file("none")}) ==
        folder.file("none") + ": cannot be opened: No such file or directory");
  CHECK(why({folder.file("*.txt")}) ==
        folder.file("*.txt") + ": cannot be opened: No such file or directory");
  CHECK(why({folder.file("empty")}) ==
        folder.file("empty") + ": the folder must hold files; it has none that are not hidden");
  CHECK(why({"-", "-"}) == "-: can be read only once; it is named twice");
}

// Without the rights of root, for whom every file is readable.
TEST_CASE("input_files: a file that may not be read is refused with that reason") {
  const TemporaryFolder folder;
  fs::permissions(folder.path, fs::perms(0755));
  const std::string path = folder.write("a", "text");
  fs::permissions(path, fs::perms(0));
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    errno = ENOTTY;  // of an earlier call
    const std::string said = rejection([&] { list_input_files({path}); });
    _exit(said == path + ": cannot be opened: Permission denied" ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace xtrain
