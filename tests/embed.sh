# embed.sh - examples/embed: attn.h in projects of other build systems. `make test-embed` runs all, `sh tests/embed.sh
# cmake` one item. What needs a tool that is not here is skipped.
. tests/items.sh

dir=$PWD/$out/embed
mkdir -p "$dir"
export CC
version=$(sed -n '1s/.* v\([0-9.]*\) .*/\1/p' attn.h)

needs() { # needs NAME TOOL...: whether all are here; says which one is not
    name=$1; shift
    for tool in "$@"; do have $tool || { skipped "$name (no $tool)"; return 1; }; done
}

# The library is compiled in each of these, so in a build type that optimises nothing.
project() { # project FOLDER CMAKE-ARGUMENTS...: configured, built, run
    build=$dir/$1; shift
    rm -rf "$build"
    cmake -S examples/embed -B "$build" -DCMAKE_BUILD_TYPE=Quick -DCMAKE_C_FLAGS="-O0 -Wall -Wextra -Werror" "$@" &&
        cmake --build "$build" && (cd "$build" && ctest --output-on-failure)
}
optimised() { # optimised BUILD-TYPE FLAG: what the library is compiled with
    cmake -S examples/embed -B "$dir/type" -DCMAKE_BUILD_TYPE="$1" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON &&
        grep 'command.*attn_implementation' "$dir/type/compile_commands.json" >"$dir/type/commands" &&
        cat "$dir/type/commands" && grep -q -- " $2 " "$dir/type/commands"
}
item_cmake() {
    needs "CMake, from the tree" cmake ctest || return
    try "CMake, from the tree" project cmake
    for type in "" Debug; do try "the library is optimised in build type '$type'" optimised "$type" -O2; done
    try "and as that says in Release" optimised Release -O3
}

# ---- after make install: the files, and who finds them
install() { # install PREFIX TARGET ARGUMENTS...: `make install` and the like, with libraries that take less time
    prefix=$1; shift
    make CFLAGS=-O0 LIBRARY="$dir/libattn.a" SHARED="$dir/libattn.so" PREFIX="$prefix" "$@"
}
files_in() { (cd "$1" && find . -type f -o -type l | sort); }
installed_files() { # installed_files LIBDIR LIBRARY...: what must be there
    below=$1; shift
    printf './%s\n' include/attn.h include/attn_cuda.cuh share/doc/attn/LICENSE "$below/pkgconfig/attn.pc" \
        "$below/cmake/attn/attn-config-version.cmake" "$below/cmake/attn/attn-config.cmake" \
        $(printf "$below/%s\n" "$@") | sort
}
item_install() {
    rm -rf "$dir/stage" "$dir/prefix"
    try "make install with DESTDIR" install /opt/attn install DESTDIR="$dir/stage" || return
    files_in "$dir/stage/opt/attn" >"$dir/files"
    installed_files lib libattn.a >"$dir/wanted"
    try "what it installs" diff "$dir/wanted" "$dir/files"
    try "DESTDIR is not in a file" sh -c "! grep -rnIF '$dir' '$dir/stage'"
    try "make install into PREFIX" install "$dir/prefix" install || return
    finds_pkg_config
    finds_cmake
}
# Both libraries, below a folder for the machine; then none.
item_shared() {
    root=$dir/shared/opt libdir=lib/machine-linux-gnu library=$dir/shared/opt/lib/machine-linux-gnu/libattn.so
    rm -rf "$dir/shared"
    try "make install-shared install with LIBDIR" install "$root" install-shared install LIBDIR="$root/$libdir" ||
        return
    installed_files $libdir libattn.a libattn.so libattn.so.${version%.*} libattn.so.$version >"$dir/shared/wanted"
    files_in "$root" >"$dir/shared/files"
    try "what both install" diff "$dir/shared/wanted" "$dir/shared/files"
    try "attn.pc names LIBDIR" grep -qx 'libdir=${prefix}/'$libdir "$root/$libdir/pkgconfig/attn.pc"
    if have readelf; then
        try "the SONAME" sh -c "readelf -d '$library' | grep -F 'SONAME' | grep -F '[libattn.so.${version%.*}]'"
    else skipped "the SONAME (no readelf)"; fi
    try "it exports attn_* alone, and all of it" exports "$library"
    if needs "find_package of either library" cmake ctest; then
        for way in OFF ON; do
            try "find_package, BUILD_SHARED_LIBS=$way" finds_library $way "$root/$libdir"
        done
        rm "$root/$libdir/libattn.a"
        try "find_package, the shared library alone" finds_library ON "$root/$libdir" -DBUILD_SHARED_LIBS=OFF
    fi
    install "$root" uninstall LIBDIR="$root/$libdir" >"$dir/shared/log" 2>&1
    files_in "$root" >"$dir/shared/files"
    try "make uninstall leaves no file" test ! -s "$dir/shared/files"
    try "nor a folder of its own" test ! -e "$root/share/doc/attn" -a ! -e "$root/$libdir/cmake/attn"
}
exports() { # exports LIBRARY: its functions are those of the static one
    nm -D --defined-only "$1" | awk '$2 == "T" { print $3 }' | sort >"$dir/shared/exported"
    nm -g --defined-only "$dir/libattn.a" | awk '$2 == "T" { print $3 }' | sort >"$dir/shared/public"
    [ "$(nm -D --defined-only "$1" | wc -l)" = "$(wc -l <"$dir/shared/exported")" ] && [ -s "$dir/shared/public" ] &&
        ! grep -v '^attn_[a-z]' "$dir/shared/exported" && diff "$dir/shared/public" "$dir/shared/exported"
}
finds_library() { # finds_library ON-if-shared LIBDIR ARGUMENTS...: it is linked, nothing is compiled again
    shared=$1 package=$2/cmake/attn; shift 2
    project shared/build -DATTN_INSTALLED=ON -Dattn_DIR="$package" -DBUILD_SHARED_LIBS=$shared "$@" &&
        ! find "$dir/shared/build" -name '*implementation*' | grep . &&
        nm "$dir/shared/build/compiled" | awk -v shared=$shared '
            / U attn_forward$/ { seen = "ON" } / T attn_forward$/ { seen = "OFF" }
            END { print "linked shared:", seen; exit seen != shared }'
}

