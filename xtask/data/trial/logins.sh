# Logins of alice, whose limit is 2 GiB, by sshd, cron and su. Her programs get the emulated GPU of this file.
gpu=/srv/gpu
radrm-run --emulate A100-40GB --machine "$gpu" --quiet --no-profile --no-dataset -- true
chmod 666 "$gpu"
for program in radrm radrm-run; do mv "/usr/bin/$program" "/usr/bin/$program.real"; done
cat > /usr/bin/radrm-run <<'SCRIPT'
#!/bin/sh
exec /usr/bin/radrm-run.real --machine /srv/gpu "$@"
SCRIPT
cat > /usr/bin/radrm <<'SCRIPT'
#!/bin/sh
[ "$1 $2" = "quota init" ] || exec /usr/bin/radrm.real "$@"
shift 2
exec /usr/bin/radrm.real quota init --machine /srv/gpu "$@"
SCRIPT
chmod +x /usr/bin/radrm /usr/bin/radrm-run
touch /dev/nvidiactl
printf '[user.alice]\nmem-limit = "2GiB"\n' > /etc/radrm/radrm.toml
cp /total.py /srv
is_limited() { grep -qx '2048 MiB'; }

mkdir -m 700 -p /root/.ssh /home/alice/.ssh
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
cp /root/.ssh/id_ed25519.pub /home/alice/.ssh/authorized_keys
chown -R alice /home/alice/.ssh
printf 'Match User alice\n    ForceCommand /usr/lib/radrm/login\n' >> /etc/ssh/sshd_config
mkdir -p /run/sshd
/usr/sbin/sshd
login='ssh -o StrictHostKeyChecking=accept-new -o BatchMode=yes alice@127.0.0.1'
# The limit is not set up: nothing starts, but files can be fetched.
code=0; $login true || code=$?; test "$code" = 125
printf 'put /srv/total.py\n' | sftp -b - alice@127.0.0.1
for service in sshd cron su; do
    echo 'session optional pam_exec.so quiet /usr/lib/radrm/session' >> "/etc/pam.d/$service"
done
# A command, a shell, an exit code, a copy.
$login python3 /srv/total.py | is_limited
echo 'python3 /srv/total.py' | $login | is_limited
code=0; $login 'exit 3' || code=$?; test "$code" = 3
scp /srv/total.py alice@127.0.0.1:copy.py
cmp /srv/total.py /home/alice/copy.py
# A session of su sets up the limit as well.
rm -r "$gpu".user-*
su alice -c true
ls -d "$gpu".user-*
# cron, which starts jobs at the full minute.
printf 'SHELL=/usr/lib/radrm/login\n* * * * * echo "$SHELL" > shell; python3 /srv/total.py > cron.new && mv cron.new cron\n' \
    | crontab -u alice -
/usr/sbin/cron
for i in $(seq 120); do test -e /home/alice/cron || sleep 1; done
is_limited < /home/alice/cron
test "$(cat /home/alice/shell)" = /bin/sh
crontab -u alice -r

for program in radrm radrm-run; do mv "/usr/bin/$program.real" "/usr/bin/$program"; done
