#!/usr/bin/env bash
# install_packages of launch/lib.sh, with fake dpkg-query, apt-get and sudo.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=support.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/support.sh"

cat >"$copy/launch/packages.txt" <<'EOF'
# comment
[build]
alpha   # why
beta
[test]
gamma # why
alpha # again
EOF
install() { bash -c 'set -euo pipefail; program=quickstart; source "$1"; open_logs; step packages; install_packages build test' \
  _ "$copy/launch/lib.sh"; }
# A dpkg-query that knows what stands in $work/installed.
fake dpkg-query <<EOF
grep . "$work/installed" || true
EOF
fake sudo <<'EOF'
[[ $1 != -n ]] || shift
exec "$@"
EOF
apt_that_installs() {
  fake apt-get <<EOF
if [[ " \$* " == *" install "* ]]; then
  printf 'installed alpha\ninstalled beta\ninstalled gamma\n' >"$work/installed"
fi
EOF
}

begin "install_packages: nothing missing, no apt-get"
printf 'installed gamma\ninstalled alpha\ninstalled beta\n' >"$work/installed"
apt_that_installs
capture install
expect_status 0
expect_no_calls apt-get
expect_no_calls sudo

begin "install_packages: only what is missing is installed"
printf 'installed alpha\nconfig-files beta\ninstalled gammaray\n' >"$work/installed"
capture install
expect_status 0
expect_calls apt-get "install -y --no-install-recommends beta gamma"
[[ $(calls apt-get | head -n1) == *update* ]] || wrong "no update first"
if ((EUID != 0)); then expect_calls sudo apt-get; else expect_no_calls sudo; fi

begin "install_packages: a failing apt-get is told with step, why and what to do"
printf 'installed alpha\n' >"$work/installed"
fake apt-get <<<'[[ " $* " != *" install "* ]] || { echo "E: Unable to locate package beta"; exit 100; }'
capture install
expect_status 1
expect "---- last lines of $copy/build/logs/packages.log"
expect_last_line 'quickstart: step "packages" failed: apt-get install: E: Unable to locate package beta; what to do: '
expect "apt-get install -y --no-install-recommends beta gamma"

begin "install_packages: a failing update is told"
fake apt-get <<<'[[ " $* " != *" update "* ]] || { echo "E: Failed to fetch"; exit 100; }'
capture install
expect_status 1
expect_last_line 'quickstart: step "packages" failed: apt-get update: E: Failed to fetch; what to do: check the network'

begin "install_packages: an apt-get that installs nothing is seen"
fake apt-get <<<'exit 0'
capture install
expect_status 1
expect_last_line 'quickstart: step "packages" failed: apt-get ended well, yet these are missing: beta gamma'

# An EUID of our own choice needs a line in the copy: bash does not let a script set it.
sed -i 's/EUID/fake_uid/g' "$copy/launch/lib.sh"
export fake_uid=1000

begin "install_packages: an ordinary user goes through sudo"
apt_that_installs
capture install
expect_status 0
expect_calls sudo "-n env DEBIAN_FRONTEND=noninteractive apt-get"

begin "install_packages: sudo that wants a password, without a terminal"
printf 'installed alpha\n' >"$work/installed"
fake sudo <<<'exit 1'
capture install
expect_status 1
expect "failed: packages are missing, and sudo wants a password but there is no terminal; what to do: as root: apt-get update"
expect_no_calls apt-get

begin "install_packages: no sudo at all"
rm "$fakes/sudo"
for command in bash env dirname readlink mkdir id stat awk grep cat cut tail tr sed rm; do
  ln -s "$(command -v "$command")" "$fakes/$command"
done
PATH=$fakes capture install
expect_status 1
expect_last_line 'quickstart: step "packages" failed: packages are missing and there is no sudo; what to do: as root: apt-get update'

begin "install_packages: a system without apt-get"
rm "$fakes/apt-get"
PATH=$fakes capture install
expect_status 1
expect "this system has no apt-get"
expect "run again with --skip-packages: alpha beta gamma"
echo "all good"
