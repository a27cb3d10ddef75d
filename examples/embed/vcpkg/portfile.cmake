vcpkg_from_git(
    OUT_SOURCE_PATH SOURCE_PATH
    URL @URL@
    REF @COMMIT@
)
file(INSTALL "${SOURCE_PATH}/attn.h" "${SOURCE_PATH}/attn_cuda.cuh" DESTINATION "${CURRENT_PACKAGES_DIR}/include")
file(GLOB PACKAGE_FILES "${SOURCE_PATH}/examples/embed/package/*.cmake")
file(INSTALL ${PACKAGE_FILES} "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
set(VCPKG_BUILD_TYPE release)   # a header: there is nothing to build
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
