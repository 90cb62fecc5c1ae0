#include "core/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace sidestep {
namespace {

struct Speaker {
  std::shared_ptr<spdlog::logger> out =
      std::make_shared<spdlog::logger>("out", std::make_shared<spdlog::sinks::stdout_sink_mt>());
  std::shared_ptr<spdlog::logger> err =
      std::make_shared<spdlog::logger>("err", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  std::string who;  ///< " [rank 2, host h1]", empty in a one-rank job
  bool quiet = false;
};

Speaker make_speaker() {
  Speaker s;
  for (const auto& logger : {s.out, s.err}) {
    logger->set_pattern("%v");
    logger->flush_on(spdlog::level::trace);
    logger->set_level(spdlog::level::info);
  }
  return s;
}

// Written once by configure_log before threads start; read only afterwards.
Speaker& speaker() {
  static Speaker instance = make_speaker();
  return instance;
}

}  // namespace

void configure_log(int rank, int ranks, std::string_view host, LogLevel lowest, bool all_ranks) {
  Speaker& s = speaker();
  if (ranks > 1) s.who = " [rank " + std::to_string(rank) + ", host " + std::string(host) + "]";
  s.quiet = rank != 0 && !all_ranks;
  const auto level = lowest == LogLevel::debug     ? spdlog::level::debug
                     : lowest == LogLevel::info    ? spdlog::level::info
                     : lowest == LogLevel::warning ? spdlog::level::warn
                                                   : spdlog::level::err;
  s.out->set_level(level);
  s.err->set_level(level);
}

void log_info(std::string_view line) {
  if (!speaker().quiet) speaker().out->info("{}", line);
}

void log_debug(std::string_view line) {
  if (!speaker().quiet) speaker().out->debug("{}", line);
}

void log_warning(std::string_view line) {
  speaker().err->warn("warning{}: {}", speaker().who, line);
}

void log_error(std::string_view line) {
  speaker().err->error("error{}: {}", speaker().who, line);
}

}  // namespace sidestep
