#pragma once
// A folder that appears whole or not at all.

#include <string>

namespace xtrain {

// Files go to "PATH.partial" beside the target. commit() renames it to PATH and forces the entry to
// disk. Without commit() the destructor removes it; one left behind by a killed process, which is
// known by a file in it, is replaced by the next attempt. Throws InputError when PATH is there
// already and is not an empty folder, and when PATH.partial is somebody else's; Error while another
// process writes it, and naming the path and the system's reason.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::string& path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::string& path() const { return partial_; }  // where to write until commit()
  std::string file(const std::string& name) const;
  void write(const std::string& name, const std::string& content) const;  // a whole file
  void commit();

 private:
  void take();

  std::string target_, partial_;
  int lock_ = -1;  // the partial folder, open and locked
  bool committed_ = false;
};

}  // namespace xtrain
