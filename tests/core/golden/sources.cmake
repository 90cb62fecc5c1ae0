sidestep_test(NAME test_golden LABEL unit
  SOURCES core/golden/golden_case.cc core/golden/golden_test.cc
  LIBS sidestep_model sidestep_optim nlohmann_json::nlohmann_json)
target_compile_definitions(test_golden PRIVATE
  SIDESTEP_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/e2e/golden")
