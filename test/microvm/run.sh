#!/bin/sh
# Boots the machine that build.sh created in $1, copies the directory $2 to it, and runs the copy's program `run` as
# root. Prints the program's output and exits with its status, or with 99 if the machine does not end within $LIMIT
# seconds (default 3600). Changes in the machine are discarded. Emulation is 60 to 100 times slower than hardware.
# Sometimes the machine hangs after several dozen microVMs: run the remaining tests with `make TARGET RUN=PATTERN`.
set -eu
dir=$1 job=$2
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
tar -C "$job" -cf "$files/job.tar" .
truncate -s %512 "$files/job.tar"
: >"$files/console"
timeout "${LIMIT:-3600}" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi,tb-size=1024 -cpu max,-la57 \
	-smp "${SMP:-2}" -m "${MEMORY:-4G}" -display none -monitor none -no-reboot -nodefaults -nic none \
	-kernel "$dir/vmlinuz" -initrd "$dir/initrd.gz" -append "console=ttyS0 mitigations=off nokaslr panic=-1 rw" \
	-drive "file=$dir/disk.img,if=none,id=disk,format=raw,snapshot=on,cache=unsafe" -device virtio-blk-pci,drive=disk \
	-drive "file=$files/job.tar,if=none,id=job,format=raw,readonly=on" -device virtio-blk-pci,drive=job \
	-serial "file:$files/console" -serial stdio </dev/null || true
status=$(tr -d '\r' <"$files/console" | sed -n 's/^machine exit \([0-9]*\)$/\1/p')
if [ -z "$status" ]; then
	echo "the emulated machine did not end; its last output:" >&2
	tail -n 20 "$files/console" >&2
	exit 99
fi
exit "$status"
