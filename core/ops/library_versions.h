// Versions of the CPU libraries, as compiled against and as loaded, for the banner. Any thread.
#pragma once

#include <string>

namespace sidestep {

struct LibraryVersion {
  std::string name;
  std::string compiled;  ///< of the headers
  std::string loaded;    ///< what the library says of itself at run time
};

LibraryVersion onednn_version();
LibraryVersion blas_version();

}  // namespace sidestep
