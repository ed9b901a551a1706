# A node on which the package is installed, used by alice, and purged again.
useradd --create-home --shell /bin/bash alice
# The page's own commands, from the package to its removal; what they print is compared outside.
cp /package "/root/$(cat /name)"
(cd /root && sh /page.sh > /page.log 2>&1 || true)
dpkg -i /package
# There is no GPU here: the daemon gets emulated ones.
mkdir -p /etc/systemd/system/radrmd.service.d
printf '[Service]\nExecStart=\nExecStart=/usr/bin/radrmd --emulate 2xA100-40GB\n' \
    > /etc/systemd/system/radrmd.service.d/emulated.conf
systemctl daemon-reload
units='run-radrm.mount run-radrm-limits.mount radrm-limits.service radrmd.service'
systemctl enable --now $units || { journalctl --no-pager | tail -n 50; exit 1; }
systemctl is-active $units
findmnt --types tmpfs /run/radrm/limits
as_alice() { (cd /home/alice && runuser -u alice -- "$@"); }
answers() {
    for i in $(seq 100); do
        if as_alice radrm queue; then return; fi
        sleep 0.1
    done > /dev/null 2>&1
    journalctl --unit=radrmd --no-pager
    return 1
}
answers
as_alice radrm submit --wait --gpu-mem 1GiB --time 1m -- sh -c 'test "$RADRM_JOB" = 1 && test "$(id -un)" = alice'
systemctl restart radrmd
answers
as_alice radrm submit --wait --gpu-mem 1GiB --time 1m -- true

. /logins.sh

rm -r /etc/systemd/system/radrmd.service.d
dpkg --purge radrm
for unit in $units; do ! systemctl is-active "$unit"; done
! getent group radrm-admin
left=$(find / -xdev -name '*radrm*' -not -path '/proc/*' -not -path '/var/lib/systemd/*')
test -z "$left"
