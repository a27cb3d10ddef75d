# Finds the header, with which this file was installed (below share, lib or lib/<machine>) or in whose tree it lies, and
# reads the version in it.
foreach(folder "../../include" "../../../include" "../../.." "../../../../include" "@PREFIX@/include")
    get_filename_component(attn_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/${folder}" ABSOLUTE)
    if(EXISTS "${attn_INCLUDE_DIR}/attn.h")
        break()
    endif()
endforeach()
set(PACKAGE_VERSION "")
foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${attn_INCLUDE_DIR}/attn.h" line REGEX "^#define ATTN_VERSION_${part} [0-9]+$")
    string(REGEX REPLACE ".* " "" line "${line}")
    list(APPEND PACKAGE_VERSION "${line}")
endforeach()
string(REPLACE ";" "." PACKAGE_VERSION "${PACKAGE_VERSION}")

# While the major version is 0 a new minor version may ask programs to change.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" attn_series "${PACKAGE_VERSION}")
if("${PACKAGE_FIND_VERSION_MAJOR}.${PACKAGE_FIND_VERSION_MINOR}" STREQUAL attn_series
        AND NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
endif()
