// The CUDA side of --version in a build without CUDA.
#include "comm/cuda_versions.h"

namespace sidestep {

std::vector<LibraryVersion> cuda_library_versions() { return {{"CUDA", "built without", ""}}; }

}  // namespace sidestep
