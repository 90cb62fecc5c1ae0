#!/usr/bin/env bash
# jobs/deps.sh against a stand-in for apt: installs only what is missing, tries once more, and
# without root names the command and exits with 2.
# usage: deps_test.sh ROOT
set -euo pipefail
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cp "$root/jobs/deps.sh" "$work/deps.sh"
fail() { echo "FAILED: $*" >&2; cat "$work/log" >&2; exit 1; }

mkdir "$work/bin"
cat > "$work/bin/dpkg-query" << 'STUB'
#!/bin/sh
for package; do :; done
case " $MISSING " in *" $package "*) exit 1 ;; *) printf installed ;; esac
STUB
cat > "$work/bin/apt-get" << 'STUB'
#!/bin/sh
echo "$DEBIAN_FRONTEND apt-get $*" >> "$APT_LOG"
case "$*" in *install*) [ "$(grep -c install "$APT_LOG")" -gt "$FAILURES" ] ;; esac
STUB
printf '#!/bin/sh\nexit 1\n' > "$work/bin/sudo"
printf '#!/bin/sh\n' > "$work/bin/sleep"
chmod 755 "$work"/bin/*

# deps MISSING FAILURES USER [ARGUMENTS...]: sets status; output in log, calls of apt in apt
deps() {
  local as=()
  [[ $3 == root ]] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  : > "$work/apt"
  status=0
  "${as[@]}" env PATH="$work/bin:$PATH" MISSING="$1" FAILURES="$2" APT_LOG="$work/apt" \
    bash "$work/deps.sh" "${@:4}" > "$work/log" 2>&1 || status=$?
}

if ((EUID == 0)); then
  deps "" 0 root
  [[ $status == 0 && ! -s $work/apt ]] || fail "nothing missing: status $status"
  deps "libdnnl-dev zlib1g-dev libgtest-dev" 0 root
  [[ $status == 0 ]] || fail "as root: status $status"
  grep -q -- '^noninteractive apt-get .*update$' "$work/apt" || fail "the package lists were not updated"
  grep -q -- '--no-install-recommends libdnnl-dev zlib1g-dev$' "$work/apt" || fail "installed: $(cat "$work/apt")"
  deps "libgtest-dev" 1 root --with-tests
  [[ $status == 0 && $(grep -c install "$work/apt") == 2 ]] || fail "no second try: status $status"
  deps "libgtest-dev" 9 root --with-tests
  [[ $status == 2 ]] || fail "apt fails for good: status $status"
else
  echo "note: not root, the installing half is not tested"
fi

user=nobody
((EUID == 0)) || user=root  # already an ordinary user
deps "libdnnl-dev" 0 "$user"
[[ $status == 2 && ! -s $work/apt ]] || fail "without root: status $status"
grep -qF 'apt-get install --no-install-recommends libdnnl-dev' "$work/log" || fail "the command is not named"
deps "" 0 "$user"
[[ $status == 0 ]] || fail "without root, nothing missing: status $status"
deps "" 0 "$user" --no-such-option
[[ $status == 2 ]] || fail "wrong option: status $status"
