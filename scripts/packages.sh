# Sourced by scripts/demo and scripts/test. `need NAME...` makes sure that what the names stand for is on this machine: as root,
# or where sudo asks nothing or a person can answer it, the missing Debian packages are installed; otherwise it says which to
# install and ends the script. Elsewhere than on Debian and its kin it only says what is missing.

# NAME, Debian package, how to see that it is there.
package_of() {
    case $1 in
    cc) package=gcc look="command -v cc" ;;
    libc) package=libc6-dev look="test -e /usr/include/stdio.h" ;;
    c++) package=g++ look="command -v c++" ;;
    cmake) package=cmake look="command -v cmake" ;;
    ninja) package=ninja-build look="command -v ninja" ;;
    pkg-config) package=pkg-config look="command -v pkg-config" ;;
    pcre2) package=libpcre2-dev look="pkg-config --exists libpcre2-8" ;;
    jansson) package=libjansson-dev look="pkg-config --exists jansson" ;;
    microhttpd) package=libmicrohttpd-dev look="pkg-config --exists libmicrohttpd" ;;
    openblas) package=libopenblas-dev look="pkg-config --exists openblas" ;;
    edit) package=libedit-dev look="pkg-config --exists libedit" ;;
    xxhash) package=libxxhash-dev look="test -e /usr/include/xxhash.h" ;;
    cmocka) package=libcmocka-dev look="pkg-config --exists cmocka" ;;
    clang) package=clang look="command -v clang" ;;
    clang-format) package=clang-format look="command -v clang-format" ;;
    aarch64) package=gcc-aarch64-linux-gnu look="command -v aarch64-linux-gnu-gcc" ;;
    aarch64-libc) package=libc6-dev-arm64-cross look="test -e /usr/aarch64-linux-gnu/include/stdio.h" ;;
    qemu) package=qemu-user look="command -v qemu-aarch64" ;;
    python) package=python3 look="command -v python3" ;;
    venv) package=python3-venv look="python3 -c 'import ensurepip'" ;;
    *) package=$1 look="command -v $1" ;;
    esac
}

missing_packages() {
    missing=
    for name; do
        package_of "$name"
        sh -c "$look" >/dev/null 2>&1 || missing="$missing $package"
    done
}

need() {
    missing_packages "$@"
    if [ -n "$missing" ]; then
        if ! command -v apt-get >/dev/null; then
            echo "$0: this needs, by their Debian names:$missing" >&2
            exit 1
        fi
        if [ "$(id -u)" -eq 0 ]; then
            as_root="env"
        elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
            as_root="sudo"
        else
            echo "$0: some packages are missing, and only root can install them. As root, run" >&2
            echo "    apt-get install --no-install-recommends$missing" >&2
            echo "and then $0 again." >&2
            exit 1
        fi
        echo "installing$missing"
        apt_log=$(mktemp)
        # shellcheck disable=SC2086
        if ! { $as_root apt-get update -qq && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing; } >"$apt_log" 2>&1 </dev/null; then
            cat "$apt_log" >&2
            rm -f "$apt_log"
            echo "$0: apt-get could not install$missing" >&2
            exit 1
        fi
        rm -f "$apt_log"
        missing_packages "$@"
        if [ -n "$missing" ]; then
            echo "$0: still missing after installing it:$missing" >&2
            exit 1
        fi
    fi
    case " $* " in
    *" cmake "*)
        cmake_version=$(cmake --version | sed -n '1s/[^0-9]*//p')
        major=${cmake_version%%.*} minor=${cmake_version#*.}
        minor=${minor%%.*}
        if [ "$major" -lt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -lt 25 ]; }; then
            echo "$0: cmake $cmake_version is too old, 3.25 is needed (Debian 12, Ubuntu 23.04 and later have it; elsewhere PyPI's cmake)" >&2
            exit 1
        fi
        ;;
    esac
}

# A compiler cache is used where there is one.
if command -v ccache >/dev/null; then
    CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache}
    export CMAKE_C_COMPILER_LAUNCHER
fi
