// Logging for one process of a job. Rank 0 speaks; warnings and errors of any rank carry its name.
// Any thread. Lines appear at once (flushed), so a killed job keeps its log.
#pragma once

#include <string_view>

namespace sidestep {

enum class LogLevel { debug, info, warning, error };

/// Sets what this process is: info lines of ranks other than 0 are dropped unless `all_ranks`.
void configure_log(int rank, int ranks, std::string_view host, LogLevel lowest, bool all_ranks);

/// Standard output on rank 0 (or every rank with all_ranks).
void log_info(std::string_view line);
void log_debug(std::string_view line);
/// Standard error, any rank, prefixed "warning [rank 2, host h1]: " when the job has several ranks.
void log_warning(std::string_view line);
/// Standard error, any rank, prefixed likewise with "error".
void log_error(std::string_view line);

}  // namespace sidestep