with_pkg_config() {
    PKG_CONFIG_PATH=$dir/prefix/lib/pkgconfig; export PKG_CONFIG_PATH
    [ "$(pkg-config --modversion attn)" = "$version" ] || { pkg-config --modversion attn; return 1; }
    $CC -Wall -Wextra -Werror $(pkg-config --cflags attn) examples/embed/main.c $(pkg-config --libs attn) \
        -o "$dir/linked" && "$dir/linked"
}
finds_pkg_config() {
    needs "pkg-config" pkg-config || return
    try "pkg-config" with_pkg_config
}
finds_cmake() {
    needs "find_package" cmake ctest || return
    try "find_package" project installed -DATTN_INSTALLED=ON -DCMAKE_PREFIX_PATH="$dir/prefix"
    try "find_package compiles nothing" sh -c "! find '$dir/installed' -name '*implementation*' | grep ."
    try "a project that links it, exported, installed and found" exported prefix 'find_package(attn 0.3 REQUIRED)'
    for asked in 0.2 0.4 "$version.1" 1.0; do
        try "find_package refuses $version for $asked" refused "$asked"
    done
}
refused() { # refused VERSION
    mkdir -p "$dir/refused"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.14)' 'project(refused NONE)' "find_package(attn $1 REQUIRED)" \
        >"$dir/refused/CMakeLists.txt"
    rm -rf "$dir/refused/build"
    ! cmake -S "$dir/refused" -B "$dir/refused/build" -DCMAKE_PREFIX_PATH="$dir/prefix" >"$dir/refused/log" 2>&1 &&
        grep -q "version: $version" "$dir/refused/log" || { cat "$dir/refused/log"; return 1; }
}

