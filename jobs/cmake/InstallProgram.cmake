# cmake --install: the program, the scripts that run it and a modulefile. All paths inside are
# relative, so the folder may be moved.
include(GNUInstallDirs)

# Libraries in a folder that the loader does not search by itself (a module's, a private prefix's)
# stay found; those installed beside the program are found wherever it is moved.
set_target_properties(sidestep PROPERTIES
  INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}"
  INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS sidestep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

install(PROGRAMS jobs/run.sh jobs/bench.sh jobs/bench_table.py jobs/torch_baseline.py
  jobs/straggler_suite.sh jobs/straggler_suite.py jobs/straggler_table.py
  DESTINATION ${CMAKE_INSTALL_DATADIR}/sidestep/jobs)
install(FILES jobs/env.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/sidestep/jobs)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_file(jobs/modulefile.in ${CMAKE_BINARY_DIR}/modulefile @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/modulefile RENAME ${PROJECT_VERSION}
  DESTINATION ${CMAKE_INSTALL_DATADIR}/sidestep/modulefiles/sidestep)
