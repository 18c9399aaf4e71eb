#!/bin/sh
# Makes a root file system with Debian's Python, pandas and matplotlib in DIR, without installing them. Tests give it to
# a fleet as execution.rootfs.
set -eu
dir=$1
rm -rf "$dir" && mkdir -p "$dir/debs" "$dir/root"
cd "$dir"

# With an empty list of installed packages, apt names everything that pandas and matplotlib need. Packages that are
# needed only for compiling, or only by fonttools, which is not used, are left out.
: >installed
packages() {
	apt-get -s -o Dir::State::status="$dir/installed" --no-install-recommends install python3-pandas python3-matplotlib |
		awk '/^Inst/ {print $2}' |
		grep -Ev -e '-dev$|^(gcc|g\+\+|cpp)|binutils|scipy|sympy|mpmath|pythran|openblas|boost|^lib(asan|tsan|lsan|isl|icu)|^(tcl|tk|blt)'
}
download() {
	# shellcheck disable=SC2086 # a list of words
	list=$(packages) && (cd debs && apt-get download -qq $list)
}
download || { apt-get update -qq; download; }
for name in bin sbin lib lib64; do
	mkdir -p root/usr/$name && ln -s usr/$name root/$name
done
for deb in debs/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C root
done
rm -r debs
# Debian makes these links when it installs the packages.
for name in blas lapack; do
	for lib in root/usr/lib/*/$name/lib$name.so.3; do
		ln -s "$name/lib$name.so.3" "${lib%/*/*}/lib$name.so.3"
	done
done
touch done
