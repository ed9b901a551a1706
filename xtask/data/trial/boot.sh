# Boots the system in the folder $1 in namespaces of its own: runs as their process 1, as root.
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc -o nosuid,nodev,noexec proc proc
# The settings of the kernel are the machine's.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro,nosuid,nodev,noexec proc/sys
mount -t sysfs -o nosuid,nodev,noexec,ro sysfs sys
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 dev dev
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm before
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs shm dev/shm
mount -t tmpfs -o mode=755 run run
pivot_root . before
cd /
umount -l before
rmdir before
# This variable is how systemd learns that there is no hardware to set up.
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system
