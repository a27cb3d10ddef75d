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
installed() { # installed DESTDIR PREFIX
    rm -rf "$1$2"
    make install CFLAGS=-O0 LIBRARY="$dir/libattn.a" DESTDIR="$1" PREFIX="$2"
}
item_install() {
    try "make install with DESTDIR" installed "$dir/stage" /opt/attn || return
    (cd "$dir/stage/opt/attn" && find . -type f | sort) >"$dir/files"
    printf './%s\n' include/attn.h include/attn_cuda.cuh lib/libattn.a lib/pkgconfig/attn.pc \
        share/cmake/attn/attn-config-version.cmake share/cmake/attn/attn-config.cmake >"$dir/wanted"
    try "what it installs" diff "$dir/wanted" "$dir/files"
    try "DESTDIR is not in attn.pc" sh -c "! grep -n '$dir' '$dir/stage/opt/attn/lib/pkgconfig/attn.pc'"
    try "make install into PREFIX" installed "" "$dir/prefix" || return
    finds_pkg_config
    finds_cmake
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
with_meson() { # the wrap is taken, also where pkg-config knows another attn
    tree=$dir/meson
    rm -rf "$tree" && mkdir -p "$tree" && cp -R examples/embed/main.c examples/embed/meson.build \
        examples/embed/subprojects "$tree" && archive "$tree" &&
        filled "$tree/subprojects/attn.wrap" "$tree/attn-$version.tar.gz" &&
        meson setup --wrap-mode=forcefallback -Dwerror=true "$tree/build" "$tree" &&
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
        conan install --requires "attn/$version" -g CMakeDeps -g CMakeToolchain -of "$tree/found" &&
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

items "$1" versions cmake install meson vcpkg conan
