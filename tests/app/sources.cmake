sidestep_test(NAME test_app LABEL unit
  SOURCES
    app/agreement_test.cc
    app/banner_test.cc
    app/failure_test.cc
    app/inspect_test.cc
    app/launch_test.cc
    app/options_test.cc
    app/progress_test.cc
    app/resume_test.cc
    app/signals_test.cc
  LIBS sidestep_front fmt::fmt)

sidestep_test(NAME test_rig LABEL unit
  SOURCES
    app/coverage_test.cc
    app/planner_test.cc
    comm/ranks.cc
  LIBS sidestep_app)
