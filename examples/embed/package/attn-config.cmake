# attn.h for CMake projects: find_package(attn), or FetchContent or add_subdirectory of the tree.
#     attn::attn      the implementation: the library that was installed (where there are both kinds, the static one
#                     unless BUILD_SHARED_LIBS), else compiled once as a static library of your project
#     attn::header    the header alone: one file of yours defines ATTN_IMPLEMENTATION before it includes attn.h
include("${CMAKE_CURRENT_LIST_DIR}/attn-config-version.cmake")
get_filename_component(attn_library "${CMAKE_CURRENT_LIST_DIR}/../../libattn.a" ABSOLUTE)
get_filename_component(attn_shared "${CMAKE_CURRENT_LIST_DIR}/../../libattn.so" ABSOLUTE)
if(TARGET attn::attn)
elseif(EXISTS "${CMAKE_CURRENT_LIST_DIR}/attn-targets.cmake")          # installed by CMake
    include("${CMAKE_CURRENT_LIST_DIR}/attn-targets.cmake")
elseif(EXISTS "${attn_library}" OR EXISTS "${attn_shared}")             # by make install, make install-shared
    add_library(attn::header INTERFACE IMPORTED)
    set_target_properties(attn::header PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${attn_INCLUDE_DIR}")
    if(EXISTS "${attn_shared}" AND (BUILD_SHARED_LIBS OR NOT EXISTS "${attn_library}"))
        set(attn_library "${attn_shared}")
    endif()
    add_library(attn::attn UNKNOWN IMPORTED)
    set_target_properties(attn::attn PROPERTIES IMPORTED_LOCATION "${attn_library}"
        INTERFACE_INCLUDE_DIRECTORIES "${attn_INCLUDE_DIR}")
else()                                                                  # a tree, or the header was installed alone
    add_library(attn_header INTERFACE)
    target_include_directories(attn_header INTERFACE "$<BUILD_INTERFACE:${attn_INCLUDE_DIR}>")
    add_library(attn::header ALIAS attn_header)

    get_property(attn_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    if("C" IN_LIST attn_languages)
        set(attn_source "${CMAKE_CURRENT_BINARY_DIR}/attn_implementation.c")
    else()
        set(attn_source "${CMAKE_CURRENT_BINARY_DIR}/attn_implementation.cpp")
    endif()
    file(WRITE "${attn_source}.new" "#define ATTN_IMPLEMENTATION\n#include \"attn.h\"\n")
    configure_file("${attn_source}.new" "${attn_source}" COPYONLY)     # an equal file stays, and is not compiled again
    add_library(attn_compiled STATIC EXCLUDE_FROM_ALL "${attn_source}")
    target_link_libraries(attn_compiled PUBLIC attn_header)
    if(NOT MSVC)    # the library is optimised, also where nothing else is
        target_compile_options(attn_compiled PRIVATE $<$<OR:$<CONFIG:>,$<CONFIG:Debug>>:-O2>)
    endif()
    set_target_properties(attn_compiled PROPERTIES OUTPUT_NAME attn POSITION_INDEPENDENT_CODE ON)
    add_library(attn::attn ALIAS attn_compiled)
endif()
