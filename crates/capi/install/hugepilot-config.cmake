# find_package(hugepilot) defines the targets hugepilot::hugepilot (shared) and hugepilot::static.

get_filename_component(_hugepilot_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET hugepilot::hugepilot)
  add_library(hugepilot::hugepilot SHARED IMPORTED)
  set_target_properties(hugepilot::hugepilot PROPERTIES
    IMPORTED_LOCATION "${_hugepilot_prefix}/lib/libhugepilot.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_hugepilot_prefix}/include")

  add_library(hugepilot::static STATIC IMPORTED)
  set_target_properties(hugepilot::static PROPERTIES
    IMPORTED_LOCATION "${_hugepilot_prefix}/lib/libhugepilot.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_hugepilot_prefix}/include"
    INTERFACE_LINK_LIBRARIES "gcc_s;util;rt;pthread;m;dl;c")
endif()

unset(_hugepilot_prefix)