# A library that links attn::attn is installed with its targets, and found by another project.
exported() { # exported PREFIX HOW-IT-GETS-attn.h
    box=$dir/exported.$1 prefix=$dir/$1
    rm -rf "$box" && mkdir -p "$box/uses"
    printf '%s\n' '#include <attn.h>' 'int32_t box(void);' 'int32_t box(void) { return attn_version(); }' >"$box/box.c"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.14)' 'project(box C)' "$2" 'add_library(box STATIC box.c)' \
        'target_link_libraries(box PUBLIC attn::attn)' 'install(TARGETS box EXPORT box DESTINATION lib)' \
        'install(EXPORT box NAMESPACE box:: FILE box-config.cmake DESTINATION lib/cmake/box)' >"$box/CMakeLists.txt"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.14)' 'project(uses C)' 'find_package(attn 0.3 REQUIRED)' \
        'find_package(box REQUIRED)' "add_executable(uses $PWD/examples/embed/main.c)" \
        'target_link_libraries(uses PRIVATE box::box)' >"$box/uses/CMakeLists.txt"
    set -- -DCMAKE_BUILD_TYPE=Quick -DCMAKE_C_FLAGS=-O0 -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_INSTALL_PREFIX="$prefix" \
        -DCMAKE_INSTALL_LIBDIR=lib
    cmake -S "$box" -B "$box/build" "$@" && cmake --build "$box/build" && cmake --install "$box/build" &&
        cmake -S "$box/uses" -B "$box/uses/build" "$@" && cmake --build "$box/uses/build" && "$box/uses/build/uses"
}
item_fetched() {
    needs "FetchContent" cmake || return
    rm -rf "$dir/fetched"
    try "FetchContent, exported, installed and found" exported fetched \
        "include(FetchContent)
         FetchContent_Declare(attn SOURCE_DIR \"$PWD\")
         FetchContent_MakeAvailable(attn)"
    files_in "$dir/fetched" >"$dir/files"
    for file in include/attn.h lib/libattn.a lib/cmake/attn/attn-config.cmake share/doc/attn/LICENSE; do
        grep -qxF "./$file" "$dir/files" || { failed "what it installs: $file"; return; }
    done
}

# ---- the recipes, with a local archive where they say @URL@
archive() { # archive FOLDER: attn-VERSION.tar.gz in it, with what the recipes take from the tree
    mkdir -p "$1/attn-$version/examples/embed" && cp attn.h attn_cuda.cuh LICENSE "$1/attn-$version" &&
        cp -R examples/embed/package "$1/attn-$version/examples/embed" &&
        tar -C "$1" -czf "$1/attn-$version.tar.gz" "attn-$version" && rm -r "$1/attn-$version"
}
filled() { # filled RECIPE ARCHIVE: @URL@ and @SHA256@ become the archive's
    sed "s|@URL@|file://$(dirname "$2")|; s|@SHA256@|$(sha256sum "$2" | cut -d ' ' -f 1)|" "$1" >"$1.filled" &&
        mv "$1.filled" "$1"
}
with_meson() { # the wrap is taken, also where pkg-config knows another attn; -O0 behind its own -O2 takes less time
    tree=$dir/meson
    rm -rf "$tree" && mkdir -p "$tree" && cp -R examples/embed/main.c examples/embed/meson.build \
        examples/embed/subprojects "$tree" && archive "$tree" &&
        filled "$tree/subprojects/attn.wrap" "$tree/attn-$version.tar.gz" &&
        CFLAGS=-O0 meson setup --wrap-mode=forcefallback -Dwerror=true "$tree/build" "$tree" &&
        grep -q 'command.* -O2 .*libattn' "$tree/build/compile_commands.json" &&
        meson test -C "$tree/build" --print-errorlogs
}
item_meson() {
    needs "Meson, by attn.wrap" meson ninja || return
    try "Meson, by attn.wrap" with_meson
}
# The port, run by CMake with what vcpkg would define; then the project finds what it has installed.
with_vcpkg() {
    port=$dir/vcpkg
    rm -rf "$port" && mkdir -p "$port"
    cat >"$port/run.cmake" <<END
cmake_minimum_required(VERSION 3.14)
function(vcpkg_from_git)
    set(SOURCE_PATH "$PWD" PARENT_SCOPE)
endfunction()
function(vcpkg_install_copyright FILE_LIST file)
    configure_file(\${file} \${CURRENT_PACKAGES_DIR}/share/\${PORT}/copyright COPYONLY)
endfunction()
set(PORT attn)
set(CURRENT_PACKAGES_DIR "$port/package")
include("$PWD/examples/embed/vcpkg/portfile.cmake")
END
    cmake -P "$port/run.cmake" && [ -f "$port/package/share/attn/copyright" ] &&
        project vcpkg/build -DATTN_INSTALLED=ON -DCMAKE_PREFIX_PATH="$port/package"
}
item_vcpkg() {
    needs "the port of vcpkg" cmake ctest || return
    try "the port of vcpkg" with_vcpkg
}
with_conan() {
    tree=$dir/conan
    rm -rf "$tree" && mkdir -p "$tree" && cp examples/embed/conan/* "$tree" && archive "$tree" &&
        filled "$tree/conandata.yml" "$tree/attn-$version.tar.gz" || return 1
    CONAN_HOME=$tree/home; export CONAN_HOME
    conan profile detect && conan create "$tree" --version "$version" &&
        (cd "$tree" && conan install --requires "attn/$version" -g CMakeDeps -g CMakeToolchain -of "$tree/found") &&
        project conan/build -DATTN_INSTALLED=ON -DCMAKE_TOOLCHAIN_FILE="$tree/found/conan_toolchain.cmake"
}
item_conan() {
    needs "the recipe of Conan" conan cmake ctest || return
    try "the recipe of Conan" with_conan
}

# Recipes name the version by themselves.
versions() {
    for file in subprojects/attn.wrap subprojects/packagefiles/attn/meson.build vcpkg/vcpkg.json conan/conandata.yml; do
        found=$(grep -oE '[0-9]+\.[0-9]+\.[0-9]+' "examples/embed/$file" | sort -u)
        [ "$found" = "$version" ] || { echo "$file:" $found; return 1; }
    done
}
item_versions() { try "recipes are of version $version" versions; }

items "$1" versions cmake install shared fetched meson vcpkg conan
