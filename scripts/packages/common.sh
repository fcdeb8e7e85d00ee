# Sourced by the scripts beside it, which run in the repository's root: what every package is named and dated by.
die() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# need PACKAGE PROGRAM...: every program that a format needs is there.
need() {
    package=$1
    shift
    for p in "$@"; do
        command -v "$p" >/dev/null 2>&1 || die "no $p: apt-get install $package"
    done
}

version=$(sed -n 's/^VERSION := //p' Makefile)
[ -n "$version" ] || die "the Makefile names no VERSION"

# The date in everything that is built: the commit's. A source archive has it as the date of its files.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || SOURCE_DATE_EPOCH=$(stat -c %Y Makefile)
fi
case $SOURCE_DATE_EPOCH in '' | *[!0-9]*) die "SOURCE_DATE_EPOCH \"$SOURCE_DATE_EPOCH\" is not a number of seconds" ;; esac
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022

# stage TARGET [NAME=VALUE...]: the files of `make install` below TARGET, from the build folder $build, without the
# module that needs the system's MPI.
stage() {
    target=$1
    shift
    make -s --no-print-directory install-files UNAME=Linux BUILD="$build" DESTDIR="$target" "$@" || return
    find "$target" -name libinferd-mpi.so -delete
    find "$target" -path '*/lib/inferd' -type d -empty -delete
}

# archive FOLDER NAME: a tar of FOLDER/NAME on standard output, the same bytes for the same files.
archive() {
    tar -C "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$2"
}

# package_of FILE: the Debian package that a library comes from.
package_of() {
    for path in "$1" "/usr$1" "${1#/usr}"; do
        p=$(dpkg-query -S "$path" 2>/dev/null | sed 's/: .*//; s/:.*//; q')
        [ -z "$p" ] || break
    done
    [ -n "$p" ] || die "no package owns $1"
    echo "$p"
}

# put_copyright PACKAGE FOLDER: the licence of a library that an archive contains.
put_copyright() {
    mkdir -p "$2" && cp -L "/usr/share/doc/$1/copyright" "$2/$1"
}
