if(SIDESTEP_SANITIZE STREQUAL "thread")
  add_executable(tsan_race tsan_race/race_test.cc)
  target_link_libraries(tsan_race PRIVATE sidestep_flags Threads::Threads)
  add_test(NAME tsan_race.is_reported COMMAND tsan_race)
  # With PASS_REGULAR_EXPRESSION the exit status, not zero after a report, does not count.
  set_tests_properties(tsan_race.is_reported PROPERTIES LABELS tsan TIMEOUT 60
    PASS_REGULAR_EXPRESSION "data race")
endif()
