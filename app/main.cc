// The program: parses, joins the job, runs a command, and is the one place where errors end.
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "app/agreement.h"
#include "app/commands.h"
#include "app/failure.h"
#include "app/options.h"
#include "app/rank_info.h"
#include "app/signals.h"
#include "app/versions.h"
#include "core/base/log.h"
#include "io/checkpoint_file.h"

namespace sidestep {
namespace {

LogLevel log_level(const Settings& settings) {
  if (settings.log_level == "debug") return LogLevel::debug;
  if (settings.log_level == "warning") return LogLevel::warning;
  return settings.log_level == "error" ? LogLevel::error : LogLevel::info;
}

/// What needs no MPI and is said once: help, versions, the list of options, a checkpoint's content.
int run_alone(const Invocation& invocation, bool speaks) {
  if (!speaks) return 0;
  const Settings& settings = invocation.settings;
  std::string text = invocation.information;
  if (invocation.version) text = version_text();
  if (text.empty() && settings.command == Command::inspect) {
    check_hdf5_version();
    return run_inspect(settings);
  }
  if (text.empty() && settings.markdown) text = options_markdown();
  if (text.empty()) {
    for (const Command command :
         {Command::train, Command::eval, Command::inspect, Command::bench}) {
      text += help_text(command) + "\n";
    }
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

bool needs_job(const Invocation& invocation) {
  const Command command = invocation.settings.command;
  return !invocation.version && invocation.information.empty() && command != Command::inspect &&
         command != Command::options;
}

int run_command(Settings& settings, MpiJob& job) {
  if (settings.command == Command::train) return run_train(settings, job);
  return settings.command == Command::eval ? run_eval(settings, job) : run_bench(settings, job);
}

/// `parse_failure`: of this rank's options; the other ranks must hear of it.
int run_job(int argc, char** argv, Settings settings, std::exception_ptr parse_failure) {
  install_signal_handlers();  // a request may come before MPI is there, which may take them over
  MpiJob job(argc, argv);
  configure_log(job.rank(), job.size(), job.host(), log_level(settings), settings.all_ranks_log);
  install_signal_handlers();
  try {
    together(*job.world(), [&] {
      if (parse_failure) std::rethrow_exception(parse_failure);
      check_launch(job.size(), process_environment(), settings.allow_single);
      check_hdf5_version();
    });
    // Before their ways part: each command agrees on its own settings in its own order.
    agree(*job.world(), {{"command", std::string(to_string(settings.command))}});
    return run_command(settings, job);
  } catch (...) {
    return end_job(std::current_exception(), job.rank(), job.size(), MpiJob::abort);
  }
}

int run(int argc, char** argv) {
  const LaunchInfo launch = launch_info(process_environment());
  try {
    Invocation invocation;
    std::exception_ptr parse_failure;
    try {
      invocation = parse_command_line({argv + 1, argv + argc});
    } catch (...) {
      parse_failure = std::current_exception();
      // Alone there is nobody to agree with, and no need of MPI to say so.
      if (launch.size <= 1) throw;
    }
    if (!parse_failure && !needs_job(invocation)) return run_alone(invocation, launch.rank == 0);
    return run_job(argc, argv, invocation.settings, parse_failure);
  } catch (...) {
    return end_job(std::current_exception(), 0, 1, {});
  }
}

}  // namespace
}  // namespace sidestep

int main(int argc, char** argv) { return sidestep::run(argc, argv); }
