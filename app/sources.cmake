# app: the program. Its front (options, reports, agreement, failures) is a library of its own, so that
# it is tested without the commands behind it.
add_library(sidestep_front STATIC
  app/agreement.cc
  app/banner.cc
  app/failure.cc
  app/inspect.cc
  app/option_value.cc
  app/options_parse.cc
  app/options_table.cc
  app/options_text.cc
  app/progress.cc
  app/rank_info.cc
  app/signals.cc
  app/versions.cc)
target_link_libraries(sidestep_front
  PUBLIC sidestep_mpi sidestep_io sidestep_optim sidestep_model
  PRIVATE Boost::program_options fmt::fmt nlohmann_json::nlohmann_json spdlog::spdlog ZLIB::ZLIB)
set_source_files_properties(app/versions.cc PROPERTIES
  COMPILE_DEFINITIONS SIDESTEP_VERSION="${PROJECT_VERSION}")

add_library(sidestep_app STATIC
  app/bench_command.cc
  app/coverage.cc
  app/eval_command.cc
  app/emulation.cc
  app/evaluate.cc
  app/recorder.cc
  app/planner.cc
  app/rig.cc
  app/rig_rounds.cc
  app/saver.cc
  app/trainer.cc
  app/trainer_setup.cc)
target_link_libraries(sidestep_app PUBLIC sidestep_front
  PRIVATE fmt::fmt nlohmann_json::nlohmann_json)

add_executable(sidestep app/main.cc)
target_link_libraries(sidestep PRIVATE sidestep_app)
