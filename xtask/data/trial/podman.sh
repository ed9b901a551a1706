# Containers of podman whose device is a limit. $1: root of the containers, $2: prefix with the programs, $3: a folder for
# podman. In a mount namespace of its own, so that nothing on the machine changes.
mount --make-rprivate /
mount -t tmpfs run /run
# crun wants control groups of version 2 alone.
umount --recursive /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /run/cdi
"$2/bin/radrm" cdi generate 2GiB 50% --output /run/cdi/radrm.json --folder /run/cdi/limits
contain() {
    podman --root "$3" --runroot /run/podman --storage-driver vfs --cgroup-manager cgroupfs run --rm --network none \
        --cgroups disabled --device "radrm.dev/limit=$4" --rootfs "$1" radrm-run --emulate A100-40GB --quiet \
        --no-profile --no-dataset -- python3 /total.py
}
test "$(contain "$@" 2GiB)" = '2048 MiB'
test "$(contain "$@" 50percent)" = '20480 MiB'
# A device that the specification does not have.
! contain "$@" 3GiB
