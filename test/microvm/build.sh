#!/bin/sh
# Builds a small Debian machine for run.sh in the directory $1: kernel, initial RAM disk and disk. It has
# /dev/kvm when QEMU emulates an AMD processor, and contains msb (/opt/msb) and an image with Python for
# boxes (/image.tar). Needs Debian 12 or newer, root, npm, and:
#   apt-get install qemu-system-x86 busybox-static debootstrap e2fsprogs
set -eu
dir=$(mkdir -p "$1" && cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
msb=0.7.2 # as Version in internal/executor/microsandbox
cd "$dir"
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

for tool in qemu-system-x86_64 busybox debootstrap mke2fs npm; do
	command -v "$tool" >/dev/null || missing="${missing:-} $tool"
done
if [ -n "${missing:-}" ]; then
	echo "missing:$missing; try: apt-get install qemu-system-x86 busybox-static debootstrap e2fsprogs npm" >&2
	exit 2
fi
[ "$(id -u)" = 0 ] || { echo "root is needed to build the machine's disk" >&2; exit 2; }

# Debian's kernel for virtual machines has ext4 built in, and KVM as modules.
package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
rm -rf kernel && mkdir kernel
(cd kernel && apt-get -q download "$package" && dpkg -x "$package"_*.deb .)
cp "kernel/boot/vmlinuz-${package#linux-image-}" vmlinuz
modules=kernel/lib/modules/${package#linux-image-}/kernel

npm install --silent --no-audit --no-fund --prefix npm "@superradcompany/microsandbox-linux-x64-gnu@$msb"

# One Debian tree with Python is the root of the machine and, without some directories, that of boxes.
[ -d tree ] || { debootstrap --variant=minbase --include=python3,ca-certificates bookworm tree.new && mv tree.new tree; } >/dev/null
rm -rf tree/var/cache/apt/archives/*.deb tree/var/lib/apt/lists/* image && mkdir image
tar -C tree --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale \
	--exclude=./var/lib/dpkg --exclude=./var/cache --exclude='./dev/*' -cf image/layer.tar .
layer=$(sha256sum image/layer.tar | cut -d' ' -f1)
printf '{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$layer" >image/config.json
printf '[{"Config":"config.json","RepoTags":["codefleet/python:test"],"Layers":["layer.tar"]}]' >image/manifest.json

rm -rf root && cp -a tree root
mkdir -p root/opt/msb root/modules root/job
tar -C image -cf root/image.tar manifest.json config.json layer.tar
cp -a npm/node_modules/@superradcompany/microsandbox-linux-x64-gnu/bin npm/node_modules/@superradcompany/microsandbox-linux-x64-gnu/lib root/opt/msb/
cp "$(command -v busybox)" root/usr/bin/busybox
cp "$modules/virt/lib/irqbypass.ko" "$modules/arch/x86/kvm/kvm.ko" "$modules/arch/x86/kvm/kvm-amd.ko" \
	"$modules/fs/fuse/fuse.ko" "$modules/drivers/block/loop.ko" root/modules/
install -m 755 "$here/init" root/usr/sbin/init

# The initial RAM disk loads the modules for the disk and switches to it.
rm -rf ram && mkdir -p ram/bin ram/proc ram/sys ram/dev ram/mnt ram/modules
cp "$(command -v busybox)" ram/bin/busybox
for m in virtio/virtio_ring virtio/virtio virtio/virtio_pci_modern_dev virtio/virtio_pci_legacy_dev virtio/virtio_pci block/virtio_blk; do
	cp "$modules/drivers/$m.ko" ram/modules/
done
install -m 755 "$here/init.ram" ram/init
(cd ram && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 >../initrd.gz)

rm -f disk.img && truncate -s 12G disk.img && mke2fs -q -t ext4 -E nodiscard -d root disk.img
rm -rf root ram image kernel
cat "$here/build.sh" "$here/init" "$here/init.ram" | sha256sum >built
