#include "core/ops/blas.h"

#include <cblas.h>

#include "core/base/error.h"
#include "core/ops/library_versions.h"

namespace sidestep {
namespace {

// What the two kinds of CBLAS header offer about versions.
#if defined(OPENBLAS_VERSION)
std::string compiled_blas() { return OPENBLAS_VERSION; }
std::string loaded_blas() { return openblas_get_config(); }
#else
std::string compiled_blas() { return "CBLAS"; }
std::string loaded_blas() { return "CBLAS"; }
#endif

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

}  // namespace

LibraryVersion blas_version() { return {"BLAS", trimmed(compiled_blas()), trimmed(loaded_blas())}; }

namespace blas {
namespace {

CBLAS_TRANSPOSE transpose(Form form) { return form == Form::plain ? CblasNoTrans : CblasTrans; }

}  // namespace

void sgemm(Form form_a, Form form_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
           const float* b, float beta, float* c) {
  constexpr std::int64_t kLimit = 0x7fffffff;
  check(m <= kLimit && n <= kLimit && k <= kLimit, "matrix sizes fit a CBLAS int");
  const auto lda = static_cast<int>(form_a == Form::plain ? k : m);
  const auto ldb = static_cast<int>(form_b == Form::plain ? n : k);
  cblas_sgemm(CblasRowMajor, transpose(form_a), transpose(form_b), static_cast<int>(m),
              static_cast<int>(n), static_cast<int>(k), 1.0f, a, lda, b, ldb, beta, c,
              static_cast<int>(n));
}

}  // namespace blas
}  // namespace sidestep
