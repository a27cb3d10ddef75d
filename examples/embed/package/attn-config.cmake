# attn.h for CMake projects: find_package(attn) after `make install`, or include() of this file in a copy of the tree.
#     attn::attn      the implementation, compiled once as a static library of your project
#     attn::header    the header alone: one file of yours defines ATTN_IMPLEMENTATION before it includes attn.h
include("${CMAKE_CURRENT_LIST_DIR}/attn-config-version.cmake")
if(NOT TARGET attn::attn)
    add_library(attn_header INTERFACE)
    target_include_directories(attn_header INTERFACE "${attn_INCLUDE_DIR}")
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
